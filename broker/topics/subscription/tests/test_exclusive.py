"""Exclusive: order, permits, holes, redelivery by rewinding."""

from __future__ import annotations

import pytest

from broker.topics.subscription.api import AckId
from broker.topics.subscription.sub_types import EXCLUSIVE, SHARED
from broker.topics.subscription.tests.fakes import Bench, make_data, settled, sticky
from protocol.errors import BrokerError, ServerError
from protocol.position import ID_MAX


async def exclusive(nursery, count=0, **config):
    bench = Bench(nursery, **config)
    await bench.open()
    bench.publish(*[make_data(sequence_id=n) for n in range(count)])
    return bench


async def test_entries_flow_in_order_as_far_as_permits_go(nursery):
    bench = await exclusive(nursery, 25)
    consumer = bench.consumer(EXCLUSIVE, permits=7)
    assert consumer.session.positions() == [e.position for e in bench.ledger.entries[:7]]
    bench.subscription.flow(consumer, 100)
    assert consumer.session.positions() == [e.position for e in bench.ledger.entries]
    assert consumer.permits.available == 107 - 25


async def test_the_tail_is_dispatched_at_once_in_one_write(nursery):
    bench = await exclusive(nursery)
    consumer = bench.consumer(EXCLUSIVE, permits=100)
    bench.publish(*[make_data() for _ in range(9)])
    assert consumer.session.writes == [9]
    assert consumer.session.received[0].data == bench.ledger.entries[0].data


async def test_permits_count_messages_of_batches(nursery):
    bench = await exclusive(nursery)
    bench.publish(*[make_data(messages=4) for _ in range(5)])
    consumer = bench.consumer(EXCLUSIVE, permits=10)
    assert len(consumer.session.received) == 3
    assert consumer.permits.available == -2
    bench.subscription.flow(consumer, 2)
    assert len(consumer.session.received) == 3
    bench.subscription.flow(consumer, 1)
    assert len(consumer.session.received) == 4


async def test_a_zero_queue_consumer_gets_exactly_one_per_permit(nursery):
    bench = await exclusive(nursery, 3)
    consumer = bench.consumer(EXCLUSIVE, permits=1)
    for expected in (1, 2, 3):
        assert len(consumer.session.received) == expected
        bench.subscription.flow(consumer, 1)


async def test_second_consumer_and_other_type_are_busy(nursery):
    bench = await exclusive(nursery)
    bench.consumer(EXCLUSIVE)
    for sub_type in (EXCLUSIVE, SHARED):
        with pytest.raises(BrokerError) as refused:
            bench.consumer(sub_type)
        assert refused.value.server_error == ServerError.ConsumerBusy
    assert len(bench.subscription.consumers) == 1


async def test_a_refused_consumer_leaves_nothing_behind(nursery):
    bench = await exclusive(nursery)
    with pytest.raises(BrokerError):
        bench.consumer(SHARED, read_compacted=True)
    bench.consumer(EXCLUSIVE, permits=1)


async def test_acked_holes_are_not_delivered_again(nursery):
    bench = await exclusive(nursery, 6)
    consumer = bench.consumer(EXCLUSIVE, permits=100)
    positions = consumer.session.positions()
    bench.ack(consumer, positions[1], positions[4])
    bench.subscription.redeliver(consumer, None, -1)
    again = [each.position for each in consumer.session.take()[6:]]
    assert again == [positions[n] for n in (0, 2, 3, 5)]


async def test_redelivery_of_single_ids_rewinds_to_keep_order(nursery):
    bench = await exclusive(nursery, 4)
    consumer = bench.consumer(EXCLUSIVE, permits=100)
    positions = consumer.session.positions()
    consumer.session.take()
    bench.ack(consumer, positions[0])
    bench.subscription.redeliver(consumer, [positions[2]], -1)
    assert consumer.session.positions() == positions[1:]
    assert {each.redelivery_count for each in consumer.session.received} == {0}


async def test_consumer_epoch_is_sent_and_raised_by_redelivery(nursery):
    bench = await exclusive(nursery, 1)
    consumer = bench.consumer(EXCLUSIVE, permits=10, epoch=3)
    assert consumer.session.take()[0].epoch == 3
    bench.subscription.redeliver(consumer, None, 4)
    assert consumer.session.take()[0].epoch == 4


async def test_without_epoch_none_is_sent(nursery):
    bench = await exclusive(nursery, 1)
    consumer = bench.consumer(EXCLUSIVE, permits=10)
    assert consumer.session.take()[0].epoch is None


