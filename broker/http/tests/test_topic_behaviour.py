"""Policies of topics about what they keep and do: statuses, texts and JSON of Pulsar 4.0.8."""

from __future__ import annotations

import pytest

N = "persistent/public/default"
NS = "namespaces/public/default"

IDLE = {
    "inactiveTopicDeleteMode": "delete_when_subscriptions_caught_up",
    "maxInactiveDurationSeconds": 10,
    "deleteWhileInactive": False,
}
IDLE_OF_BROKER = {
    "inactiveTopicDeleteMode": "delete_when_no_subscriptions",
    "maxInactiveDurationSeconds": 60,
    "deleteWhileInactive": True,
}
DELAYED = {"tickTime": 2000, "active": False, "maxDeliveryDelayInMillis": 5}
DELAYED_OF_BROKER = {"tickTime": 1000, "active": True, "maxDeliveryDelayInMillis": 0}
RETENTION = {"retentionTimeInMinutes": 3, "retentionSizeInMB": 20480}
FOREVER = {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}
NO_RETENTION = {"retentionTimeInMinutes": 0, "retentionSizeInMB": 0}
SUBSCRIPTIONS = {"allowAutoSubscriptionCreation": False}
AUTO = {"allowAutoSubscriptionCreation": True}

TOPICS = [
    # path, method, body, what is in force without it
    ("autoSubscriptionCreation", "POST", SUBSCRIPTIONS, AUTO),
    ("compactionThreshold", "POST", 3_000_000_000, 0),
    ("deduplicationEnabled", "POST", True, False),
    ("deduplicationSnapshotInterval", "POST", 5, None),
    ("delayedDelivery", "POST", DELAYED, DELAYED_OF_BROKER),
    ("dispatcherPauseOnAckStatePersistent", "POST", True, False),
    ("inactiveTopicPolicies", "POST", IDLE, IDLE_OF_BROKER),
    ("replication", "POST", ["standalone"], ["standalone"]),
    ("retention", "POST", RETENTION, NO_RETENTION),
    ("schemaCompatibilityStrategy", "PUT", "BACKWARD", "FULL"),
]


@pytest.mark.parametrize(("path", "method", "body", "of_broker"), TOPICS)
async def test_a_policy_of_a_topic_is_set_shown_and_taken_back(http, path, method, body, of_broker):
    await http("PUT", f"{N}/t")
    unset = False if path.startswith("dispatcherPause") else None
    url = f"{N}/t/{path}"
    assert await http("GET", url) == (200, unset)
    assert await http("GET", f"{url}?applied=true") == (200, of_broker)
    assert await http(method, url, body) == (204, None)
    assert await http("GET", url) == (200, body)
    assert await http("GET", f"{url}?applied=true") == (200, body)
    assert await http("DELETE", url) == (204, None)
    assert await http("GET", url) == (200, unset)
    assert await http("GET", f"{url}?applied=true") == (200, of_broker)


@pytest.mark.parametrize(("path", "method", "body", "of_broker"), TOPICS)
async def test_a_policy_of_all_clusters_is_in_force_and_not_shown_as_one_of_this(
    http, path, method, body, of_broker
):
    if path == "replication":
        return
    await http("PUT", f"{N}/t")
    url = f"{N}/t/{path}"
    for_all = f"{url}?isGlobal=true"
    unset = False if path.startswith("dispatcherPause") else None
    assert await http("GET", f"{for_all}&applied=true") == (200, of_broker)
    assert await http(method, for_all, body) == (204, None)
    assert await http("GET", for_all) == (200, body)
    assert await http("GET", f"{for_all}&applied=true") == (200, body)
    assert await http("GET", url) == (200, unset)
    assert await http("GET", f"{url}?applied=true") == (200, of_broker)
    assert await http("DELETE", for_all) == (204, None)
    assert await http("GET", for_all) == (200, unset)


async def test_replication_of_topics_cannot_be_set_for_all_clusters(http):
    await http("PUT", f"{N}/t")
    status, reason = await http("POST", f"{N}/t/replication?isGlobal=true", ["standalone"])
    assert status == 412
    assert "namespace-level replication is not enabled" in reason
    assert await http("GET", f"{N}/t/replication?isGlobal=true") == (200, None)


NAMESPACES = [
    # path, method, body, answer when it is not set, whether DELETE takes it back
    ("compactionThreshold", "PUT", 3_000_000_000, None, True),
    ("deduplicationSnapshotInterval", "POST", 5, None, False),
    ("delayedDelivery", "POST", DELAYED, None, True),
    ("dispatcherPauseOnAckStatePersistent", "POST", True, False, True),
    ("inactiveTopicPolicies", "POST", IDLE, None, True),
    ("schemaAutoUpdateCompatibilityStrategy", "PUT", "Full", None, False),
]


@pytest.mark.parametrize(("path", "method", "body", "unset", "removable"), NAMESPACES)
async def test_a_policy_of_a_namespace_is_set_shown_and_taken_back(
    http, path, method, body, unset, removable
):
    url = f"{NS}/{path}"
    nothing = (204 if path == "schemaAutoUpdateCompatibilityStrategy" else 200, unset)
    assert await http("GET", url) == nothing
    assert await http(method, url, body) == (204, None)
    assert await http("GET", url) == (200, body)
    await (http("DELETE", url) if removable else http(method, url))
    assert await http("GET", url) == nothing


