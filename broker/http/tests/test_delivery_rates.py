"""Rates of dispatch and of subscribing over REST: statuses and answers as of Pulsar 4.0.8."""

from __future__ import annotations

import pytest

from broker.assembly.app import running_broker
from broker.http.tests.conftest import CONFIG
from protocol.topic_name import TopicName

N = "persistent/public/default"
NAMESPACE = "namespaces/public/default"
UNSET = {
    "dispatchThrottlingRateInMsg": 0,
    "dispatchThrottlingRateInByte": 0,
    "relativeToPublishRate": False,
    "ratePeriodInSecond": 1,
}
NOTHING = {**UNSET, "ratePeriodInSecond": 0}
TEN = {**NOTHING, "dispatchThrottlingRateInMsg": 10}
FULL = {
    "dispatchThrottlingRateInMsg": 10,
    "dispatchThrottlingRateInByte": 20,
    "relativeToPublishRate": True,
    "ratePeriodInSecond": 2,
}


async def topic_of(broker, name="a"):
    return await broker.service.get_or_load_topic(TopicName.parse(name), create=False)


@pytest.mark.parametrize("policy", ["dispatchRate", "subscriptionDispatchRate"])
async def test_dispatch_rates_of_a_namespace_and_of_a_topic(http, broker, policy):
    await http("PUT", f"{N}/a")
    topic, path, applied = await topic_of(broker), f"{N}/a/{policy}", f"{N}/a/{policy}?applied=true"

    def in_force():
        rates = topic.policies.effective.delivery
        return (rates.topic if policy == "dispatchRate" else rates.subscription).messages

    assert await http("GET", applied) == (200, UNSET)
    for each in (f"{NAMESPACE}/{policy}", path):
        assert await http("GET", each) == (200, None)
        assert await http("POST", each, FULL) == (204, None)
        assert await http("GET", each) == (200, FULL)
        given = {"dispatchThrottlingRateInMsg": "10", "relativeToPublishRate": None, "other": 1}
        assert await http("POST", each, given) == (204, None)
        assert (await http("GET", each), in_force()) == ((200, TEN), 10)
        for wrong in (5, "x", {"relativeToPublishRate": "x"}, {"ratePeriodInSecond": 2**31}):
            assert (await http("POST", each, wrong))[0] == 400
        # What limits nothing is kept and shown, but the next level decides.
        assert await http("POST", each, {}) == (204, None)
        assert await http("GET", applied) == (200, NOTHING)
        assert in_force() == 0
        assert await http("DELETE", each) == (204, None)
        assert await http("GET", each) == (200, None)
    await http("POST", f"{NAMESPACE}/{policy}", TEN)
    assert await http("GET", applied) == (200, TEN)
    assert in_force() == 10
    await http("POST", path, FULL)
    assert await http("POST", path) == (204, None)
    assert await http("GET", path) == (200, FULL)
    assert await http("POST", f"{NAMESPACE}/{policy}") == (204, None)
    assert await http("GET", f"{NAMESPACE}/{policy}") == (200, None)


async def test_the_rate_of_one_subscription(http, broker):
    await http("PUT", f"{N}/a")
    path = f"{N}/a/s/dispatchRate"
    rates = (await topic_of(broker)).policies
    assert await http("GET", path) == (200, None)
    assert await http("GET", f"{path}?applied=true") == (200, UNSET)
    assert await http("DELETE", path) == (204, None)
    await http("POST", f"{N}/a/subscriptionDispatchRate", FULL)
    assert await http("GET", f"{path}?applied=true") == (200, FULL)
    assert await http("POST", path, {"dispatchThrottlingRateInMsg": 10}) == (204, None)
    for ignored in ({}, {"dispatchThrottlingRateInMsg": -5}, None, ...):
        assert await http("POST", path, ignored) == (204, None)
        assert await http("GET", path) == (200, TEN)
    assert (await http("POST", path, 5))[0] == 400
    for_all = f"{path}?isGlobal=true"
    assert await http("GET", for_all) == (200, None)
    assert await http("POST", for_all, FULL) == (204, None)
    assert await http("GET", for_all) == (200, FULL)
    assert await http("GET", path) == (200, TEN)
    assert await http("DELETE", for_all) == (204, None)
    await http("POST", f"{N}/a/other/dispatchRate", FULL)
    assert rates.effective.delivery.of_subscription("s").messages == 10
    assert rates.effective.delivery.of_subscription("other").period_seconds == 2
    for name in ("s", "other"):
        assert await http("DELETE", f"{N}/a/{name}/dispatchRate") == (204, None)
        assert await http("GET", f"{N}/a/{name}/dispatchRate") == (200, None)
    assert rates.effective.delivery.own == {}
    refused = (412, "Not allowed to set/get topic policy for a partition")
    assert await http("GET", f"{N}/a-partition-0/s/dispatchRate") == refused
    assert (await http("POST", f"{N}/no/s/dispatchRate", TEN))[0] == 404


async def test_replicator_rates_are_kept_and_shown(http):
    await http("PUT", f"{N}/a")
    path = f"{N}/a/replicatorDispatchRate"
    assert await http("GET", f"{path}?applied=true") == (200, UNSET)
    for each in (f"{NAMESPACE}/replicatorDispatchRate", path):
        await http("POST", each, FULL)
        assert await http("GET", each) == (200, FULL)
        assert await http("POST", each) == (204, None)
        assert await http("GET", each) == (200, None)


async def test_subscribe_rates_of_a_namespace_and_of_a_topic(http, broker):
    await http("PUT", f"{N}/a")
    topic = await topic_of(broker)
    unset = {"subscribeThrottlingRatePerConsumer": 0, "ratePeriodInSecond": 30}
    path = f"{N}/a/subscribeRate"
    assert await http("GET", f"{path}?applied=true") == (200, unset)
    for each in (f"{NAMESPACE}/subscribeRate", path):
        assert await http("GET", each) == (200, None)
        assert await http("POST", each, {"subscribeThrottlingRatePerConsumer": 4}) == (204, None)
        kept = {"subscribeThrottlingRatePerConsumer": 4, "ratePeriodInSecond": 30}
        assert await http("GET", each) == (200, kept)
        assert await http("GET", f"{path}?applied=true") == (200, kept)
        assert topic.policies.effective.delivery.subscribe.requests == 4
        await http("POST", each, {})
        kept["subscribeThrottlingRatePerConsumer"] = -1
        assert await http("GET", f"{path}?applied=true") == (200, kept)
        assert not topic.policies.effective.delivery.subscribe
        assert await http("DELETE", each) == (204, None)


async def test_rates_survive_a_restart(tmp_path):
    name = TopicName.parse("a")
    rate = {**UNSET, "dispatchThrottlingRateInMsg": 10}
    async with running_broker(CONFIG, tmp_path) as broker:
        await broker.service.get_or_load_topic(name, create=True)
        namespaces = broker.service.namespaces
        await namespaces.set_topic_policy(name, "topicDispatchRate", {"standalone": rate})
        await namespaces.set_topic_policy(
            name, "subscriptionPolicies", {"s": {"dispatchRate": {**rate, "ratePeriodInSecond": 3}}}
        )
        await namespaces.change_policies(
            "public/default",
            lambda policies: policies.with_fields(
                clusterSubscribeRate={"standalone": {"subscribeThrottlingRatePerConsumer": 4}}
            ),
        )
    async with running_broker(CONFIG, tmp_path) as broker:
        rates = (await topic_of(broker)).policies.effective.delivery
        assert (rates.topic.messages, rates.of_subscription("s").period_seconds) == (10, 3)
        assert rates.subscribe.requests == 4
