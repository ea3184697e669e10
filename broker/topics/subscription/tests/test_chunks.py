"""Shared: the chunks of a message go to one consumer, in order, whatever happens."""

from __future__ import annotations

import random

import trio
import trio.testing
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from broker.topics.subscription.chunks import WHOLE, ChunksWaiting, chunk_slot
from broker.topics.subscription.sub_types import SHARED
from broker.topics.subscription.tests.fakes import Bench, FakeLedger, make_data
from protocol.metadata import peek
from runtime.testing.conditions import SECONDS_MAX


def chunk(name, chunk_id, count, **fields):
    return make_data(
        sequence_id=int(name),
        uuid=f"p-{name}",
        chunk_id=chunk_id,
        num_chunks_from_msg=count,
        **fields,
    )


def chunks_of(name, count=4):
    return [chunk(name, each, count) for each in range(count)]


def interleaved(*messages):
    return [each for row in zip(*messages, strict=True) for each in row]


async def shared(nursery, **config):
    bench = Bench(nursery, **config)
    await bench.open()
    return bench


def seen(consumer):
    """(message, chunk) in the order of their arrival, without what came again."""
    found = [peek(each.data) for each in consumer.session.received]
    return list(dict.fromkeys((each.uuid, each.chunk_id) for each in found))


def whole(consumer, count=4):
    """The messages that a client puts together, which drops a chunk out of order."""
    progress = {}
    for name, chunk_id in seen(consumer):
        if chunk_id == progress.get(name, 0):
            progress[name] = chunk_id + 1
    return {name for name, done in progress.items() if done == count}


async def test_the_chunks_of_two_producers_reach_one_consumer_each(nursery):
    bench = await shared(nursery)
    consumers = [bench.consumer(permits=100) for _ in range(3)]
    for number in range(0, 60, 2):
        for data in interleaved(chunks_of(number), chunks_of(number + 1)):
            bench.publish(data)
    found = [whole(each) for each in consumers]
    assert len(set.union(*found)) == sum(map(len, found)) == 60
    assert all(found)  # the messages take turns
    assert sum(len(each.session.received) for each in consumers) == 240


async def test_chunks_in_a_backlog_reach_one_consumer_each(nursery):
    bench = await shared(nursery)
    bench.publish(*interleaved(*(chunks_of(number) for number in range(20))))
    consumers = [bench.consumer() for _ in range(3)]
    for each in consumers:
        bench.subscription.flow(each, 100)
    await trio.testing.wait_all_tasks_blocked()
    assert len(set.union(*map(whole, consumers))) == 20


async def test_messages_between_chunks_take_turns_as_ever(nursery):
    bench = await shared(nursery)
    consumers = [bench.consumer(permits=100) for _ in range(2)]
    for data in chunks_of(1, 10):
        bench.publish(data)
        bench.publish(make_data())
    plain = [[each for each in c.session.received if not peek(each.data).uuid] for c in consumers]
    assert [len(each) for each in plain] == [5, 5]


async def test_a_chunk_waits_for_its_consumer_and_holds_up_nobody(nursery):
    """pulsar_25120: a receiver queue smaller than the message."""
    bench = await shared(nursery)
    slow = bench.consumer(permits=1)
    bench.publish(*chunks_of(1))
    other = bench.consumer(permits=100)
    bench.publish(make_data(), *chunks_of(2))
    assert whole(other) == {"p-2"}
    assert len(other.session.received) == 5
    assert len(slow.session.received) == 1
    assert "3 chunks wait" in bench.subscription.dispatcher.why()
    for _ in range(3):
        bench.subscription.flow(slow, 1)
    assert whole(slow) == {"p-1"}
    assert bench.subscription.dispatcher.replay_messages == 0


async def test_another_consumer_gets_all_chunks_when_theirs_leaves(nursery):
    bench = await shared(nursery)
    leaving = bench.consumer(permits=2)
    bench.publish(*chunks_of(1))
    consumers = [bench.consumer(permits=100) for _ in range(2)]
    bench.subscription.remove_consumer(leaving)
    assert sorted(len(whole(each)) for each in consumers) == [0, 1]
    assert sorted(len(each.session.received) for each in consumers) == [0, 4]


async def test_chunks_that_are_asked_for_again_go_to_one_consumer(nursery):
    bench = await shared(nursery)
    first = bench.consumer(permits=3)
    bench.publish(*chunks_of(1))
    other = bench.consumer(permits=100)
    bench.subscription.redeliver(first, None, -1)
    assert whole(other) == {"p-1"}
    assert len(first.session.received) == 3


async def test_a_chunk_that_comes_again_goes_where_the_others_are(nursery):
    bench = await shared(nursery)
    first = bench.consumer(permits=100)
    positions = bench.publish(*chunks_of(1))
    other = bench.consumer(permits=100)
    bench.subscription.redeliver(first, positions[-1:], -1)
    assert first.session.positions() == [*positions, positions[-1]]
    assert not other.session.received


