"""Policies of single topics: statuses and texts as of Pulsar 4.0.8, and when they are in force."""

from __future__ import annotations

import pytest

from broker.assembly.app import running_broker
from broker.http.tests.conftest import CONFIG
from broker.http.tests.test_policies import copies
from broker.topics.topic.producer import NO_LIMITS
from protocol.topic_name import TopicName

N = "persistent/public/default"


async def with_policies(broker):
    namespace = await broker.service.namespaces.get("public/default")
    return sorted(local_name for _domain, local_name in namespace.topic_level.map.fields)


async def topic_of(broker, name):
    return await broker.service.get_or_load_topic(TopicName.parse(name), create=False)


async def test_persistence_of_a_topic_is_set_shown_and_taken_back(http, broker):
    await http("PUT", f"{N}/a")
    await http("PUT", f"{N}/b")
    topic, other = await topic_of(broker, "a"), await topic_of(broker, "b")
    before = topic.ledger.policies
    assert await http("GET", f"{N}/a/persistence") == (200, None)
    assert await http("GET", f"{N}/a/persistence?applied=true") == (200, copies(1, 1, 1, 1.0))
    assert await http("POST", f"{N}/a/persistence", copies(1, 1, 1, 4.0)) == (204, None)
    for query in ("", "?applied=true"):
        assert await http("GET", f"{N}/a/persistence{query}") == (200, copies(1, 1, 1, 4.0))
    assert (topic.ledger.policies.mark_delete_rate_max, other.ledger.policies) == (4.0, before)
    assert await http("POST", "namespaces/public/default/persistence", copies(1, 1, 1, 9.0)) == (
        204,
        None,
    )
    assert topic.ledger.policies.mark_delete_rate_max == 4.0
    for _again in range(2):
        assert await http("DELETE", f"{N}/a/persistence") == (204, None)
    assert await http("GET", f"{N}/a/persistence") == (200, None)
    assert await http("GET", f"{N}/a/persistence?applied=true") == (200, copies(1, 1, 1, 9.0))
    assert topic.ledger.policies.mark_delete_rate_max == 9.0


async def test_persistence_of_a_partitioned_topic_holds_for_its_partitions(http, broker):
    await http("PUT", f"{N}/parts/partitions", 2)
    early = await topic_of(broker, "parts-partition-0")
    assert await http("POST", f"{N}/parts/persistence", copies(1, 1, 1, 4.0)) == (204, None)
    late = await topic_of(broker, "parts-partition-1")
    assert [each.ledger.policies.mark_delete_rate_max for each in (early, late)] == [4.0, 4.0]
    refused = (412, "Not allowed to set/get topic policy for a partition")
    for method in ("GET", "POST", "DELETE"):
        assert await http(method, f"{N}/parts-partition-0/persistence", {}) == refused


@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
async def test_policies_of_what_is_not_there(http, method):
    for path, status, reason in (
        (f"{N}/no", 404, "Topic persistent://public/default/no not found"),
        ("persistent/public/no/t", 404, "Namespace not found"),
        ("persistent/no/no/t", 404, "Namespace not found"),
        ("non-persistent/public/default/no", 404, None),
    ):
        told = await http(method, f"{path}/persistence", {})
        assert told == (status, reason or "Topic non-persistent://public/default/no not found")


async def test_wrong_persistence_is_refused_as_for_a_namespace(http):
    await http("PUT", f"{N}/a")
    for body, reason in (
        (None, "persistence policies should not be null"),
        (copies(0, 1, 1), "Bookkeeper-Ensemble must be <= 5 and > 0."),
        (copies(1, 2, 1), "Bookkeeper Ensemble (1) >= WriteQuorum (2) >= AckQuorum (1)"),
    ):
        assert await http("POST", f"{N}/a/persistence", body) == (400, reason)
    status, reason = await http("POST", f"{N}/a/persistence", copies(2, 2, 2))
    assert (status, "Bookkeeper-Ensemble must be 1" in reason) == (400, True)
    assert await http("GET", f"{N}/a/persistence") == (200, None)


async def test_what_is_not_stored_has_no_persistence(http, broker):
    await http("PUT", "non-persistent/public/default/m")
    path = "non-persistent/public/default/m/persistence"
    assert await http("GET", path) == (200, None)
    assert await http("GET", f"{path}?applied=true") == (200, copies(1, 1, 1, 1.0))
    assert (await http("POST", path, copies(1, 1, 1)))[0] == 405
    assert await http("DELETE", path) == (204, None)


