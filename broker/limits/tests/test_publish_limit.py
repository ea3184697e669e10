"""A publish rate: who waits, in which order, and how much passes. The clock is trio's."""

from __future__ import annotations

import trio

from broker.limits.publish_limit import PublishLimit


class TrioClock:
    """So that the clock of a test moves it."""

    def now(self):
        return trio.current_time()

    def wall_ms(self):
        return int(trio.current_time() * 1000)


class Flooding:
    """A connection that always has another message."""

    def __init__(self, limit, messages=1, size_bytes=100, left=10**9):
        self.limit = limit
        self.amounts = (messages, size_bytes)
        self.left = left
        self.sent = []

    def publish(self):
        while self.left:
            if not self.limit.admits(self, *self.amounts):
                return
            self._sent()

    def publish_admitted(self):
        self._sent()
        self.publish()

    def _sent(self):
        self.left -= 1
        self.sent.append(trio.current_time())

    @property
    def total(self):
        messages, size_bytes = self.amounts
        return len(self.sent) * messages, len(self.sent) * size_bytes


def limit_of(nursery, messages=0, size_bytes=0):
    return PublishLimit(messages, size_bytes, TrioClock(), lambda: nursery)


async def test_a_rate_in_messages_and_one_in_bytes_are_held_over_a_minute(nursery, autojump_clock):
    by_count = Flooding(limit_of(nursery, messages=1_000))
    by_bytes = Flooding(limit_of(nursery, size_bytes=1_000_000), messages=20, size_bytes=10_000)
    for each in (by_count, by_bytes):
        each.publish()
    await trio.sleep(60)
    for each in (by_count, by_bytes):
        each.left = 0
    assert 60_000 * 0.98 <= by_count.total[0] <= 60_000 * 1.02
    assert 60_000_000 * 0.98 <= by_bytes.total[1] <= 60_000_000 * 1.02


async def test_those_that_wait_get_their_turns_in_order(nursery, autojump_clock):
    limit = limit_of(nursery, messages=1)
    senders = [Flooding(limit) for _ in range(5)]
    for each in senders:
        each.publish()
    await trio.sleep(20.5)
    for each in senders:
        each.left = 0
    counts = [len(each.sent) for each in senders]
    assert sum(counts) == 21  # the one of the burst, and one a second
    assert max(counts) - min(counts) <= 1


async def test_a_batch_counts_as_its_messages_and_is_waited_for_afterwards(nursery, autojump_clock):
    limit = limit_of(nursery, messages=10)
    sender = Flooding(limit, messages=30, left=3)
    start = trio.current_time()
    sender.publish()
    await trio.sleep(10)
    assert [round(at - start) for at in sender.sent] == [0, 3, 6]


async def test_who_leaves_while_it_waits_is_not_waited_for(nursery, autojump_clock):
    limit = limit_of(nursery, messages=1)
    first, gone, last = (Flooding(limit, left=2) for _ in range(3))
    for each in (first, gone, last):
        each.publish()
    limit.forget(gone)
    await trio.sleep(10)
    assert (len(first.sent), len(gone.sent), len(last.sent)) == (2, 0, 2)
    assert limit.times_held == 4


async def test_within_the_rate_nobody_waits_and_no_task_runs(nursery, autojump_clock):
    limit = limit_of(nursery, messages=10)
    sender = Flooding(limit, left=10)
    sender.publish()
    assert (len(sender.sent), limit.times_held) == (10, 0)
    assert not nursery.child_tasks


async def test_another_rate_holds_at_once_for_those_that_wait(nursery, autojump_clock):
    limit = limit_of(nursery, messages=1)
    first, second = (Flooding(limit, left=6) for _ in range(2))
    first.publish()
    second.publish()
    await trio.sleep(0.5)
    assert len(first.sent) + len(second.sent) == 1
    limit.use(10, 0)
    await trio.sleep(1.0)
    assert len(first.sent) + len(second.sent) == 11
    limit.use(0, 0)
    await trio.sleep(0.01)
    assert len(first.sent) + len(second.sent) == 12
    assert not nursery.child_tasks


async def test_a_rate_that_changes_often_lets_no_more_pass(nursery, autojump_clock):
    limit = limit_of(nursery, messages=10)
    sender = Flooding(limit)
    sender.publish()
    for number in range(50):
        await trio.sleep(0.1)
        limit.use(10 + number % 2 / 1000, 0)
    assert len(sender.sent) <= 10 + 51