async def test_cumulative_ack_then_reconnect_continues_behind_it(nursery):
    bench = await exclusive(nursery, 5)
    consumer = bench.consumer(EXCLUSIVE, permits=100)
    positions = consumer.session.positions()
    bench.ack(consumer, positions[2], cumulative=True)
    bench.subscription.remove_consumer(consumer)
    bench.subscription.remove_consumer(consumer)
    assert bench.consumer(EXCLUSIVE, permits=100).session.positions() == positions[3:]


async def test_old_unknown_and_cumulative_minus_one_acks_are_no_ops(nursery):
    bench = await exclusive(nursery, 5)
    consumer = bench.consumer(EXCLUSIVE, permits=100)
    positions = consumer.session.positions()
    bench.ack(consumer, positions[2], cumulative=True)
    for stale in (positions[0], (1, -1), (99, 5), (0, 0)):
        bench.ack(consumer, stale)
        bench.ack(consumer, stale, cumulative=True)
    assert bench.subscription.mark_delete_position() == positions[2]
    assert bench.subscription.backlog_entries == 2


async def test_batch_index_acks_come_back_as_ack_set(nursery):
    bench = await exclusive(nursery, acknowledgment_at_batch_index_level_enabled=True)
    (position,) = bench.publish(make_data(messages=4))
    consumer = bench.consumer(EXCLUSIVE, permits=100)
    bench.subscription.ack(consumer, [AckId(position, (0b1010,))], cumulative=False)
    bench.subscription.remove_consumer(consumer)
    other = bench.consumer(EXCLUSIVE, permits=100)
    assert other.session.received[0].ack_set == (0b1010,)
    assert other.permits.available == 98
    bench.subscription.ack(other, [AckId(position, (0b0101,))], cumulative=False)
    assert bench.subscription.backlog_entries == 0


async def test_cumulative_ack_inside_a_batch(nursery):
    bench = await exclusive(nursery, acknowledgment_at_batch_index_level_enabled=True)
    positions = bench.publish(*[make_data(messages=3) for _ in range(3)])
    consumer = bench.consumer(EXCLUSIVE, permits=100)
    bench.subscription.ack(consumer, [AckId(positions[1], (0b100,))], cumulative=True)
    bench.subscription.redeliver(consumer, None, -1)
    again = consumer.session.received[3:]
    assert [(each.position, each.ack_set) for each in again] == [
        (positions[1], (0b100,)),
        (positions[2], ()),
    ]


@pytest.mark.parametrize("batch_index", [False, True])
async def test_a_cumulative_ack_inside_an_unpublished_batch_is_a_no_op(nursery, batch_index):
    """It acknowledged all that there was."""
    bench = await exclusive(nursery, 3, acknowledgment_at_batch_index_level_enabled=batch_index)
    consumer = bench.consumer(EXCLUSIVE, permits=100)
    for unpublished in ((1, 3), (2, 0), (ID_MAX, ID_MAX)):
        bench.subscription.ack(consumer, [AckId(unpublished, (0b100,))], cumulative=True)
    assert bench.subscription.backlog_entries == 3


async def test_batch_index_acks_are_ignored_when_not_enabled(nursery):
    bench = await exclusive(nursery)
    (position,) = bench.publish(make_data(messages=4))
    consumer = bench.consumer(EXCLUSIVE, permits=100)
    bench.subscription.ack(consumer, [AckId(position, (0b1010,))], cumulative=False)
    bench.subscription.redeliver(consumer, None, -1)
    assert [each.ack_set for each in consumer.session.received] == [(), ()]


async def test_a_full_outbox_stops_and_on_writable_resumes(nursery):
    bench = await exclusive(nursery)
    consumer = bench.consumer(EXCLUSIVE, permits=100)
    consumer.session.full_after = 1
    bench.publish(make_data())
    bench.publish(make_data())
    assert len(consumer.session.received) == 1
    assert "full" in bench.subscription.why_not_dispatching()
    consumer.session.full_after = None
    consumer.session.writable = True
    bench.subscription.on_writable(consumer)
    await settled()
    assert len(consumer.session.received) == 2


async def test_backlog_is_read_from_storage(nursery):
    bench = await exclusive(nursery, 35)
    bench.ledger.cached_from = (4, 0)
    consumer = bench.consumer(EXCLUSIVE, permits=100)
    await settled()
    assert consumer.session.positions() == [e.position for e in bench.ledger.entries]
    assert bench.ledger.reads == 1


async def test_a_slice_is_bounded_and_the_rest_follows(nursery):
    bench = await exclusive(nursery, 25, dispatcher_max_read_batch_size=10)
    consumer = bench.consumer(EXCLUSIVE, permits=100)
    assert len(consumer.session.received) == 10
    await settled()
    assert len(consumer.session.received) == 25


