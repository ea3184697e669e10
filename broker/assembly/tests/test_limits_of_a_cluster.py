"""Limits that were set at one broker of a cluster hold at the other."""

from __future__ import annotations

import json

import pytest

from broker.assembly.tests.test_dynamic_balancing import set_key, two_brokers
from broker.tenancy.policies.resource_groups import Budget, ResourceGroup
from protocol.topic_name import TopicName
from runtime.testing.conditions import eventually
from web.client import fetch


async def request(broker, method, path, body=None):
    data = b"" if body is None else json.dumps(body).encode()
    answer = await fetch(
        method, f"{broker.web_service_url}/admin/v2/{path}", 10.0, body=data, body_bytes_max=10_000
    )
    assert answer.status in (200, 204), (path, answer.status, answer.body)
    return answer.body


async def topic_at(leader, broker):
    """A loaded topic of this broker."""
    for number in range(100):
        name = TopicName.parse(f"non-persistent://public/default/t{number}")
        owner = await leader.service.ownership.owner_of(name, authoritative=False)
        if owner.address == broker.address:
            if owner.is_redirect:
                await broker.service.ownership.owner_of(name, authoritative=True)
            return await broker.service.get_or_load_topic(name, create=True)
    raise AssertionError("it owns none")


async def test_counts_and_rates_of_a_namespace_hold_on_loaded_topics_of_both():
    async with two_brokers() as (leader, other):
        for asked, owner in ((leader, other), (other, leader)):
            topic = await topic_at(leader, owner)
            await request(asked, "POST", "namespaces/public/default/maxProducersPerTopic", 3)
            rate = {"publishThrottlingRateInMsg": 7}
            await request(asked, "POST", "namespaces/public/default/publishRate", rate)
            await eventually(lambda topic=topic: len(topic.publish_limits.in_force.rates) == 1)
            assert topic.policies.effective.counts.producers_max == 3
            for policy in ("maxProducersPerTopic", "publishRate"):
                await request(asked, "DELETE", f"namespaces/public/default/{policy}")
            await eventually(lambda topic=topic: not topic.publish_limits.in_force.rates)


async def test_a_resource_group_made_at_one_broker_holds_at_the_other():
    async with two_brokers() as (leader, other):
        topic = await topic_at(leader, other)
        await request(leader, "PUT", "resourcegroups/g", {"publishRateInMsgs": 10})
        await request(leader, "POST", "namespaces/public/default/resourcegroup/g")
        await eventually(lambda: len(topic.publish_limits.in_force.rates) == 1)
        groups = other.service.namespaces.resource_groups
        assert groups.in_force == {"g": ResourceGroup(publish=Budget(10, 0))}
        await request(other, "DELETE", "namespaces/public/default/resourcegroup")
        await request(other, "DELETE", "resourcegroups/g")
        await eventually(lambda: not leader.service.namespaces.resource_groups.in_force)


class Flooding:
    """A connection that has always another message, and waits."""

    def __init__(self, limit):
        self.limit = limit
        self.publish_admitted()

    def publish_admitted(self):
        while self.limit.admits(self, 1, 100):
            pass


async def test_brokers_that_are_both_held_divide_the_budget_of_a_group():
    async with two_brokers() as brokers:
        await request(brokers[0], "PUT", "resourcegroups/g", {"publishRateInMsgs": 100})
        groups = [each.service.services.resource_groups for each in brokers]
        await eventually(
            lambda: all(each.service.namespaces.resource_groups.in_force for each in brokers)
        )
        alone = Flooding(groups[0].publish("g"))
        await eventually(lambda: groups[0].shares == {"g/publish": 1.0})
        other = Flooding(groups[1].publish("g"))
        await eventually(lambda: [each.shares for each in groups] == [{"g/publish": 0.5}] * 2)
        for each in (alone, other):
            each.limit.forget(each)


@pytest.mark.parametrize("key", ["maxTenants", "maxNamespacesPerTenant"])
async def test_a_dynamic_limit_set_at_one_broker_holds_at_the_other(key):
    async with two_brokers() as (leader, other):
        await set_key(leader, key, 1)
        await eventually(lambda: getattr(other.service.config, key) == 1)
