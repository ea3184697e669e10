"""Namespace policies with endpoints of their own, and dynamic configuration: they hold at once."""

from __future__ import annotations

import dataclasses
import json

import pytest

from broker.tenancy.namespaces.names import policies_path
from protocol.errors import TopicNotFound
from protocol.topic_name import TopicName

N = "namespaces/public/default"
PREFIX = "Invalid configuration for autoTopicCreationOverride. the detail is "


async def test_auto_topic_creation_holds_at_once_and_can_be_taken_back(http, broker):
    off = {"allowAutoTopicCreation": False}
    assert await http("POST", f"{N}/autoTopicCreation", off) == (204, None)
    assert await http("GET", f"{N}/autoTopicCreation") == (200, off)
    with pytest.raises(TopicNotFound):
        await broker.service.get_or_load_topic(TopicName.parse("a"), create=True)
    assert await http("PUT", "persistent/public/default/by-admin") == (204, None)
    assert await http("DELETE", f"{N}/autoTopicCreation") == (204, None)
    await broker.service.get_or_load_topic(TopicName.parse("a"), create=True)


@pytest.mark.parametrize(
    ("override", "detail"),
    [
        (
            {"topicType": "partitioned"},
            "[defaultNumPartitions] cannot be null when the type is partitioned.",
        ),
        (
            {"topicType": "partitioned", "defaultNumPartitions": 0},
            "[defaultNumPartitions] cannot be less than 1 for partition type.",
        ),
        (
            {"topicType": "non-partitioned", "defaultNumPartitions": 1},
            "[defaultNumPartitions] is not allowed to be set when the type is non-partition.",
        ),
    ],
)
async def test_texts_of_invalid_overrides(http, override, detail):
    body = {"allowAutoTopicCreation": True, **override}
    assert await http("POST", f"{N}/autoTopicCreation", body) == (412, f"{PREFIX}{detail}")


async def test_texts_of_missing_namespaces_and_negative_limits(http):
    body = {"allowAutoTopicCreation": False}
    missing = (404, "Namespace does not exist")
    assert await http("POST", "namespaces/public/no/autoTopicCreation", body) == missing
    missing = (404, "Tenant does not exist")
    assert await http("PUT", "namespaces/no/no/schemaCompatibilityStrategy", "FULL") == missing
    refused = (412, "maxTopicsPerNamespace must be 0 or more")
    assert await http("POST", f"{N}/maxTopicsPerNamespace", -1) == refused


async def test_schema_strategy_decides_the_next_registration(http):
    assert await http("GET", f"{N}/schemaCompatibilityStrategy") == (200, "UNDEFINED")
    path = "schemas/public/default/a/schema"
    for kind, status in (("INT32", 200), ("STRING", 409)):
        body = {"type": kind, "schema": "", "properties": {}}
        assert (await http("POST", path, body))[0] == status
    strategy = "ALWAYS_COMPATIBLE"
    assert await http("PUT", f"{N}/schemaCompatibilityStrategy", strategy) == (204, None)
    assert await http("GET", f"{N}/schemaCompatibilityStrategy") == (200, strategy)
    assert (await http("POST", path, {"type": "STRING", "schema": "", "properties": {}}))[0] == 200


async def test_unset_policies_are_empty(http):
    assert await http("GET", f"{N}/maxProducersPerTopic") == (200, None)
    assert await http("POST", f"{N}/maxProducersPerTopic", 2) == (204, None)
    assert await http("GET", f"{N}/maxProducersPerTopic") == (200, 2)
    assert await http("DELETE", f"{N}/maxProducersPerTopic") == (204, None)
    assert await http("GET", f"{N}/maxProducersPerTopic") == (200, None)


async def test_deduplication_takes_effect_on_a_live_topic(http):
    await http("PUT", "persistent/public/default/a")
    stats = "persistent/public/default/a/stats"
    assert (await http("GET", stats))[1]["deduplicationStatus"] == "Disabled"
    assert await http("POST", f"{N}/deduplication", True) == (204, None)
    assert (await http("GET", stats))[1]["deduplicationStatus"] == "Enabled"
    assert await http("POST", f"{N}/deduplication", False) == (204, None)
    assert (await http("GET", stats))[1]["deduplicationStatus"] == "Disabled"


