"""Failover: who is active, who is told, and what the next one gets."""

from __future__ import annotations

import trio

from broker.topics.subscription.sub_types import FAILOVER
from broker.topics.subscription.tests.fakes import (
    Bench,
    TrioClock,
    make_data,
    settled,
)


def told(consumer):
    return [is_active for _, told, is_active in consumer.session.told if told is consumer]


async def failover(nursery, **fields):
    bench = Bench(nursery, TrioClock(), **fields)
    await bench.open()
    return bench


async def test_active_is_partition_modulo_consumers_sorted_by_name(nursery, autojump_clock):
    chosen = []
    for partition in range(9):
        bench = await failover(nursery, partition=partition)
        for name in ("b", "c", "a"):
            bench.consumer(FAILOVER, name=name)
        chosen.append(bench.subscription.statistics().active_consumer_name)
    assert chosen == ["a", "b", "c"] * 3


async def test_priority_comes_before_name(nursery, autojump_clock):
    bench = await failover(nursery, partition=1)
    bench.consumer(FAILOVER, name="a", priority_level=1)
    for name in ("x", "y"):
        bench.consumer(FAILOVER, name=name, priority_level=0)
    assert bench.subscription.statistics().active_consumer_name == "y"


async def test_every_consumer_is_told_at_every_change(nursery, autojump_clock):
    bench = await failover(nursery, partition=0)
    second = bench.consumer(FAILOVER, name="b")
    assert told(second) == [True]
    third = bench.consumer(FAILOVER, name="c")
    assert (told(second), told(third)) == ([True], [False])
    first = bench.consumer(FAILOVER, name="a")
    assert (told(first), told(second), told(third)) == ([], [True], [False])
    await trio.sleep(1.1)  # told when the new one is served
    assert (told(first), told(second), told(third)) == ([True], [True, False], [False, False])
    bench.subscription.remove_consumer(first)
    assert (told(second), told(third)) == ([True, False, True], [False, False, False])


async def test_only_the_active_one_gets_messages_and_the_next_gets_the_unacked(
    nursery, autojump_clock
):
    bench = await failover(nursery, partition=0)
    first = bench.consumer(FAILOVER, name="a", permits=100)
    second = bench.consumer(FAILOVER, name="b", permits=100)
    positions = bench.publish(*[make_data() for _ in range(5)])
    assert first.session.positions() == positions
    assert second.session.positions() == []
    bench.ack(first, positions[0], positions[3])
    bench.subscription.remove_consumer(first)
    assert second.session.positions() == [positions[n] for n in (1, 2, 4)]


async def test_taking_over_from_a_connected_consumer_waits_for_its_acks(nursery, autojump_clock):
    bench = await failover(nursery, partition=0)
    former = bench.consumer(FAILOVER, name="b", permits=100)
    positions = bench.publish(*[make_data() for _ in range(3)])
    better = bench.consumer(FAILOVER, name="a", permits=100)
    assert better.session.positions() == []
    assert "acks" in bench.subscription.why_not_dispatching()
    bench.ack(former, positions[1], cumulative=True)
    await trio.sleep(1.1)
    assert better.session.positions() == positions[2:]
    (more,) = bench.publish(make_data())
    assert better.session.positions() == [positions[2], more]
    assert former.session.positions() == positions


async def test_a_takeover_waits_as_long_whatever_the_wall_clock_is_set_to(nursery, autojump_clock):
    for set_by_ms in (-3_600_000, 3_600_000):
        bench = await failover(nursery)
        bench.consumer(FAILOVER, name="b", priority_level=1, permits=10)
        better = bench.consumer(FAILOVER, name="a", priority_level=0, permits=10)
        bench.clock.set_by_ms += set_by_ms
        bench.publish(make_data())
        await trio.sleep(0.9)
        assert better.session.positions() == []
        assert "waiting for acks" in bench.subscription.why_not_dispatching()
        await trio.sleep(0.2)
        assert len(better.session.positions()) == 1


async def test_topics_without_partitions_spread_over_consumers(nursery, autojump_clock):
    from dataclasses import replace

    active = set()
    for n in range(20):
        bench = await failover(nursery)
        bench.context = replace(bench.context, topic_name=f"persistent://public/default/t{n}")
        await bench.open()
        for name in ("a", "b", "c"):
            bench.consumer(FAILOVER, name=name)
        active.add(bench.subscription.statistics().active_consumer_name)
    assert active == {"a", "b", "c"}


async def test_redelivery_asked_by_a_passive_consumer_is_ignored(nursery, autojump_clock):
    bench = await failover(nursery, partition=0)
    first = bench.consumer(FAILOVER, name="a", permits=100)
    second = bench.consumer(FAILOVER, name="b", permits=100)
    bench.publish(make_data())
    bench.subscription.redeliver(second, None, -1)
    assert len(first.session.received) == 1


async def test_a_connection_that_breaks_while_being_served_costs_nothing(nursery, autojump_clock):
    bench = await failover(nursery, partition=0, dispatcher_max_read_batch_size=2)
    first = bench.consumer(FAILOVER, name="a", permits=100)
    second = bench.consumer(FAILOVER, name="b", permits=100)

    def broken(*_):
        bench.subscription.remove_consumer(first)

    first.session.deliver = broken
    positions = bench.publish(*[make_data() for _ in range(5)])
    await settled()
    assert second.session.positions() == positions
