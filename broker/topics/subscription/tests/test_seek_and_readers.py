"""Seek, readers, ended topics, closing."""

from __future__ import annotations

import pytest
import trio

from broker.topics.subscription.sub_types import EXCLUSIVE, SHARED
from broker.topics.subscription.tests.fakes import Bench, TrioClock, make_data, settled
from protocol.errors import BrokerError, ServerError
from protocol.position import LATEST


async def topic(nursery, count=10, clock=None, **request):
    bench = Bench(nursery, clock)
    bench.ledger.append(*[make_data(publish_time=100 + n) for n in range(count)])
    await bench.open(**request)
    return bench


async def test_consumers_are_disconnected_when_the_reset_begins(nursery):
    bench = await topic(nursery)
    consumer = bench.consumer(SHARED, permits=100)
    bench.subscription.cursor.gate = trio.Event()
    moved = bench.subscription.seek((1, 4))
    assert consumer.session.disconnected == [consumer]
    assert bench.subscription.mark_delete_position() == (1, -1)
    bench.subscription.cursor.gate.set()
    await moved
    assert bench.consumer(SHARED, permits=1).session.positions() == [(1, 4)]


async def test_a_seek_is_finished_before_the_next_one_begins(nursery):
    bench = await topic(nursery)
    consumer = bench.consumer(EXCLUSIVE)
    gate = bench.subscription.cursor.gate = trio.Event()
    first = bench.subscription.seek((1, 2))
    second = bench.subscription.seek((1, 3))
    assert bench.subscription.why_not_dispatching() == "a seek is under way"
    with pytest.raises(BrokerError) as refused:
        bench.consumer(EXCLUSIVE)  # not as one of the operations on the subscription
    assert refused.value.server_error == ServerError.ServiceNotReady
    gate.set()
    await first
    await second
    assert bench.subscription.mark_delete_position() == (1, 2)
    assert consumer not in bench.subscription.consumers
    bench.consumer(EXCLUSIVE)


async def test_a_seek_that_cannot_be_stored_is_refused_and_loses_no_ack_that_crossed_it(nursery):
    bench = await topic(nursery, count=5)
    consumer = bench.consumer(SHARED, permits=3)
    bench.ack(consumer, (1, 0))
    cursor = bench.subscription.cursor
    gate = cursor.gate = trio.Event()
    cursor.reset_error = BrokerError(ServerError.MetadataError, "the disk is full")
    async with trio.open_nursery() as seeking:

        async def seek():
            with pytest.raises(BrokerError, match="the disk is full"):
                await bench.subscription.seek((1, 4))

        seeking.start_soon(seek)
        await settled()
        bench.ack(consumer, (1, 1))  # dropped, as the client will find out
        gate.set()
    assert bench.subscription.mark_delete_position() == (1, 0)
    assert consumer.session.disconnected == [consumer]
    again = bench.consumer(SHARED, permits=10)
    assert again.session.positions() == [(1, 1), (1, 2), (1, 3), (1, 4)]


async def test_skipping_many_entries_gives_others_their_turns(nursery, monkeypatch):
    monkeypatch.setattr("broker.topics.subscription.start.SLICE_ENTRIES", 10)
    bench = await topic(nursery, count=100)
    consumer = bench.consumer(SHARED, permits=10)
    bench.ack(consumer, (1, 5))  # so that entries have to be counted one by one
    turns = 0

    async def others():
        nonlocal turns
        while True:
            await trio.lowlevel.checkpoint()
            turns += 1

    async with trio.open_nursery() as both:
        both.start_soon(others)
        await bench.subscription.skip(80)
        both.cancel_scope.cancel()
    assert turns >= 5
    assert bench.subscription.backlog_entries == 19
    await bench.subscription.skip(1)
    assert bench.subscription.backlog_entries == 18