async def test_dynamic_configuration_holds_at_once(http, broker):
    key = "brokers/configuration/allowAutoTopicCreation"
    await http("POST", f"{key}/false")
    with pytest.raises(TopicNotFound):
        await broker.service.get_or_load_topic(TopicName.parse("a"), create=True)
    _, runtime = await http("GET", "brokers/configuration/runtime")
    assert runtime["allowAutoTopicCreation"] == "false"
    await http("POST", f"{key}/nonsense")
    await broker.service.get_or_load_topic(TopicName.parse("a"), create=True)
    await http("DELETE", key)
    assert broker.admin.config == broker.admin.file_config


async def test_limits_of_tenants_namespaces_and_partitions_are_dynamic(http):
    async def set_key(key, value):
        await http("POST", f"brokers/configuration/{key}/{value}")

    await set_key("maxNumPartitionsPerPartitionedTopic", 2)
    await http("PUT", "namespaces/public/n0")
    assert (await http("PUT", "persistent/public/n0/t/partitions", 3))[0] == 406
    await set_key("maxNamespacesPerTenant", 1)
    assert (await http("PUT", "namespaces/public/n1"))[0] == 412
    await set_key("maxTenants", 2)
    info = {"allowedClusters": ["standalone"]}
    assert await http("PUT", "tenants/t", info) == (412, "Exceed the maximum number of tenants")
    await http("DELETE", "brokers/configuration/maxTenants")
    assert (await http("PUT", "tenants/t", info))[0] == 204


async def test_migration_to_another_cluster_is_refused_with_a_reason(http):
    assert await http("GET", "clusters/standalone/migrate") == (404, "Cluster does not exist")
    url = {"serviceUrl": "http://h:8080", "brokerServiceUrl": "pulsar://h:6650"}
    status, reason = await http("POST", "clusters/standalone/migrate?migrated=true", url)
    assert (status, "does not migrate clients" in reason) == (501, True)
    assert (await http("POST", f"{N}/migration", True))[0] == 501
    assert await http("POST", f"{N}/migration", False) == (204, None)


async def test_namespaces_with_policies_that_are_wrong_or_have_no_effect_are_not_made(http):
    status, reason = await http("PUT", "namespaces/public/n1", {"migrated": True})
    assert (status, "migrated" in reason) == (501, True)
    wrong = {"retentionTimeInMinutes": -7, "retentionSizeInMB": -7}
    told = (400, "Invalid retention policy: size limit must be >= -1")
    assert await http("PUT", "namespaces/public/n1", {"retention_policies": wrong}) == told
    assert await http("POST", f"{N}/retention", wrong) == told
    foreign = {"replication_clusters": ["elsewhere"]}
    assert (await http("PUT", "namespaces/public/n1", foreign))[0] == 403
    assert (await http("GET", "namespaces/public/n1"))[0] == 404


async def test_a_body_of_null_sets_nothing(http):
    assert await http("POST", f"{N}/retention", {}) == (204, None)
    assert await http("POST", f"{N}/retention") == (204, None)
    assert await http("GET", f"{N}/retention") == (200, None)
    empty = (400, "The request entity cannot be empty.")
    assert await http("POST", f"{N}/deduplication") == empty
    assert await http("POST", f"{N}/maxProducersPerTopic") == empty


def copies(ensemble, write, ack, rate=0.0):
    return {
        "bookkeeperEnsemble": ensemble,
        "bookkeeperWriteQuorum": write,
        "bookkeeperAckQuorum": ack,
        "managedLedgerMaxMarkDeleteRate": rate,
    }


