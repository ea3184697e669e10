"""Shared: turns, priorities, redelivery, limits, delays."""

from __future__ import annotations

import pytest
import trio
from structlog.testing import capture_logs

from broker.limits.delayed_budget import DelayedBudget
from broker.topics.subscription.api import AckId
from broker.topics.subscription.limits import BrokerUnacked
from broker.topics.subscription.sub_types import EXCLUSIVE, KEY_SHARED, SHARED
from broker.topics.subscription.tests.fakes import (
    Bench,
    FakeSession,
    TrioClock,
    make_data,
    settled,
)

HOUR_MS = 3_600_000


async def shared(nursery, count=0, **config):
    bench = Bench(nursery, **config)
    await bench.open()
    bench.publish(*[make_data(sequence_id=n) for n in range(count)])
    return bench


async def test_consumers_take_turns_message_by_message_at_the_tail(nursery):
    bench = await shared(nursery)
    consumers = [bench.consumer(permits=100) for _ in range(3)]
    for _ in range(30):
        bench.publish(make_data())
    assert [len(each.session.received) for each in consumers] == [10, 10, 10]


async def test_a_turn_is_bounded_in_a_backlog(nursery):
    bench = await shared(nursery, 100)
    session = FakeSession()
    consumers = [bench.consumer(session=session) for _ in range(2)]
    for consumer in consumers:
        consumer.permits.grant(1000)
        bench.subscription.dispatcher.ready(consumer)
    bench.subscription.tail_moved()
    owners = [each.consumer_id for each in sorted(session.received, key=lambda e: e.position)]
    assert owners == ([1] * 20 + [2] * 20) * 2 + [1] * 20


async def test_a_read_for_redelivery_is_shown_while_it_lasts(nursery):
    bench = await shared(nursery)
    consumer = bench.consumer(permits=10)
    (position,) = bench.publish(make_data())
    assert consumer.session.positions() == [position]
    bench.ledger.cached_from = bench.ledger.next_position(position)
    bench.ledger.read_gate = trio.Event()
    assert not bench.subscription.is_reading_replays
    bench.subscription.redeliver(consumer, None, -1)
    await settled()
    assert bench.subscription.is_reading_replays
    bench.ledger.read_gate.set()
    await settled()
    assert not bench.subscription.is_reading_replays
    assert consumer.session.positions() == [position, position]


async def test_lower_priority_gets_nothing_while_higher_has_permits(nursery):
    bench = await shared(nursery)
    low = bench.consumer(permits=100, priority_level=2)
    high = bench.consumer(permits=3, priority_level=1)
    for _ in range(5):
        bench.publish(make_data())
    assert len(high.session.received) == 3
    assert len(low.session.received) == 2
    bench.subscription.flow(high, 10)
    bench.publish(make_data())
    assert len(high.session.received) == 4


async def test_nacked_messages_go_out_in_position_order_in_one_write(nursery):
    bench = await shared(nursery, 10)
    consumer = bench.consumer(permits=100)
    positions = consumer.session.positions()
    consumer.session.take()
    consumer.session.writes.clear()
    bench.subscription.redeliver(consumer, [positions[n] for n in (7, 2, 5)], -1)
    assert consumer.session.positions() == [positions[n] for n in (2, 5, 7)]
    assert consumer.session.writes == [3]


async def test_redelivery_of_uncached_entries_goes_out_in_one_write(nursery):
    bench = await shared(nursery, 30)
    consumer = bench.consumer(permits=100)
    positions = consumer.session.positions()
    consumer.session.writes.clear()
    bench.ledger.cached_from = (2, 5)
    bench.subscription.redeliver(consumer, [positions[n] for n in (3, 4, 11, 14, 28)], -1)
    await settled()
    assert consumer.session.writes == [5]


