"""Backlog quotas, time to live and expiration of subscriptions: statuses and texts of Pulsar 4.0.8,
and whether they are in force at once."""

from __future__ import annotations

from broker.assembly.app import running_broker
from broker.http.tests.conftest import CONFIG
from broker.tenancy.policies.backlog_quotas import EVICT, EXCEPTION, HOLD, SIZE
from protocol.topic_name import TopicName

N = "namespaces/public/default"
T = "persistent/public/default/t"
NO_LIMIT = {"limit": -1, "limitSize": -1, "limitTime": -1, "policy": HOLD}


def quota(size=0, seconds=0, policy=EXCEPTION):
    return {"limit": size, "limitSize": size, "limitTime": seconds, "policy": policy}


def retention(minutes, megabytes):
    return {"retentionTimeInMinutes": minutes, "retentionSizeInMB": megabytes}


async def topic_of(broker):
    return await broker.service.get_or_load_topic(TopicName.parse("t"), create=True)


async def test_quotas_of_a_namespace_are_kept_by_type(http):
    assert await http("GET", f"{N}/backlogQuotaMap") == (200, {})
    assert await http("POST", f"{N}/backlogQuota", {"limit": "5", "policy": HOLD}) == (204, None)
    age = "backlogQuotaType=message_age"
    assert await http("POST", f"{N}/backlogQuota?{age}", quota(0, 7)) == (204, None)
    both = {"destination_storage": quota(5, 0, HOLD), "message_age": quota(0, 7)}
    assert await http("GET", f"{N}/backlogQuotaMap") == (200, both)
    assert (await http("GET", N))[1]["backlog_quota_map"] == both
    for _again in range(2):
        assert await http("DELETE", f"{N}/backlogQuota") == (204, None)
    assert await http("GET", f"{N}/backlogQuotaMap") == (200, {"message_age": quota(0, 7)})
    unknown = "backlogQuota?backlogQuotaType=other"
    assert (await http("POST", f"{N}/{unknown}", quota(5)))[0] == 404
    assert (await http("POST", f"{N}/backlogQuota"))[0] == 400
    refused = (
        400,
        "Set namespace[public/default] backlog quota failed because the data validation failed. "
        "the attribute policy cannot be null",
    )
    assert await http("POST", f"{N}/backlogQuota", {"limitSize": 5}) == refused
    assert await http("POST", "namespaces/public/no/backlogQuota", quota(5)) == (404, "")


async def test_the_nearest_quota_is_applied(http, broker):
    topic = await topic_of(broker)
    applied = f"{T}/backlogQuotaMap?applied=true"
    both = {"destination_storage": NO_LIMIT, "message_age": NO_LIMIT}
    assert await http("GET", applied) == (200, both)
    await http("POST", f"{N}/backlogQuota", quota(77))
    assert await http("GET", applied) == (200, {SIZE: quota(77)})
    assert topic.backlog.quotas.size.limit_bytes == 77
    age = "backlogQuotaType=message_age"
    assert await http("POST", f"{T}/backlogQuota?{age}", quota(0, 5)) == (204, None)
    assert await http("GET", applied) == (200, {"message_age": quota(0, 5)})
    quotas = topic.backlog.quotas
    assert (quotas.size.limit_bytes, quotas.age.limit_seconds) == (77, 5)
    stats = (await http("GET", f"{T}/stats"))[1]
    assert (stats["backlogQuotaLimitSize"], stats["backlogQuotaLimitTime"]) == (77, 5)
    assert await http("POST", f"{T}/backlogQuota?{age}") == (204, None)  # removes it, as in Pulsar
    assert await http("GET", f"{T}/backlogQuotaMap") == (200, {})
    assert topic.backlog.quotas.age.limit_seconds == -1


async def test_retention_must_exceed_the_quota(http, broker):
    await topic_of(broker)
    assert await http("POST", f"{N}/backlogQuota", quota(2 * 2**20, 120)) == (204, None)
    refused = (412, "Retention Quota must exceed configured backlog quota for namespace.")
    assert await http("POST", f"{N}/retention", retention(3, 1)) == refused
    assert await http("POST", f"{N}/retention", retention(2, 3)) == refused
    assert await http("POST", f"{N}/retention", retention(3, 3)) == (204, None)
    for level, at in (("namespace", N), ("topic", T)):
        refused = (
            412,
            f"Backlog Quota exceeds configured retention quota for {level}. Please increase "
            "retention quota and retry",
        )
        assert await http("POST", f"{at}/backlogQuota", quota(3 * 2**20)) == refused
        assert await http("POST", f"{at}/backlogQuota", quota(3 * 2**20 - 1)) == (204, None)
        assert await http("DELETE", f"{at}/backlogQuota") == (204, None)