async def test_a_seek_waits_for_the_end_of_a_skip_that_is_under_way(nursery, monkeypatch):
    monkeypatch.setattr("broker.topics.subscription.start.SLICE_ENTRIES", 10)
    bench = await topic(nursery, count=100)
    bench.ack(bench.consumer(SHARED, permits=10), (1, 0), (1, 5))
    skipped, moved = bench.subscription.skip(80), bench.subscription.seek((1, 3))
    await skipped
    await moved
    assert bench.subscription.backlog_entries == 97


@pytest.mark.parametrize(
    ("method", "arguments", "left"),
    [("skip", [3], 3), ("clear_backlog", [], 0), ("expire", [108], 2)],
)
async def test_administration_waits_for_the_end_of_a_seek(nursery, method, arguments, left):
    bench = await topic(nursery)
    gate = bench.subscription.cursor.gate = trio.Event()
    moved = bench.subscription.seek((1, 4))
    done = []

    async def administer():
        await getattr(bench.subscription, method)(*arguments)
        done.append(bench.subscription.backlog_entries)

    async with trio.open_nursery() as others:
        others.start_soon(administer)
        await settled()
        assert done == []
        gate.set()
        await moved
    assert done == [left]


@pytest.mark.parametrize(("method", "arguments"), [("skip", [3]), ("clear_backlog", [])])
async def test_a_seek_waits_its_turn_after_administration(nursery, method, arguments):
    bench = await topic(nursery)
    gate = bench.subscription.cursor.gate = trio.Event()
    first = bench.subscription.seek((1, 4))
    second = getattr(bench.subscription, method)(*arguments)
    third = bench.subscription.seek((1, 1))
    gate.set()
    await first
    await second
    await third
    assert bench.subscription.backlog_entries == 9


@pytest.mark.parametrize(
    ("method", "arguments"), [("skip", [3]), ("clear_backlog", []), ("expire", [108])]
)
async def test_a_closed_subscription_refuses_administration(nursery, method, arguments):
    bench = await topic(nursery)
    await bench.subscription.close()
    with pytest.raises(BrokerError) as refused:
        await getattr(bench.subscription, method)(*arguments)
    assert refused.value.server_error == ServerError.ServiceNotReady


async def test_what_a_seek_has_passed_is_not_expired_twice(nursery):
    bench = await topic(nursery)
    gate = bench.subscription.cursor.gate = trio.Event()
    moved = bench.subscription.seek((1, 4))
    expired = bench.subscription.expire(106)
    gate.set()
    await moved
    assert await expired == 2
    assert bench.subscription.backlog_entries == 4


async def test_acks_that_cross_a_seek_do_not_touch_the_new_position(nursery):
    bench = await topic(nursery)
    consumer = bench.consumer(SHARED, permits=5)
    await bench.subscription.seek((1, 0))
    bench.ack(consumer, (1, 2))
    bench.subscription.flow(consumer, 5)
    assert bench.subscription.backlog_entries == 10
    assert len(consumer.session.received) == 5


async def test_seek_by_time_gives_the_first_entry_published_at_or_after_it(nursery):
    bench = await topic(nursery)
    for time_ms, first in ((104, [(1, 4)]), (0, [(1, 0)]), (2**63 - 1, [])):
        await bench.subscription.seek_to_time(time_ms)
        consumer = bench.consumer(SHARED, permits=1)
        assert consumer.session.positions() == first
        bench.subscription.remove_consumer(consumer)


async def test_seek_into_a_batch_leaves_out_what_came_before(nursery):
    bench = Bench(nursery, acknowledgment_at_batch_index_level_enabled=True)
    await bench.open()
    bench.publish(make_data(messages=4))
    await bench.subscription.seek((1, 0), (0b1100,))
    consumer = bench.consumer(EXCLUSIVE, permits=10)
    assert consumer.session.received[0].ack_set == (0b1100,)