async def test_redelivery_count_is_three_on_the_fourth_delivery(nursery):
    bench = await shared(nursery, 1)
    consumer = bench.consumer(permits=100)
    for _ in range(3):
        bench.subscription.redeliver(consumer, consumer.session.positions()[:1], -1)
    assert [each.redelivery_count for each in consumer.session.received] == [0, 1, 2, 3]


async def test_redeliver_without_ids_takes_only_this_consumers_messages(nursery):
    bench = await shared(nursery)
    first, second = bench.consumer(permits=3), bench.consumer(permits=3)
    for _ in range(6):
        bench.publish(make_data())
    mine, others = first.session.positions(), second.session.positions()
    bench.subscription.redeliver(first, [others[0]], -1)
    assert second.session.positions() == others
    bench.subscription.redeliver(first, None, -1)
    assert first.pending.messages == 0
    bench.subscription.flow(first, 10)
    assert first.session.positions() == mine + mine


async def test_unacked_of_a_closed_consumer_go_to_others_at_once(nursery):
    bench = await shared(nursery)
    first, second = bench.consumer(permits=3), bench.consumer(permits=100)
    for _ in range(6):
        bench.publish(make_data())
    lost = first.session.positions()
    bench.ack(first, lost[0])
    bench.subscription.remove_consumer(first)
    assert second.session.positions()[-2:] == lost[1:]
    assert second.session.received[-1].redelivery_count == 0
    assert second.pending.messages == bench.subscription.statistics().unacked_messages == 5


async def test_a_late_ack_by_another_consumer_counts(nursery):
    bench = await shared(nursery)
    first, second = bench.consumer(permits=3), bench.consumer(permits=3)
    for _ in range(4):
        bench.publish(make_data())
    bench.ack(second, first.session.positions()[0])
    assert first.pending.messages == 1
    assert bench.subscription.backlog_entries == 3


async def test_an_entry_acked_while_waiting_is_not_delivered_again(nursery):
    bench = await shared(nursery, 2)
    consumer = bench.consumer(permits=2)
    positions = consumer.session.positions()
    bench.subscription.redeliver(consumer, None, -1)
    bench.ack(consumer, positions[0])
    bench.subscription.flow(consumer, 10)
    assert consumer.session.positions() == [*positions, positions[1]]


async def test_cumulative_ack_on_shared_is_ignored(nursery):
    bench = await shared(nursery, 3)
    consumer = bench.consumer(permits=100)
    bench.ack(consumer, consumer.session.positions()[2], cumulative=True)
    assert bench.subscription.backlog_entries == 3
    assert consumer.pending.messages == 3


async def test_any_number_of_ignored_acks_is_one_line_of_the_log(nursery):
    """Each ACK is 22 bytes. A line has the name of the consumer, which may have 2 MB."""
    bench = await shared(nursery, 1)
    consumer = bench.consumer(permits=100)
    with capture_logs() as lines:
        for _ in range(3):
            bench.ack(consumer, consumer.session.positions()[0], cumulative=True)
    (line,) = lines
    assert line["event"].startswith("ignored a cumulative ack")


async def test_acks_of_batch_indexes_free_unacked_messages(nursery):
    bench = await shared(nursery, acknowledgment_at_batch_index_level_enabled=True)
    (position,) = bench.publish(make_data(messages=4))
    consumer = bench.consumer(permits=100)
    bench.subscription.ack(consumer, [AckId(position, (0b0111,))], cumulative=False)
    bench.subscription.ack(consumer, [AckId(position, (0b0111,))], cumulative=False)
    assert consumer.pending.messages == 3
    bench.subscription.redeliver(consumer, [position], -1)
    again = consumer.session.received[1]
    assert (again.ack_set, again.redelivery_count) == ((0b0111,), 1)
    assert consumer.permits.available == 100 - 4 - 3
    bench.subscription.ack(consumer, [AckId(position, (0b1000,))], cumulative=False)
    assert consumer.pending.messages == 0
    assert bench.subscription.backlog_entries == 0


