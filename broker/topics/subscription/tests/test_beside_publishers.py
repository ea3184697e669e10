"""Delivery beside publishers that use the whole loop: counted, with a simulated clock."""

from __future__ import annotations

import os

import pytest
import trio

from broker.topics.subscription.sub_types import EXCLUSIVE, FAILOVER, KEY_SHARED, SHARED
from broker.topics.subscription.tests.fakes import Bench, FakeSession, make_data, settled
from runtime import readers as module
from runtime.readers import Readers
from runtime.testing.conditions import SECONDS_MAX

CALLS = 20
PUBLISHED_PER_CALL = 250
CALL_SECONDS = 0.001
"""Of a chunk of these messages. It ends a turn of the readers."""
DELIVERY_SECONDS = 0.000006
"""Of a message. To take it from its publisher takes 4 us."""
CONSUMERS = 4
PERMITS = 1_000_000


class Load:
    """A publisher whose socket always has another chunk, and the time that everything takes."""

    def __init__(self, monkeypatch):
        self.seconds = 0.0
        monkeypatch.setattr(module, "monotonic", lambda: self.seconds)
        self.readers = Readers()
        self.calls = 0
        self.benches = []
        self.sessions = []
        self.at_end = []
        """What was delivered to each session when the publisher ended."""
        self.ended = trio.Event()
        self._descriptor = os.eventfd(1, os.EFD_NONBLOCK)
        self._data = [make_data(key=f"key {number}") for number in range(PUBLISHED_PER_CALL)]

    async def subscription(self, nursery, sub_type, consumers=CONSUMERS, permits=PERMITS):
        bench = Bench(nursery)
        await bench.open()
        for _ in range(consumers):
            session = FakeSession(on_message=self._delivered)
            bench.consumer(sub_type, permits=permits, session=session)
            self.sessions.append(session)
        self.benches.append(bench)
        return bench

    def _delivered(self, _message):
        self.seconds += DELIVERY_SECONDS

    def _call(self):
        if self.calls == CALLS:
            return 0
        self.calls += 1
        self.seconds += CALL_SECONDS
        for bench in self.benches:
            bench.publish(*self._data)
        if self.calls == CALLS:
            self.at_end = [len(session.received) for session in self.sessions]
            self.ended.set()
        else:
            self.readers.call_again(self._descriptor)
        return module.LITTLE_BYTES + 1

    async def run(self, nursery):
        self.readers.add(self._descriptor, self._call)
        try:
            with trio.fail_after(SECONDS_MAX):
                nursery.start_soon(self.readers.run)
                await self.ended.wait()
                await settled()
        finally:
            os.close(self._descriptor)


@pytest.mark.parametrize(
    ("sub_type", "consumers"),
    [(EXCLUSIVE, 1), (FAILOVER, CONSUMERS), (SHARED, CONSUMERS), (KEY_SHARED, CONSUMERS)],
)
async def test_consumers_get_what_is_published_at_full_rate(
    nursery, monkeypatch, sub_type, consumers
):
    load = Load(monkeypatch)
    await load.subscription(nursery, sub_type, consumers)
    await load.run(nursery)
    published = CALLS * PUBLISHED_PER_CALL
    assert sum(load.at_end) >= 0.9 * published
    assert sum(len(session.received) for session in load.sessions) == published


async def test_many_subscriptions_that_lag_share_what_delivery_gets(nursery, monkeypatch):
    load = Load(monkeypatch)
    count = 8
    for _ in range(count):
        await load.subscription(nursery, SHARED, 1)
    await load.run(nursery)
    share = module.STEPS_SHARE * CALLS * CALL_SECONDS / DELIVERY_SECONDS / count
    step = load.benches[0].context.config.dispatcher_max_read_batch_size
    # The first step of each subscription follows the news of entries at once, before it lags.
    assert max(load.at_end) - min(load.at_end) <= 2 * step
    assert min(load.at_end) >= share - 2 * step


@pytest.mark.parametrize("sub_type", [EXCLUSIVE, SHARED, KEY_SHARED])
async def test_a_subscription_without_permits_takes_no_time(nursery, monkeypatch, sub_type):
    load = Load(monkeypatch)
    await load.subscription(nursery, sub_type, 1, permits=0)
    await load.run(nursery)
    assert load.seconds == pytest.approx(CALLS * CALL_SECONDS)
    assert not load.readers.has_steps()


@pytest.mark.parametrize("sub_type", [EXCLUSIVE, SHARED, KEY_SHARED])
async def test_messages_to_be_delivered_again_are_beside_publishers(nursery, monkeypatch, sub_type):
    load = Load(monkeypatch)
    bench = await load.subscription(nursery, sub_type, 1)
    old = bench.publish(*[make_data(key=f"old {number}") for number in range(1_000)])
    await settled()
    [session], [consumer] = load.sessions, bench.subscription.consumers
    session.take()
    load.seconds = 0.0
    bench.subscription.redeliver(consumer, None, 0)
    await load.run(nursery)
    assert load.at_end[0] >= 0.9 * CALLS * PUBLISHED_PER_CALL
    assert [each.position for each in session.received[: len(old)]] == old