async def test_seek_behind_the_last_entry_waits_for_the_next(nursery):
    for target in ((1, 10), (5, 0), LATEST):
        bench = await topic(nursery, 9)
        await bench.subscription.seek(target)
        consumer = bench.consumer(EXCLUSIVE, permits=10)
        assert consumer.session.positions() == []
        assert consumer.session.positions() == bench.publish(make_data())[:0]
        assert len(consumer.session.received) == 1


async def test_a_reader_keeps_a_sought_position_when_it_comes_back(nursery):
    bench = await topic(nursery, durable=False, start_message_id=(-1, -1, -1))
    reader = bench.consumer(EXCLUSIVE, permits=10)
    assert len(reader.session.received) == 10
    await bench.subscription.seek_to_time(107)
    assert bench.owner.abandoned == []
    again = bench.consumer(EXCLUSIVE, permits=10)
    assert again.session.positions() == [(1, 7), (1, 8), (1, 9)]
    bench.subscription.remove_consumer(again)


async def test_a_reader_that_leaves_takes_its_subscription_along(nursery):
    bench = await topic(nursery, durable=False)
    reader = bench.consumer(EXCLUSIVE)
    bench.subscription.remove_consumer(reader)
    assert bench.owner.abandoned == [bench.subscription]


async def test_a_reader_that_never_comes_back_from_a_seek_is_forgotten(nursery, autojump_clock):
    bench = await topic(nursery, clock=TrioClock(), durable=False)
    bench.consumer(EXCLUSIVE)
    await bench.subscription.seek((1, 2))
    await trio.sleep(59)
    assert bench.owner.abandoned == []
    await trio.sleep(2)
    assert bench.owner.abandoned == [bench.subscription]


async def test_a_durable_subscription_outlives_its_consumers(nursery):
    bench = await topic(nursery)
    bench.subscription.remove_consumer(bench.consumer(EXCLUSIVE))
    assert bench.owner.abandoned == []
    assert bench.subscription.backlog_entries == 10


async def test_latest_starts_at_the_tail_and_rollback_before_it(nursery):
    bench = await topic(nursery, earliest=False)
    consumer = bench.consumer(EXCLUSIVE, permits=10)
    assert consumer.session.positions() == []
    bench.clock.ms = 1_000_105
    await bench.open(name="rolled back", earliest=False, start_rollback_seconds=1000)
    assert bench.consumer(EXCLUSIVE, permits=1).session.positions() == [(1, 5)]


async def test_the_end_is_told_once_when_a_terminated_topic_is_drained(nursery):
    bench = await topic(nursery, 2)
    consumer = bench.consumer(EXCLUSIVE, permits=10)
    bench.ledger.terminated = True
    bench.subscription.topic_terminated()
    bench.ack(consumer, (1, 0))
    assert "ended" not in consumer.session.kinds()
    bench.ack(consumer, (1, 1))
    bench.ack(consumer, (1, 1))
    bench.subscription.topic_terminated()
    assert consumer.session.kinds().count("ended") == 1
    bench.subscription.remove_consumer(consumer)
    late = bench.consumer(SHARED)
    assert late.session.kinds() == ["ended"]


async def test_closing_disconnects_and_refuses(nursery):
    bench = await topic(nursery)
    consumer = bench.consumer(SHARED, permits=3)
    await bench.subscription.close()
    assert consumer.session.disconnected == [consumer]
    with pytest.raises(BrokerError) as refused:
        bench.consumer(SHARED)
    assert refused.value.server_error == ServerError.ServiceNotReady
    bench.subscription.flow(consumer, 100)
    assert len(consumer.session.received) == 3


async def test_many_short_readers_leave_nothing(nursery):
    bench = Bench(nursery)
    bench.ledger.append(make_data())
    for number in range(300):
        await bench.open(name=f"r{number}", durable=False)
        reader = bench.consumer(EXCLUSIVE, permits=10)
        bench.subscription.remove_consumer(reader)
        del bench.ledger.cursors[f"r{number}"]
    assert len(bench.owner.abandoned) == 300
    assert len(nursery.child_tasks) == 0
