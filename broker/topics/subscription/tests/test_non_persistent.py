"""Subscriptions of non-persistent topics: now or never."""

from __future__ import annotations

from dataclasses import replace

import pytest

from broker.ground.entry import Entry
from broker.topics.subscription.sub_types import EXCLUSIVE, FAILOVER, KEY_SHARED, SHARED
from broker.topics.subscription.tests.fakes import Bench, make_data
from protocol.errors import BrokerError


async def direct(nursery):
    bench = Bench(nursery)
    bench.context = replace(bench.context, ledger=None)
    await bench.open()
    return bench


def entries(count, **fields):
    return [Entry(make_data(sequence_id=n, **fields), 1, (0, n)) for n in range(count)]


async def test_what_exceeds_the_permits_is_dropped_and_counted(nursery):
    bench = await direct(nursery)
    consumer = bench.consumer(EXCLUSIVE, permits=3)
    bench.subscription.deliver(entries(5))
    assert len(consumer.session.received) == 3
    assert consumer.session.writes == [3]
    stats = bench.subscription.statistics()
    assert (stats.messages_dropped, stats.messages_out) == (2, 3)
    bench.subscription.flow(consumer, 5)
    assert len(consumer.session.received) == 3
    assert "dropped" not in bench.subscription.why_not_dispatching()


async def test_what_no_consumer_can_take_has_a_rate(nursery):
    bench = await direct(nursery)
    bench.subscription.deliver(entries(5))
    bench.subscription.update_rates(bench.subscription.active_at + 10)
    assert bench.subscription.statistics().as_json(consumers=False, backlog_size=0)[
        "msgDropRate"
    ] == pytest.approx(0.5)
    bench.subscription.update_rates(bench.subscription.active_at + 20)
    assert bench.subscription.statistics().drop_rate == 0


async def test_shared_finds_anybody_who_can_take_it(nursery):
    bench = await direct(nursery)
    consumers = [bench.consumer(SHARED, permits=permits) for permits in (1, 10)]
    bench.subscription.deliver(entries(8))
    assert [len(each.session.received) for each in consumers] == [1, 7]
    assert bench.subscription.statistics().messages_dropped == 0


async def test_key_shared_keeps_keys_together(nursery):
    bench = await direct(nursery)
    consumers = [bench.consumer(KEY_SHARED, permits=100) for _ in range(2)]
    bench.subscription.deliver(entries(5, key="road-7"))
    assert [len(each.session.received) for each in consumers] == [0, 5]


async def test_failover_serves_the_active_one(nursery):
    bench = await direct(nursery)
    bench.context = replace(bench.context, partition=0)
    await bench.open()
    second = bench.consumer(FAILOVER, name="b", permits=10)
    first = bench.consumer(FAILOVER, name="a", permits=10)
    bench.subscription.deliver(entries(2))
    assert (len(first.session.received), len(second.session.received)) == (2, 0)
    bench.subscription.remove_consumer(first)
    bench.subscription.deliver(entries(1))
    assert len(second.session.received) == 1


async def test_it_ends_with_its_last_consumer(nursery):
    bench = await direct(nursery)
    consumer = bench.consumer(SHARED)
    bench.subscription.remove_consumer(consumer)
    assert bench.owner.abandoned == [bench.subscription]


async def test_seek_and_compacted_reads_are_refused(nursery):
    bench = await direct(nursery)
    with pytest.raises(BrokerError):
        await bench.subscription.seek((0, 0))
    with pytest.raises(BrokerError):
        bench.consumer(EXCLUSIVE, read_compacted=True)
    bench.consumer(EXCLUSIVE)
    with pytest.raises(BrokerError):
        bench.consumer(EXCLUSIVE)


@pytest.mark.parametrize("sub_type", [EXCLUSIVE, FAILOVER, SHARED, KEY_SHARED])
async def test_an_entry_that_no_client_can_read_is_dropped(nursery, sub_type):
    bench = await direct(nursery)
    consumer = bench.consumer(sub_type, permits=10)
    bad = Entry(b"\0\0\0\x04\xff\xff\xff\xff", -1, (0, 0))
    bench.subscription.deliver([*entries(1), bad, *entries(1)])
    assert len(consumer.session.received) == 2
    assert consumer.permits.available == 8
    assert bench.subscription.statistics().messages_dropped == 1