async def test_chunks_are_read_again_in_the_order_of_their_message(nursery):
    bench = await shared(nursery)
    slow = bench.consumer(permits=1)
    bench.publish(*chunks_of(1, 30))
    bench.ledger.cached_from = bench.ledger.last_confirmed
    bench.subscription.flow(slow, 100)
    await trio.testing.wait_all_tasks_blocked()
    assert [each for _, each in seen(slow)] == list(range(30))


async def test_chunks_of_several_messages_are_each_read_once_for_a_consumer_that_takes_one(nursery):
    bench = await shared(nursery)
    slow = bench.consumer(permits=3)
    bench.publish(*interleaved(chunks_of(1), chunks_of(2), chunks_of(3)))
    bench.consumer(permits=100)
    bench.ledger.cached_from = bench.ledger.last_confirmed
    await trio.testing.wait_all_tasks_blocked()
    before = bench.ledger.reads
    for _ in range(9):
        bench.subscription.flow(slow, 1)
        with trio.fail_after(SECONDS_MAX):
            await trio.testing.wait_all_tasks_blocked()
    assert whole(slow) == {"p-1", "p-2", "p-3"}
    assert bench.ledger.reads - before <= 9


async def test_chunks_acked_while_they_wait_are_not_sent(nursery):
    bench = await shared(nursery)
    slow = bench.consumer(permits=1)
    other = bench.consumer()
    positions = bench.publish(*chunks_of(1))
    bench.ack(other, *positions[1:3])
    bench.subscription.flow(slow, 100)
    assert slow.session.positions() == [positions[0], positions[3]]


BOUND = "key_shared_look_ahead_msg_in_replay_threshold_per_subscription"


async def test_streams_of_chunks_that_never_end_stay_bounded_and_hold_up_nobody(nursery):
    bench = await shared(nursery, **{BOUND: 50})
    slow = bench.consumer(permits=1)
    bench.publish(chunk(0, 0, 1_000))
    other = bench.consumer(permits=10_000)
    bench.publish(*(chunk(0, each, 1_000) for each in range(1, 300)))
    bench.publish(*(make_data() for _ in range(100)), *chunks_of(1))
    await trio.testing.wait_all_tasks_blocked()
    dispatcher = bench.subscription.dispatcher
    assert dispatcher.replay_messages <= 50
    assert len(other.session.received) == 104
    assert whole(other) == {"p-1"}
    for _ in range(300):
        bench.subscription.flow(slow, 1)
        await trio.testing.wait_all_tasks_blocked()
        assert dispatcher.replay_messages <= 50
    assert [each for _, each in seen(slow)] == list(range(300))
    assert len(slow.session.received) == 300
    assert len(other.session.received) == 104
    bench.publish(*(chunk(number, 0, 2) for number in range(2, 1_000)))
    bench.ack(slow, *(e.position for e in bench.ledger.entries))
    assert not dispatcher._in_flight._slots  # nothing is kept of what is acked
    assert not dispatcher._in_flight._drained
    assert not dispatcher._passed


async def test_chunks_that_were_passed_go_to_another_consumer_when_theirs_leaves(nursery):
    bench = await shared(nursery, **{BOUND: 2})
    slow = bench.consumer(permits=1)
    bench.publish(*chunks_of(1, 20))
    other = bench.consumer(permits=100)
    bench.publish(make_data(), *chunks_of(2))
    assert len(other.session.received) == 5
    bench.subscription.remove_consumer(slow)
    await trio.testing.wait_all_tasks_blocked()
    assert whole(other, 20) == {"p-1"}
    assert len(other.session.received) == 25


async def test_chunks_that_expired_while_they_wait_do_not_wait_any_more(nursery):
    bench = await shared(nursery, **{BOUND: 3})
    bench.consumer(permits=1)
    bench.publish(*chunks_of(1, 20))
    other = bench.consumer(permits=100)
    dispatcher = bench.subscription.dispatcher
    assert dispatcher.replay_messages == 3
    *_, last = (each.position for each in bench.ledger.entries)
    bench.subscription.cursor.ack_cumulative(last)
    dispatcher.skip_to((last[0], last[1] + 1))
    assert dispatcher.replay_messages == 0
    assert not dispatcher._passed
    bench.publish(*chunks_of(2))
    assert whole(other) == {"p-2"}


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 2**32), st.sampled_from([1, 2, 5]), st.booleans())
def test_each_message_is_delivered_once_and_whole_however_few_chunks_may_wait(seed, bound, cached):
    rng = random.Random(seed)

    async def scenario():
        async with trio.open_nursery() as nursery:
            bench = await shared(nursery, **{BOUND: bound})
            unsent = [chunks_of(number, 5) for number in range(8)]
            plain = 0
            for _ in range(100):
                todo = [each for each in unsent if each]
                consumers = list(bench.subscription.consumers)
                what = rng.choice(("publish", "publish", "publish", "plain", "join", "flow"))
                if what == "publish" and todo:
                    bench.publish(rng.choice(todo).pop(0))
                elif what == "plain":
                    bench.publish(make_data())
                    plain += 1
                elif what == "join" and len(consumers) < 3:
                    bench.consumer(SHARED, permits=rng.choice((1, 3)))
                elif what == "flow" and consumers:
                    bench.subscription.flow(rng.choice(consumers), rng.choice((1, 2, 5)))
                if not cached:
                    bench.ledger.cached_from = bench.ledger.last_confirmed
                    await trio.testing.wait_all_tasks_blocked()
                if consumers:
                    assert len(bench.subscription.dispatcher._chunks) <= bound
            bench.publish(*(data for rest in unsent for data in rest))
            consumers = list(bench.subscription.consumers) or [bench.consumer(SHARED)]
            for consumer in consumers:
                bench.subscription.flow(consumer, 1_000)
            await trio.testing.wait_all_tasks_blocked()
            found = [whole(each, 5) for each in consumers]
            assert set.union(*found) == {f"p-{number}" for number in range(8)}
            assert sum(len(each.session.received) for each in consumers) == 40 + plain
            nursery.cancel_scope.cancel()

    trio.run(scenario)