async def test_policies_are_removed_with_their_topic(http, broker):
    await http("PUT", f"{N}/a")
    await http("PUT", f"{N}/parts/partitions", 2)
    for name in ("a", "parts"):
        assert await http("POST", f"{N}/{name}/persistence", copies(1, 1, 1, 4.0)) == (204, None)
    assert await with_policies(broker) == ["a", "parts"]
    await http("DELETE", f"{N}/a")
    await http("DELETE", f"{N}/parts-partition-0")
    assert await with_policies(broker) == ["parts"]
    await http("DELETE", f"{N}/parts/partitions")
    assert await with_policies(broker) == []
    await http("PUT", f"{N}/a")
    assert await http("GET", f"{N}/a/persistence") == (200, None)


async def test_policies_are_removed_with_a_topic_that_nobody_uses(http, broker):
    await http("PUT", f"{N}/a")
    await http("POST", f"{N}/a/persistence", copies(1, 1, 1, 4.0))
    await broker.service.collect_idle(await topic_of(broker, "a"))
    assert await with_policies(broker) == []


async def test_policies_of_a_topic_survive_a_restart(tmp_path):
    name = TopicName.parse("a")
    async with running_broker(CONFIG, tmp_path) as broker:
        await broker.service.get_or_load_topic(name, create=True)
        given = copies(1, 1, 1, 4.0)
        await broker.service.namespaces.set_topic_policy(name, "persistence", given)
    async with running_broker(CONFIG, tmp_path) as broker:
        topic = await broker.service.get_or_load_topic(name, create=False)
        assert topic.ledger.policies.mark_delete_rate_max == 4.0


RATE = {"publishThrottlingRateInMsg": 7, "publishThrottlingRateInByte": -1}


async def test_a_publish_rate_is_set_for_a_namespace_and_for_a_topic(http, broker):
    await http("PUT", f"{N}/a")
    topic = await topic_of(broker, "a")
    for path, unset in (("namespaces/public/default", 200), (f"{N}/a", 204)):
        assert await http("GET", f"{path}/publishRate") == (unset, None)
        given = {"publishThrottlingRateInMsg": "7", "other": 1}
        assert await http("POST", f"{path}/publishRate", given) == (204, None)
        assert await http("GET", f"{path}/publishRate") == (200, RATE)
        assert topic.policies.effective.rates.publish.messages_per_second == 7
        assert len(topic.publish_limits.in_force.rates) == 1
        assert (await http("POST", f"{path}/publishRate", 5))[0] == 400
        assert await http("DELETE", f"{path}/publishRate") == (204, None)
        assert await http("GET", f"{path}/publishRate") == (unset, None)
        assert topic.publish_limits.in_force is NO_LIMITS
    record = await http("GET", "namespaces/public/default")
    assert record[1]["publishMaxMessageRate"] == {}


async def test_no_rate_given_removes_it_from_a_namespace_and_changes_nothing_of_a_topic(http):
    await http("PUT", f"{N}/a")
    for path, kept in (("namespaces/public/default", None), (f"{N}/a", RATE)):
        for body in (..., None):
            await http("POST", f"{path}/publishRate", RATE)
            assert await http("POST", f"{path}/publishRate", body) == (204, None)
            assert (await http("GET", f"{path}/publishRate"))[1] == kept


@pytest.mark.parametrize("policy", ["maxProducers", "maxConsumers", "maxSubscriptionsPerTopic"])
async def test_limits_of_a_topic(http, policy):
    await http("PUT", f"{N}/a")
    path = f"{N}/a/{policy}"
    unset = 204 if policy == "maxSubscriptionsPerTopic" else 200
    assert await http("GET", path) == (unset, None)
    for given, kept in ((5, 5), (0, 0), ("3", 3), (1.5, 1)):
        assert await http("POST", path, given) == (204, None)
        assert await http("GET", path) == (200, kept)
    assert await http("POST", path, -1) == (412, f"{policy} must be 0 or more")
    assert await http("POST", path) == (400, "The request entity cannot be empty.")
    assert (await http("POST", path, True))[0] == 400
    assert await http("DELETE", path) == (204, None)
    assert await http("GET", path) == (unset, None)
    shown = (204, None) if unset == 204 else (200, 0)
    assert await http("GET", f"{path}?applied=true") == shown


async def test_limits_of_a_topic_come_before_those_of_its_namespace(http, broker):
    await http("PUT", f"{N}/a")
    await http("POST", "namespaces/public/default/maxProducersPerTopic", 2)
    assert await http("GET", f"{N}/a/maxProducers?applied=true") == (200, 2)
    await http("POST", f"{N}/a/maxProducers", 4)
    assert (await topic_of(broker, "a")).policies.effective.counts.producers_max == 4
    assert await http("GET", f"{N}/a/maxProducers?applied=true") == (200, 4)