async def test_the_topic_overrides_its_namespace(http):
    await http("PUT", f"{N}/t")
    await http("POST", f"{NS}/inactiveTopicPolicies", IDLE)
    await http("POST", f"{NS}/delayedDelivery", DELAYED)
    assert await http("GET", f"{N}/t/inactiveTopicPolicies?applied=true") == (200, IDLE)
    assert await http("GET", f"{N}/t/delayedDelivery?applied=true") == (200, DELAYED)
    await http("POST", f"{N}/t/inactiveTopicPolicies", IDLE_OF_BROKER)
    assert await http("GET", f"{N}/t/inactiveTopicPolicies?applied=true") == (200, IDLE_OF_BROKER)


async def test_what_a_body_leaves_out_is_nothing(http):
    await http("PUT", f"{N}/t")
    for path, kept in (
        ("inactiveTopicPolicies", {"maxInactiveDurationSeconds": 0, "deleteWhileInactive": False}),
        ("delayedDelivery", {"tickTime": 0, "active": False, "maxDeliveryDelayInMillis": 0}),
        ("autoSubscriptionCreation", SUBSCRIPTIONS),
    ):
        for base in (NS, f"{N}/t"):
            assert await http("POST", f"{base}/{path}", {}) == (204, None)
            assert await http("GET", f"{base}/{path}") == (200, kept)
            assert await http("POST", f"{base}/{path}") == (204, None)
            assert await http("GET", f"{base}/{path}") == (200, None)


WRONG = [
    ("POST", f"{NS}/deduplicationSnapshotInterval", -1, 412, "interval must be greater than"),
    ("POST", f"{N}/t/deduplicationSnapshotInterval", -1, 412, "interval must be 0 or more"),
    ("PUT", f"{NS}/compactionThreshold", -1, 412, "compactionThreshold must be 0 or more"),
    ("POST", f"{N}/t/compactionThreshold", -1, 412, "Invalid value for compactionThreshold"),
    ("POST", f"{NS}/delayedDelivery", {"active": "x"}, 400, "active must be true or false"),
    ("POST", f"{NS}/inactiveTopicPolicies", {"inactiveTopicDeleteMode": "x"}, 400, "one of"),
    ("POST", f"{NS}/inactiveTopicPolicies", 5, 400, "must be a JSON object"),
    ("POST", f"{NS}/entryFilters", {"entryFilterNames": "a,b"}, 400, "Entry filter 'a' not found"),
    ("POST", f"{N}/t/entryFilters", {}, 400, "entryFilterNames can't be empty."),
    ("POST", f"{N}/t/replication", [], 412, "ClusterIds should not be null or empty"),
    ("POST", f"{N}/t/replication", ["other"], 412, "Can not remove local cluster"),
    ("POST", f"{N}/t/replication", ["standalone", "other"], 403, "Invalid cluster id: other"),
    ("PUT", f"{NS}/offloadThreshold", 5, 501, "does not offload"),
    ("PUT", f"{NS}/offloadThresholdInSeconds", 5, 501, "does not offload"),
    ("PUT", f"{NS}/offloadDeletionLagMs", 5, 501, "does not offload"),
    ("POST", f"{NS}/offloadPolicies", {"managedLedgerOffloadDriver": "tape"}, 412, "not supported"),
    ("POST", f"{NS}/offloadPolicies", {"managedLedgerOffloadDriver": "S3"}, 501, "does not"),
    ("POST", f"{N}/t/offloadPolicies", {"managedLedgerOffloadDriver": "S3"}, 501, "does not"),
]


@pytest.mark.parametrize(("method", "path", "body", "status", "reason"), WRONG)
async def test_wrong_values_are_refused(http, method, path, body, status, reason):
    await http("PUT", f"{N}/t")
    told = await http(method, path, body)
    assert (told[0], reason in told[1]) == (status, True), told


async def test_what_offloads_nothing_is_taken(http):
    assert await http("GET", f"{NS}/offloadThreshold") == (200, -1)
    assert await http("PUT", f"{NS}/offloadThreshold", -1) == (204, None)
    assert await http("PUT", f"{NS}/offloadThresholdInSeconds", -7) == (200, None)
    assert await http("DELETE", f"{NS}/offloadDeletionLagMs") == (204, None)
    assert await http("DELETE", f"{NS}/removeOffloadPolicies") == (204, None)


async def test_schemas_are_validated_as_the_topic_says(http):
    await http("PUT", f"{N}/t")
    url = f"{N}/t/schemaValidationEnforced"
    await http("POST", f"{NS}/schemaValidationEnforced", True)
    assert await http("GET", url) == (200, False)
    assert await http("GET", f"{url}?applied=true") == (200, True)
    assert await http("POST", url, False) == (204, None)
    assert await http("GET", f"{url}?applied=true") == (200, False)


async def test_an_undefined_strategy_of_a_topic_is_none(http):
    await http("PUT", f"{N}/t")
    url = f"{N}/t/schemaCompatibilityStrategy"
    await http("PUT", url, "BACKWARD")
    assert await http("PUT", url, "UNDEFINED") == (204, None)
    assert await http("GET", url) == (200, None)


async def test_retention_of_a_topic_keeps_more_than_its_quota_takes(http):
    await http("PUT", f"{N}/t")
    quota = {"limitSize": 10 << 20, "policy": "producer_exception"}
    assert await http("POST", f"{NS}/backlogQuota", quota) == (204, None)
    status, reason = await http("POST", f"{N}/t/retention", {**RETENTION, "retentionSizeInMB": 10})
    assert (status, reason.partition(".")[0]) == (
        412,
        "Retention Quota must exceed configured backlog quota for topic",
    )
    assert await http("POST", f"{N}/t/retention", RETENTION) == (204, None)
    quota["limitSize"] = 1 << 40
    assert (await http("POST", f"{N}/t/backlogQuota", quota))[0] == 412