async def test_retention_of_a_topic_must_exceed_both_quotas(http, broker):
    await topic_of(broker)
    await http("POST", f"{N}/backlogQuota", quota(2**20, 60))
    await http("POST", f"{T}/backlogQuota?backlogQuotaType=message_age", quota(2**21, 120))
    refused = (
        412,
        "Retention Quota must exceed configured backlog quota for topic. Please increase retention "
        "quota and retry",
    )
    assert await http("POST", f"{T}/retention", retention(1, 9)) == refused
    assert await http("POST", f"{T}/retention", retention(9, 2)) == refused
    assert await http("POST", f"{T}/retention", retention(3, 3)) == (204, None)


async def test_a_new_namespace_may_have_quotas(http):
    made = {
        "backlog_quota_map": {"destination_storage": {"limitSize": 5, "policy": EVICT}},
        "message_ttl_in_seconds": 7,
        "subscription_expiration_time_minutes": 3,
    }
    assert await http("PUT", f"{N}-new", made) == (204, None)
    kept = (await http("GET", f"{N}-new"))[1]
    assert kept["backlog_quota_map"] == {"destination_storage": quota(5, 0, EVICT)}
    assert kept["message_ttl_in_seconds"] == 7
    assert kept["subscription_expiration_time_minutes"] == 3
    without = {"backlog_quota_map": {"destination_storage": {"limitSize": 5}}}
    assert (await http("PUT", f"{N}-other", without))[0] == 400


async def test_time_to_live_of_namespaces_and_topics(http, broker):
    topic = await topic_of(broker)
    assert await http("GET", f"{N}/messageTTL") == (200, None)
    assert await http("GET", f"{T}/messageTTL?applied=true") == (200, 0)
    refused = (412, "Invalid value for message TTL, message TTL must >= 0")
    assert await http("POST", f"{N}/messageTTL", -1) == refused
    assert await http("POST", f"{N}/messageTTL", 9) == (204, None)
    assert await http("GET", f"{T}/messageTTL?applied=true") == (200, 9)
    assert await http("POST", f"{T}/messageTTL?messageTTL=-1") == (
        412,
        "Invalid value for message TTL",
    )
    assert (await http("POST", f"{T}/messageTTL?messageTTL=x"))[0] == 404
    assert await http("POST", f"{T}/messageTTL?messageTTL=5") == (204, None)
    assert await http("GET", f"{T}/messageTTL") == (200, 5)
    assert topic.policies.effective.message_ttl_seconds == 5
    assert await http("POST", f"{T}/messageTTL?messageTTL=0") == (204, None)
    assert topic.policies.effective.message_ttl_seconds == 0, "none, whatever the namespace says"
    assert await http("POST", f"{T}/messageTTL?messageTTL=") == (204, None)
    assert await http("GET", f"{T}/messageTTL") == (200, None)
    assert topic.policies.effective.message_ttl_seconds == 9


async def test_expiration_of_subscriptions_of_a_namespace(http, broker):
    topic = await topic_of(broker)
    path = f"{N}/subscriptionExpirationTime"
    assert await http("GET", path) == (200, None)
    refused = (412, "Invalid value for subscription expiration time")
    assert await http("POST", path, -1) == refused
    assert await http("POST", path, 5) == (204, None)
    assert topic.policies.effective.subscription_expiration_minutes == 5
    assert await http("DELETE", path) == (204, None)
    assert topic.policies.effective.subscription_expiration_minutes == 0


async def test_quotas_outlive_a_restart(tmp_path):
    async with running_broker(CONFIG, tmp_path) as broker:
        namespaces = broker.service.namespaces
        topic = await topic_of(broker)
        await namespaces.change_policies(
            "public/default", lambda record: record.with_fields(message_ttl_in_seconds=9)
        )
        await namespaces.set_topic_policy(topic.name, "backlog_quota_map", {SIZE: quota(77)})
    async with running_broker(CONFIG, tmp_path) as broker:
        topic = await topic_of(broker)
        assert topic.backlog.quotas.size.limit_bytes == 77
        assert topic.policies.effective.message_ttl_seconds == 9
