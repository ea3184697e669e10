"""Policies of a topic about delivery: messages that wait for their time, and delivery that waits
until all acknowledgements can be stored."""

from __future__ import annotations

import pytest

from broker.topics.subscription.sub_types import KEY_SHARED, SHARED
from broker.topics.subscription.tests.fakes import Bench, make_data


async def test_messages_do_not_wait_where_the_topic_delivers_none_later(nursery):
    bench = Bench(nursery, delivers_later=False)
    await bench.open()
    consumer = bench.consumer(permits=10)
    (late,) = bench.publish(make_data(deliver_at=10**15))
    assert consumer.session.positions() == [late]


@pytest.mark.parametrize("sub_type", [SHARED, KEY_SHARED])
async def test_delivery_waits_while_there_are_more_holes_than_are_stored(nursery, sub_type):
    bench = Bench(nursery, dispatch_waits_for_acks=True, managed_ledger_max_unacked_ranges=1)
    await bench.open()
    consumer = bench.consumer(sub_type, permits=10)
    first = bench.publish(*(make_data(key=f"k{number}") for number in range(5)))
    bench.ack(consumer, first[1])
    assert bench.subscription.why_not_dispatching() == ""
    bench.ack(consumer, first[3])
    (held,) = bench.publish(make_data(key="k9"))
    assert consumer.session.positions() == first
    assert "holes" in bench.subscription.why_not_dispatching()
    bench.ack(consumer, first[2])
    assert consumer.session.positions() == [*first, held]
    assert bench.subscription.why_not_dispatching() == ""


async def test_delivery_goes_on_when_it_no_longer_has_to_wait(nursery):
    bench = Bench(nursery, dispatch_waits_for_acks=True, managed_ledger_max_unacked_ranges=0)
    await bench.open()
    consumer = bench.consumer(permits=10)
    first = bench.publish(make_data(), make_data())
    bench.ack(consumer, first[1])
    (held,) = bench.publish(make_data())
    assert consumer.session.positions() == first
    bench.context.limits.dispatch_waits_for_acks = False
    bench.subscription.limits_changed()
    assert consumer.session.positions() == [*first, held]
