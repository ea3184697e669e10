"""Key_Shared: order per key through joins and leaves, and progress for everything else."""

from __future__ import annotations

import pytest

from broker.topics.subscription.consumer import KeySharedOptions
from broker.topics.subscription.sub_types import KEY_SHARED
from broker.topics.subscription.tests.fakes import Bench, make_data, settled, sticky
from protocol.errors import BrokerError, ServerError

LOW = ["vehicle-3", "road-7", "é"]
HIGH = ["vehicle-0", "vehicle-1", "vehicle-2"]


async def key_shared(nursery, **config):
    """Halves of the key space, so that it is known which keys are whose; large reads."""
    chosen = {
        "subscription_key_shared_use_consistent_hashing": False,
        "dispatcher_max_read_batch_size": 1000,
        **config,
    }
    bench = Bench(nursery, **chosen)
    await bench.open()
    return bench


async def test_two_consumers_own_the_two_halves(nursery):
    bench = await key_shared(nursery)
    first = bench.consumer(KEY_SHARED, permits=100)
    second = bench.consumer(KEY_SHARED, permits=100)
    positions = bench.publish(*[make_data(key=key) for key in LOW + HIGH])
    assert second.session.positions() == positions[:3]
    assert first.session.positions() == positions[3:]
    rows = bench.subscription.statistics().consumers
    assert [row.as_json()["keyHashRanges"] for row in rows] == [["[32769, 65535]"], ["[0, 32768]"]]


async def test_a_moved_key_waits_for_the_former_consumers_acks_and_others_go_on(nursery):
    bench = await key_shared(nursery)
    first = bench.consumer(KEY_SHARED, permits=100)
    (held,) = bench.publish(make_data(key="road-7"))
    second = bench.consumer(KEY_SHARED, permits=100)
    waiting, free, high = bench.publish(
        make_data(key="road-7"), make_data(key="vehicle-3"), make_data(key="vehicle-0")
    )
    assert second.session.positions() == [free]
    assert first.session.positions() == [held, high]
    assert "draining" in bench.subscription.why_not_dispatching()
    row = bench.subscription.statistics().consumers[0].as_json()
    assert row["drainingHashes"] == [{"hash": 6618, "unackMsgs": 1, "blockedAttempts": 1}]
    bench.ack(first, held)
    assert second.session.positions() == [free, waiting]
    assert bench.subscription.statistics().as_json()["drainingHashesCount"] == 0


async def test_hashes_that_have_drained_are_counted_for_their_former_consumer(nursery):
    bench = await key_shared(nursery)

    def cleared():
        row = bench.subscription.statistics().as_json()
        counts = [each["drainingHashesClearedTotal"] for each in row["consumers"]]
        return row["drainingHashesClearedTotal"], counts

    first = bench.consumer(KEY_SHARED, permits=100)
    before = bench.publish(*[make_data(key=key) for key in ("road-7", "vehicle-0", "road-7")])
    second = bench.consumer(KEY_SHARED, permits=100)
    bench.publish(make_data(key="road-7"))
    assert cleared() == (0, [0, 0])
    bench.ack(first, before[0])
    assert cleared() == (0, [0, 0])
    bench.ack(first, before[2])
    assert cleared() == (1, [1, 0])
    bench.ack(first, before[1])  # its key has not moved
    bench.ack(second, second.session.positions()[0])
    assert cleared() == (1, [1, 0])


async def test_a_nacked_message_of_a_moved_key_goes_to_the_new_owner_first(nursery):
    bench = await key_shared(nursery)
    first = bench.consumer(KEY_SHARED, permits=100)
    one, two = bench.publish(make_data(key="road-7"), make_data(key="road-7"))
    second = bench.consumer(KEY_SHARED, permits=100)
    (three,) = bench.publish(make_data(key="road-7"))
    bench.subscription.redeliver(first, [two], -1)
    assert second.session.positions() == []
    bench.ack(first, one)
    assert second.session.positions() == [two, three]


async def test_keys_of_a_leaving_consumer_move_with_what_it_had_in_order(nursery):
    bench = await key_shared(nursery)
    first = bench.consumer(KEY_SHARED, permits=100)
    second = bench.consumer(KEY_SHARED, permits=2)
    positions = bench.publish(*[make_data(key="road-7") for _ in range(5)])
    assert second.session.positions() == positions[:2]
    bench.subscription.remove_consumer(second)
    assert first.session.positions() == positions


async def test_a_consumer_without_permits_does_not_stop_other_keys(nursery):
    bench = await key_shared(nursery)
    bench.consumer(KEY_SHARED, permits=100)
    second = bench.consumer(KEY_SHARED)
    positions = bench.publish(*[make_data(key=key) for key in (LOW + HIGH) * 5])
    first = next(iter(bench.subscription.consumers))
    assert len(first.session.received) == 15
    bench.subscription.flow(second, 100)
    assert second.session.positions() == [p for n, p in enumerate(positions) if n % 6 < 3]


