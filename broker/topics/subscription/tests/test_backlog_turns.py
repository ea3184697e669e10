"""Many backlogs at once: a round of the event loop sends a few slices, whoever asks."""

from __future__ import annotations

import trio

from broker.topics.subscription.config import SLICE_BYTES_MAX
from broker.topics.subscription.sub_types import EXCLUSIVE
from broker.topics.subscription.tests.fakes import Bench, FakeSession, make_data, settled
from runtime.rounds import HEAVY_PER_ROUND

ENTRY_BYTES = 10_000
ENTRIES = 100
SUBSCRIPTIONS = 20
SLICE_ENTRIES = SLICE_BYTES_MAX // ENTRY_BYTES + 1


class SentByRound(trio.abc.Instrument):
    """Messages of each round of the loop."""

    def __init__(self):
        self.messages = [0]

    def after_io_wait(self, timeout):
        self.messages.append(0)

    def add(self, _message):
        self.messages[-1] += 1


async def backlogs(nursery, count, sent):
    """Subscriptions with a backlog and a full connection, and their consumers."""
    found = []
    for _ in range(count):
        bench = Bench(nursery)
        await bench.open()
        bench.publish(*[make_data(payload=bytes(ENTRY_BYTES)) for _ in range(ENTRIES)])
        session = FakeSession(writable=False, on_message=sent.add)
        found.append((bench, bench.consumer(EXCLUSIVE, permits=1_000, session=session)))
    return found


async def test_a_connection_with_room_again_serves_its_backlogs_slice_by_slice(nursery):
    sent = SentByRound()
    served = await backlogs(nursery, SUBSCRIPTIONS, sent)
    trio.lowlevel.add_instrument(sent)
    for bench, consumer in served:
        consumer.session.writable = True
        bench.subscription.on_writable(consumer)
    assert sum(sent.messages) == 0
    await settled()
    trio.lowlevel.remove_instrument(sent)
    assert sum(sent.messages) == SUBSCRIPTIONS * ENTRIES
    assert max(sent.messages) <= HEAVY_PER_ROUND * SLICE_ENTRIES
    for bench, consumer in served:
        assert consumer.session.positions() == [each.position for each in bench.ledger.entries]


async def test_a_step_sends_a_slice_of_large_entries(nursery):
    sent = SentByRound()
    [(bench, consumer)] = await backlogs(nursery, 1, sent)
    consumer.session.writable = True
    bench.subscription.flow(consumer, 1)
    assert len(consumer.session.received) == SLICE_ENTRIES
    await settled()
    assert len(consumer.session.received) == ENTRIES


async def test_a_backlog_beside_many_others_has_its_turn(nursery):
    """Nobody waits for another one's whole backlog."""
    sent = SentByRound()
    served = await backlogs(nursery, SUBSCRIPTIONS, sent)
    for bench, consumer in served:
        consumer.session.writable = True
        bench.subscription.on_writable(consumer)
    while not all(consumer.session.received for _, consumer in served):
        await trio.lowlevel.checkpoint()
    assert max(len(consumer.session.received) for _, consumer in served) <= 3 * SLICE_ENTRIES
    await settled()


async def test_news_between_the_last_step_of_a_task_and_its_end_are_dispatched(nursery):
    sent = SentByRound()
    [(bench, consumer)] = await backlogs(nursery, 1, sent)
    consumer.session.writable = True
    bench.subscription.on_writable(consumer)
    for _ in range(50):  # rounds; the task ends in one of them
        bench.publish(make_data())
        await trio.lowlevel.checkpoint()
        if not bench.subscription.pump.waiting:
            break
    assert not bench.subscription.pump.waiting
    await settled()
    assert consumer.session.positions() == [each.position for each in bench.ledger.entries]