@pytest.mark.parametrize("limit", [1, 2, 5])
async def test_pulsar_22657_the_unacked_limit_blocks_and_always_clears(nursery, limit):
    bench = await shared(nursery, 40, max_unacked_messages_per_consumer=limit)
    consumer = bench.consumer(permits=100)
    seen = 0
    while seen < 40:
        received = consumer.session.take()
        assert received, bench.subscription.why_not_dispatching()
        assert len(consumer.pending) <= limit
        if seen + len(received) < 40:
            assert consumer.blocked_on_unacked
            assert "maxUnackedMessagesPerConsumer" in bench.subscription.why_not_dispatching()
        seen += len(received)
        for each in received:
            bench.ack(consumer, each.position)
    assert not consumer.blocked_on_unacked
    assert bench.subscription.backlog_entries == 0


@pytest.mark.parametrize("limit", [1, 3])
async def test_pulsar_24269_subscription_limit_of_one_works(nursery, limit):
    bench = await shared(nursery, 20, max_unacked_messages_per_subscription=limit)
    consumers = [bench.consumer(permits=100) for _ in range(3)]
    for _ in range(100):
        stats = bench.subscription.statistics()
        assert stats.unacked_messages <= limit
        for consumer in consumers:
            for each in consumer.session.take():
                bench.ack(consumer, each.position)
    assert bench.subscription.backlog_entries == 0
    assert not bench.subscription.statistics().blocked_on_unacked


@pytest.mark.parametrize(
    ("field", "left"),
    [("max_unacked_messages_per_consumer", 2), ("max_unacked_messages_per_subscription", 1)],
)
async def test_who_is_blocked_goes_on_at_half_of_the_limit_or_below_it(nursery, field, left):
    """A consumer at half of its limit, a subscription below that, as in Pulsar."""
    bench = await shared(nursery, 20, **{field: 5})
    consumer = bench.consumer(permits=100)
    sent = consumer.session.take()
    for number, each in enumerate(sent):
        assert len(consumer.pending) == 5 - number
        bench.ack(consumer, each.position)
        await settled()
        if 5 - number - 1 == left:
            break
        assert not consumer.session.take()
    assert len(consumer.session.take()) == 5 - left


async def test_a_blocked_consumer_leaving_unblocks_the_subscription(nursery):
    bench = await shared(nursery, 6, max_unacked_messages_per_subscription=2)
    first = bench.consumer(permits=2)
    assert bench.subscription.statistics().blocked_on_unacked
    second = bench.consumer(permits=10)
    assert not second.session.received
    bench.subscription.remove_consumer(first)
    assert len(second.session.received) == 2


async def test_the_broker_limit_blocks_holders_and_resumes_them(nursery):
    limit = BrokerUnacked(4, 0.16)
    bench = await shared(nursery, 10, max_unacked_messages_per_consumer=0)
    other = Bench(nursery, broker_unacked=limit)
    await other.open()
    mine = Bench(nursery, broker_unacked=limit)
    await mine.open()
    mine.publish(*[make_data() for _ in range(10)])
    consumer = mine.consumer(permits=4)
    assert limit.blocked
    mine.subscription.flow(consumer, 10)
    assert len(consumer.session.received) == 4
    other.publish(make_data())
    assert len(other.consumer(permits=1).session.received) == 1
    for each in consumer.session.received[:4]:
        mine.ack(consumer, each.position)
    await settled()
    assert len(consumer.session.received) > 4
    mine.subscription.remove_consumer(consumer)
    assert limit.messages == 1
    assert bench.subscription.backlog_entries == 10


async def test_a_full_connection_is_not_chosen(nursery):
    bench = await shared(nursery)
    first, second = bench.consumer(permits=100), bench.consumer(permits=100)
    first.session.writable = False
    for _ in range(4):
        bench.publish(make_data())
    assert (len(first.session.received), len(second.session.received)) == (0, 4)
    first.session.writable = True
    bench.subscription.on_writable(first)
    await settled()
    for _ in range(4):
        bench.publish(make_data())
    assert len(first.session.received) == 2


