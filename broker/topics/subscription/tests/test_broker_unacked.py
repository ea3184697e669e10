"""The limit on unacknowledged messages of the whole broker: whom it stops, and for how long."""

from __future__ import annotations

import pytest

from broker.topics.subscription.limits import BrokerUnacked
from broker.topics.subscription.tests.fakes import Bench
from broker.topics.subscription.tests.test_shared import make_data


@pytest.fixture
def resumed():
    return []


@pytest.fixture
def limit(resumed):
    """Of 200, with a share of 32. Each subscription has asked whether it may send."""
    limit = BrokerUnacked(200, 0.16)
    for key, held in (("big", 160), ("middle", 33), ("small", 32)):
        limit.report(key, held)
        limit.blocks(key, lambda key=key: resumed.append(key))
    assert limit.blocked
    for key in ("big", "middle", "small"):
        limit.blocks(key, lambda key=key: resumed.append(key))
    return limit


def stopped(limit):
    return [key for key in ("big", "middle", "small") if limit.holds(key)]


def test_those_with_more_than_their_share_stop_when_the_limit_is_reached(limit):
    assert stopped(limit) == ["big", "middle"]


def test_one_that_comes_above_its_share_stops_too(limit):
    limit.report("small", 33)
    assert stopped(limit) == ["big", "middle", "small"]


def test_a_stopped_one_goes_on_below_half_of_its_share(limit, resumed):
    limit.report("middle", 16)
    assert (stopped(limit), resumed) == (["big", "middle"], [])
    limit.report("middle", 15)
    assert (stopped(limit), resumed) == (["big"], ["middle"])
    limit.report("middle", 32)
    assert stopped(limit) == ["big"]


def test_all_go_on_when_the_sum_is_below_half_of_the_limit(limit, resumed):
    limit.report("big", 35)
    assert (limit.messages, stopped(limit)) == (100, ["big", "middle"])
    limit.report("big", 34)
    assert (limit.blocked, stopped(limit), sorted(resumed)) == (False, [], ["big", "middle"])
    limit.report("big", 130)
    assert stopped(limit) == []


def test_nobody_waits_for_ever_at_the_smallest_limits():
    limit = BrokerUnacked(1, 1.0)
    limit.report("a", 2)
    assert limit.holds("a")
    limit.report("a", 0)
    assert not limit.holds("a")
    limit = BrokerUnacked(2, 0.5)
    limit.report("a", 2)
    limit.report("b", 2)
    limit.report("a", 0)
    assert not limit.holds("a")
    assert limit.holds("b")


def test_a_closed_subscription_is_forgotten(limit, resumed):
    limit.forget("big")
    assert (limit.messages, limit.blocked) == (65, False)
    assert "big" not in resumed


async def test_statistics_show_a_subscription_that_the_broker_stops(nursery):
    limit = BrokerUnacked(4, 0.16)
    bench = Bench(nursery, broker_unacked=limit)
    await bench.open()
    bench.publish(*[make_data() for _ in range(6)])
    bench.consumer(permits=4)
    assert bench.subscription.statistics().blocked_on_unacked