async def test_due_chunks_stay_together(nursery):
    bench = await shared(nursery)
    consumers = [bench.consumer(permits=100) for _ in range(3)]
    due = bench.clock.ms + 1_000
    data = interleaved(
        *([chunk(n, each, 4, deliver_at_time=due) for each in range(4)] for n in (1, 2))
    )
    for each in data:
        bench.publish(each)
    assert not any(each.session.received for each in consumers)
    bench.clock.ms += 2_000
    bench.subscription.tail_moved()
    assert sum(len(whole(each)) for each in consumers) == 2


def test_only_a_chunk_has_a_slot():
    ledger = FakeLedger()
    ledger.append(
        chunk(1, 0, 2), chunk(1, 1, 2), chunk(2, 0, 2), make_data(), b"\x0e\x01", b"x" * 40
    )
    slots = [chunk_slot(entry) for entry in ledger.entries]
    assert slots[0] == slots[1] >= 0
    assert slots[2] not in (slots[0], WHOLE)
    assert slots[3:] == [WHOLE] * 3


async def test_what_waits_is_given_out_in_order_and_once(nursery):
    bench = await shared(nursery)
    one, other = (bench.consumer(SHARED, permits=1) for _ in range(2))
    waiting = ChunksWaiting()
    for number in (3, 1, 2):
        waiting.add(one, (0, number), 7)
    waiting.add(one, (0, 0), 8)
    waiting.add(other, (0, 9), 9)
    waiting.discard((0, 2))
    assert len(waiting) == 4
    assert waiting.take(one, 1) == [((0, 1), 7)]
    assert waiting.take(one, 10) == [((0, 0), 8), ((0, 3), 7)]
    assert waiting.take(one, 10) == []
    assert waiting.release(9) == [(0, 9)]
    assert (len(waiting), waiting.take(other, 1)) == (0, [])


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 2**32))
def test_every_message_is_whole_at_a_consumer_in_the_end(seed):
    """Consumers come, leave, take little and ask again. At the end two take and ack all."""
    rng = random.Random(seed)

    async def scenario():
        async with trio.open_nursery() as nursery:
            bench = await shared(nursery, **{BOUND: rng.choice((1, 3, 20_000))})
            unsent = [chunks_of(number, 5) for number in range(6)]
            for _ in range(60):
                todo = [each for each in unsent if each]
                consumers = list(bench.subscription.consumers)
                what = rng.choice(("publish", "publish", "join", "leave", "flow", "flow", "again"))
                if what == "publish" and todo:
                    bench.publish(rng.choice(todo).pop(0))
                elif what == "join" and len(consumers) < 3:
                    bench.consumer(SHARED, permits=rng.choice((1, 3)))
                elif what == "leave" and consumers:
                    bench.subscription.remove_consumer(rng.choice(consumers))
                elif what == "flow" and consumers:
                    bench.subscription.flow(rng.choice(consumers), rng.choice((1, 2, 5)))
                elif what == "again" and consumers:
                    bench.subscription.redeliver(rng.choice(consumers), None, -1)
            for consumer in list(bench.subscription.consumers):
                bench.subscription.remove_consumer(consumer)
            last = [bench.consumer(SHARED, permits=1_000) for _ in range(2)]
            for data in [each for rest in unsent for each in rest]:
                bench.publish(data)
            await trio.testing.wait_all_tasks_blocked()
            found = [whole(each, 5) for each in last]
            assert set.union(*found) == {f"p-{number}" for number in range(6)}
            assert not set.intersection(*found)
            bench.ack(last[0], *(each.position for each in bench.ledger.entries))
            assert bench.subscription.backlog_entries == 0
            nursery.cancel_scope.cancel()

    trio.run(scenario)