async def test_delayed_messages_wait_and_others_pass_them(nursery, autojump_clock):
    clock = TrioClock()
    bench = Bench(nursery, clock)
    await bench.open()
    consumer = bench.consumer(permits=100)
    late, soon, now = bench.publish(
        make_data(deliver_at=clock.wall_ms() + 2500),
        make_data(deliver_at=clock.wall_ms() + 1000),
        make_data(),
    )
    assert consumer.session.positions() == [now]
    assert bench.subscription.statistics().delayed_messages == 2
    assert "delayed" in bench.subscription.why_not_dispatching()
    await trio.sleep(0.99)
    assert consumer.session.positions() == [now]
    await trio.sleep(0.02)
    assert consumer.session.positions() == [now, soon]
    await trio.sleep(1.5)
    assert consumer.session.positions() == [now, soon, late]


async def test_a_sooner_delay_wakes_sooner(nursery, autojump_clock):
    clock = TrioClock()
    bench = Bench(nursery, clock)
    await bench.open()
    consumer = bench.consumer(permits=100)
    bench.publish(make_data(deliver_at=clock.wall_ms() + 5000))
    await trio.sleep(0.1)
    (soon,) = bench.publish(make_data(deliver_at=clock.wall_ms() + 500))
    await trio.sleep(0.6)
    assert consumer.session.positions() == [soon]


async def test_a_delayed_message_is_delivered_when_the_wall_clock_is_set_past_its_time(
    nursery, autojump_clock
):
    clock = TrioClock()
    bench = Bench(nursery, clock)
    await bench.open()
    consumer = bench.consumer(permits=100)
    soon, late = bench.publish(
        make_data(deliver_at=clock.wall_ms() + 30 * 60_000),
        make_data(deliver_at=clock.wall_ms() + 90 * 60_000),
    )
    await trio.sleep(10)
    assert consumer.session.positions() == []
    clock.set_by_ms += HOUR_MS
    await trio.sleep(2)
    assert consumer.session.positions() == [soon]
    clock.set_by_ms -= HOUR_MS
    await trio.sleep(60 * 60)
    assert consumer.session.positions() == [soon]
    await trio.sleep(30 * 60)
    assert consumer.session.positions() == [soon, late]


async def test_the_delayed_index_is_bounded(nursery, autojump_clock):
    clock = TrioClock()
    delayed = DelayedBudget(100, 3, reserve=1)
    bench = Bench(nursery, clock, delayed=delayed, dispatcher_max_read_batch_size=1)
    await bench.open()
    bench.publish(*[make_data(deliver_at=clock.wall_ms() + 1000) for _ in range(8)])
    consumer = bench.consumer(permits=100)
    await settled()
    assert bench.subscription.statistics().delayed_messages == 3
    await trio.sleep(1.1)
    assert len(consumer.session.received) == 8


@pytest.mark.parametrize("sub_type", [SHARED, KEY_SHARED])
async def test_a_subscription_waits_for_room_that_another_one_leaves(
    nursery, autojump_clock, sub_type
):
    """Nothing is lost, and what both hold is bounded."""
    clock = TrioClock()
    delayed = DelayedBudget(1_000, 8, reserve=2)
    benches = [
        Bench(nursery, clock, delayed=delayed, dispatcher_max_read_batch_size=1) for _ in range(2)
    ]
    consumers = []
    for bench in benches:
        await bench.open()
        consumers.append(bench.consumer(sub_type, permits=100))
        bench.publish(
            *[make_data(key="k", deliver_at=clock.wall_ms() + 1000 * (n + 1)) for n in range(20)]
        )
        bench.publish(make_data(key="other"))
        await settled()
    assert delayed.entries == 8 + 2
    dispatcher = benches[0].subscription.dispatcher
    assert "delayedDeliveryMaxEntriesPerTopic" in dispatcher.why()
    await trio.sleep(25)
    for consumer in consumers:
        assert len(set(consumer.session.positions())) == 21
    assert delayed.entries == 0