async def test_persistence_is_set_shown_and_taken_back(http, broker):
    await http("PUT", "persistent/public/default/a")
    topic = await broker.service.get_or_load_topic(TopicName.parse("a"), create=False)
    before = topic.ledger.cursor_flush_interval_s
    assert await http("GET", f"{N}/persistence") == (200, None)
    assert await http("POST", f"{N}/persistence", copies(1, 1, 1, 4.0)) == (204, None)
    assert await http("GET", f"{N}/persistence") == (200, copies(1, 1, 1, 4.0))
    assert topic.ledger.cursor_flush_interval_s == 0.25
    assert await http("DELETE", f"{N}/persistence") == (204, None)
    assert await http("GET", f"{N}/persistence") == (200, None)
    assert topic.ledger.cursor_flush_interval_s == before
    missing = (404, "Namespace does not exist")
    assert await http("POST", "namespaces/public/no/persistence", copies(1, 1, 1)) == missing
    null = (400, "persistence policies should not be null")
    assert await http("POST", f"{N}/persistence") == null


async def test_more_copies_than_the_one_bookie_of_the_broker_are_refused_by_name(http):
    for method, path, body in (
        ("POST", f"{N}/persistence", copies(3, 2, 2)),
        ("POST", f"{N}/persistence", {}),
        ("PUT", "namespaces/public/n1", {"persistence": copies(2, 2, 2)}),
    ):
        status, reason = await http(method, path, body)
        assert (status, "Bookkeeper-Ensemble must be 1" in reason) == (400, True)
    assert (await http("GET", "namespaces/public/n1"))[0] == 404
    assert await http("PUT", "namespaces/public/n1", {"persistence": copies(1, 1, 1)}) == (
        204,
        None,
    )
    assert await http("GET", "namespaces/public/n1/persistence") == (200, copies(1, 1, 1))


async def test_shadow_topics_are_refused(http):
    shadow = {"PULSAR.SHADOW_SOURCE": "persistent://public/default/a"}
    status, reason = await http("PUT", "persistent/public/default/s", shadow)
    assert (status, "shadow" in reason) == (501, True)
    body = {"partitions": 2, "properties": shadow}
    assert (await http("PUT", "persistent/public/default/s/partitions", body))[0] == 501
    assert (await http("GET", "persistent/public/default/s/stats"))[0] == 404


@pytest.mark.parametrize("configured", [True, False])
@pytest.mark.parametrize("lacking", [{}, {"is_allow_auto_update_schema": None}])
async def test_a_record_of_pulsar_that_leaves_schema_updates_to_the_broker(
    http, broker, configured, lacking
):
    path, field = f"{N}/isAllowAutoUpdateSchema", "is_allow_auto_update_schema"
    await broker.service.namespaces.use(
        dataclasses.replace(broker.admin.config, isAllowAutoUpdateSchemaEnabled=configured)
    )
    fields = {**(await http("GET", N))[1]}
    del fields[field]
    record = json.dumps({**fields, **lacking}).encode()
    await broker.admin.store.another_session().put(policies_path("public/default"), record, None)
    assert await http("GET", path) == (200, configured)
    assert (await http("GET", N))[1] == {**fields, field: configured}
    assert await http("POST", path, not configured) == (204, None)
    assert await http("GET", path) == (200, not configured)
    assert await http("DELETE", path) == (204, None)
    assert await http("GET", path) == (200, configured)


async def test_a_new_namespace_takes_schema_updates_as_configured(http, broker):
    await broker.service.namespaces.use(
        dataclasses.replace(broker.admin.config, isAllowAutoUpdateSchemaEnabled=False)
    )
    assert await http("PUT", "namespaces/public/n1") == (204, None)
    assert await http("GET", "namespaces/public/n1/isAllowAutoUpdateSchema") == (200, False)
    assert await http("PUT", "namespaces/public/n2", {"is_allow_auto_update_schema": True}) == (
        204,
        None,
    )
    assert await http("GET", "namespaces/public/n2/isAllowAutoUpdateSchema") == (200, True)


@pytest.mark.parametrize(
    ("method", "policy", "value"),
    [
        ("PUT", "schemaCompatibilityStrategy", "BAD"),
        ("POST", "subscriptionAuthMode", "BAD"),
        ("POST", "inactiveTopicPolicies", {"inactiveTopicDeleteMode": "BAD"}),
    ],
)
async def test_a_name_that_a_policy_does_not_know_is_refused_with_those_it_knows(
    http, method, policy, value
):
    status, reason = await http(method, f"{N}/{policy}", value)
    assert status == 400
    assert "must be one of" in reason