async def test_a_slice_is_bounded_in_bytes(nursery):
    bench = await exclusive(nursery, dispatcher_max_read_size_bytes=3000)
    bench.publish(*[make_data(payload=bytes(1000)) for _ in range(10)])
    consumer = bench.consumer(EXCLUSIVE, permits=100)
    assert 0 < len(consumer.session.received) <= 4
    await settled()
    assert len(consumer.session.received) == 10


async def test_storage_trouble_is_told_and_retried(nursery, autojump_clock):
    bench = await exclusive(nursery, 3)
    bench.ledger.cached_from = (9, 0)
    bench.ledger.read_error = "bookie gone"
    consumer = bench.consumer(EXCLUSIVE, permits=100)
    await settled()
    assert bench.subscription.why_not_dispatching() == "waiting for storage: bookie gone"
    bench.ledger.read_error = None
    import trio

    await trio.sleep(1)
    assert len(consumer.session.received) == 3
    assert bench.subscription.pump.failure == ""


async def test_why_not_dispatching_names_the_reason(nursery):
    bench = await exclusive(nursery)
    assert bench.subscription.why_not_dispatching() == ""
    bench.publish(make_data())
    assert bench.subscription.why_not_dispatching() == "no consumer"
    consumer = bench.consumer(EXCLUSIVE)
    assert "no permits" in bench.subscription.why_not_dispatching()
    bench.subscription.flow(consumer, 5)
    assert bench.subscription.why_not_dispatching() == ""


async def test_key_ranges_on_exclusive_filter_and_ack_the_rest(nursery):
    bench = await exclusive(nursery)
    bench.publish(*[make_data(key=f"vehicle-{n}") for n in range(4)])
    options = sticky((0, 50_000))
    consumer = bench.consumer(EXCLUSIVE, permits=10, key_shared=options)
    keys = [44293, 44751, 61483, 13057]
    expected = [
        p for p, slot in zip([(1, 0), (1, 1), (1, 2), (1, 3)], keys, strict=True) if slot <= 50_000
    ]
    assert consumer.session.positions() == expected
    assert bench.subscription.backlog_entries == 3


async def test_broker_entry_metadata_is_stripped(nursery):
    bench = await exclusive(nursery)
    stored = b"\x0e\x02\0\0\0\x03abc" + make_data()
    bench.ledger.append(stored)
    consumer = bench.consumer(EXCLUSIVE, permits=10)
    assert consumer.session.received[0].data == make_data()


async def test_broker_entry_metadata_is_shown_to_who_asked(nursery):
    bench = await exclusive(nursery, expose_broker_entry_metadata=True)
    stored = b"\x0e\x02\0\0\0\x03abc" + make_data()
    bench.ledger.append(stored)
    consumer = bench.consumer(EXCLUSIVE)
    consumer.session.supports_broker_entry_metadata = True
    bench.subscription.flow(consumer, 1)
    assert consumer.session.received[0].data == stored


async def test_unsubscribe_is_for_the_only_consumer(nursery):
    bench = await exclusive(nursery)
    first, second = bench.consumer(SHARED), bench.consumer(SHARED)
    with pytest.raises(BrokerError, match="shared consumer attempting to unsubscribe"):
        bench.handles[first].unsubscribe(force=False)
    assert list(bench.subscription.consumers) == [first, second]
    bench.handles[second].remove()
    await bench.handles[first].unsubscribe(force=False)
    assert bench.owner.ended == [(bench.subscription, False)]


async def test_a_forced_unsubscribe_does_not_ask_for_others(nursery):
    bench = await exclusive(nursery)
    first, second = bench.consumer(SHARED), bench.consumer(SHARED)
    await bench.handles[first].unsubscribe(force=True)
    assert list(bench.subscription.consumers) == [second]
    assert bench.owner.ended == [(bench.subscription, True)]


async def test_skip_and_clear_backlog(nursery):
    bench = await exclusive(nursery, 10)
    consumer = bench.consumer(EXCLUSIVE)
    bench.ack(consumer, (1, 1))
    await bench.subscription.skip(3)
    assert bench.subscription.mark_delete_position() == (1, 3)
    bench.subscription.flow(consumer, 2)
    assert consumer.session.positions() == [(1, 4), (1, 5)]
    await bench.subscription.clear_backlog()
    assert bench.subscription.backlog_entries == 0
    bench.subscription.flow(consumer, 10)
    assert len(consumer.session.received) == 2