@pytest.mark.parametrize("sub_type", [SHARED, KEY_SHARED])
async def test_what_a_closed_subscription_held_counts_no_longer(nursery, sub_type):
    delayed = DelayedBudget(1_000, 8, reserve=2)
    bench = Bench(nursery, delayed=delayed)
    await bench.open()
    bench.consumer(sub_type, permits=100)
    bench.publish(*[make_data(deliver_at=10**15) for _ in range(20)])
    await settled()
    assert delayed.entries >= 8
    await bench.subscription.close()
    assert (delayed.entries, delayed._waiting) == (0, {})


async def test_delays_are_ignored_by_exclusive(nursery):
    bench = await shared(nursery)
    bench.publish(make_data(deliver_at=10**15))
    assert len(bench.consumer(EXCLUSIVE, permits=1).session.received) == 1


async def test_type_can_change_when_nobody_is_connected(nursery):
    bench = await shared(nursery, 4)
    first = bench.consumer(SHARED, permits=2)
    bench.ack(first, first.session.positions()[1])
    bench.subscription.remove_consumer(first)
    second = bench.consumer(EXCLUSIVE, permits=100)
    assert second.session.positions() == [(1, 0), (1, 2), (1, 3)]
    assert bench.subscription.statistics().messages_out == 5


async def test_last_consumer_leaving_restarts_counting_and_reading(nursery):
    bench = await shared(nursery, 2)
    first = bench.consumer(permits=10)
    bench.subscription.redeliver(first, None, -1)
    bench.subscription.remove_consumer(first)
    second = bench.consumer(permits=10)
    assert [each.redelivery_count for each in second.session.received] == [0, 0]


async def test_one_permit_and_no_unacked_message_is_enough_to_deliver(nursery):
    """The stuck state of apache/pulsar#14082."""
    bench = await shared(nursery, 3)
    consumer = bench.consumer(permits=1)
    for n in range(1, 4):
        assert len(consumer.session.received) == n
        bench.ack(consumer, consumer.session.received[-1].position)
        bench.subscription.flow(consumer, 1)


async def test_redelivery_of_more_messages_than_permits_keeps_the_rest(nursery):
    bench = await shared(nursery)
    positions = bench.publish(*[make_data(messages=3) for _ in range(6)])
    consumer = bench.consumer(permits=18)
    bench.subscription.redeliver(consumer, None, -1)
    consumer.session.take()
    for _ in range(6):
        bench.subscription.flow(consumer, 3)
    assert consumer.session.positions() == positions


async def test_a_connection_that_breaks_while_being_served_costs_nothing(nursery):
    bench = await shared(nursery)
    first, second = bench.consumer(permits=100), bench.consumer(permits=100)
    first.session.deliver = lambda *_: bench.subscription.remove_consumer(first)
    positions = bench.publish(*[make_data() for _ in range(50)])
    await settled()
    assert sorted(second.session.positions()) == positions


@pytest.mark.parametrize("sub_type", [SHARED, EXCLUSIVE])
async def test_what_was_acked_before_a_reconnect_is_not_sent_when_the_cursor_passes_it(
    nursery, sub_type
):
    """The hole (1, 2) joins the mark-delete position while the next entry to read lies before."""
    bench = await shared(nursery, 5)
    former = bench.consumer(sub_type, permits=5)
    bench.ack(former, (1, 2))
    bench.handles[former].remove()
    again = bench.consumer(sub_type, permits=2)
    assert again.session.positions() == [(1, 0), (1, 1)]
    bench.ack(again, (1, 0), (1, 1))
    assert bench.subscription.mark_delete_position() == (1, 2)
    bench.subscription.flow(again, 5)
    assert again.session.positions() == [(1, 0), (1, 1), (1, 3), (1, 4)]