async def test_reading_ahead_is_bounded(nursery):
    bench = await key_shared(
        nursery,
        key_shared_look_ahead_msg_in_replay_threshold_per_consumer=5,
        key_shared_look_ahead_msg_in_replay_threshold_per_subscription=8,
    )
    first = bench.consumer(KEY_SHARED, permits=100)
    second = bench.consumer(KEY_SHARED)
    bench.publish(*[make_data(key="road-7") for _ in range(30)], make_data(key="vehicle-0"))
    assert bench.subscription.statistics().replay_messages == 8
    assert first.session.received == []
    assert "limit" in bench.subscription.why_not_dispatching()
    bench.subscription.flow(second, 100)
    assert len(second.session.received) == 30
    assert len(first.session.received) == 1


async def test_look_ahead_entries_out_of_cache_are_read_again(nursery):
    bench = await key_shared(nursery)
    bench.consumer(KEY_SHARED, permits=100)
    second = bench.consumer(KEY_SHARED)
    positions = bench.publish(*[make_data(key=key) for key in (LOW + HIGH) * 5])
    bench.ledger.cached_from = (9, 0)
    bench.subscription.flow(second, 100)
    await settled()
    assert second.session.positions() == [p for n, p in enumerate(positions) if n % 6 < 3]


async def test_out_of_order_delivery_does_not_wait(nursery):
    options = KeySharedOptions(out_of_order_allowed=True)
    bench = await key_shared(nursery)
    bench.consumer(KEY_SHARED, permits=100, key_shared=options)
    bench.publish(make_data(key="road-7"))
    second = bench.consumer(KEY_SHARED, permits=100, key_shared=options)
    (position,) = bench.publish(make_data(key="road-7"))
    assert second.session.positions() == [position]
    assert bench.subscription.statistics().as_json()["allowOutOfOrderDelivery"] is True


async def test_policies_of_consumers_must_agree(nursery):
    bench = await key_shared(nursery)
    bench.consumer(KEY_SHARED)
    with pytest.raises(BrokerError) as refused:
        bench.consumer(KEY_SHARED, key_shared=sticky((0, 65535)))
    assert refused.value.server_error == ServerError.ConsumerBusy


@pytest.mark.parametrize("ranges", [[], [(5, 4)], [(0, 10), (10, 20)]])
async def test_bad_sticky_ranges_are_refused_and_leave_nothing(nursery, ranges):
    bench = await key_shared(nursery)
    with pytest.raises(BrokerError) as refused:
        bench.consumer(KEY_SHARED, key_shared=sticky(*ranges))
    assert refused.value.server_error == ServerError.ConsumerAssignError
    assert list(bench.subscription.consumers) == []
    bench.consumer(KEY_SHARED, key_shared=sticky((0, 65535)))


async def test_sticky_ranges_may_not_overlap_others(nursery):
    bench = await key_shared(nursery)
    bench.consumer(KEY_SHARED, key_shared=sticky((0, 100)))
    with pytest.raises(BrokerError):
        bench.consumer(KEY_SHARED, key_shared=sticky((200, 300), (50, 60)))
    bench.consumer(KEY_SHARED, key_shared=sticky((200, 300)))


async def test_slots_without_owner_wait_for_one(nursery):
    bench = await key_shared(nursery)
    first = bench.consumer(KEY_SHARED, permits=100, key_shared=sticky((0, 32767)))
    positions = bench.publish(*[make_data(key=key) for key in HIGH + LOW])
    assert first.session.positions() == positions[3:]
    second = bench.consumer(KEY_SHARED, permits=100, key_shared=sticky((32768, 65535)))
    assert second.session.positions() == positions[:3]


async def test_keyless_messages_spread_and_ordering_key_beats_partition_key(nursery):
    bench = await key_shared(nursery)
    consumers = [bench.consumer(KEY_SHARED, permits=1000) for _ in range(2)]
    bench.publish(*[make_data(sequence_id=n) for n in range(100)])
    assert all(len(each.session.received) > 20 for each in consumers)
    (position,) = bench.publish(make_data(key="vehicle-0", ordering_key=b"road-7"))
    assert consumers[1].session.positions()[-1] == position


async def test_base64_keys_hash_by_their_bytes(nursery):
    bench = await key_shared(nursery)
    bench.consumer(KEY_SHARED, permits=100)
    second = bench.consumer(KEY_SHARED, permits=100)
    (position,) = bench.publish(make_data(key="cm9hZC03", partition_key_b64_encoded=True))
    assert second.session.positions() == [position]


async def test_consistent_hashing_serves_all_keys(nursery):
    bench = await key_shared(nursery, subscription_key_shared_use_consistent_hashing=True)
    consumers = [bench.consumer(KEY_SHARED, permits=1000) for _ in range(3)]
    bench.publish(*[make_data(key=str(n)) for n in range(300)])
    received = [len(each.session.received) for each in consumers]
    assert sum(received) == 300
    assert max(received) < 150


async def test_delayed_messages_of_a_key_do_not_hold_it_up(nursery, autojump_clock):
    import trio

    from broker.topics.subscription.tests.fakes import TrioClock

    clock = TrioClock()
    bench = Bench(nursery, clock)
    await bench.open()
    consumer = bench.consumer(KEY_SHARED, permits=100)
    late, now = bench.publish(
        make_data(key="k", deliver_at=clock.wall_ms() + 500), make_data(key="k")
    )
    assert consumer.session.positions() == [now]
    await trio.sleep(0.6)
    assert consumer.session.positions() == [now, late]
