"""After any sequence of events: every consumer gets all entries after its start, in order, and
storage holds exactly the entries that some consumer has not acknowledged."""

from __future__ import annotations

import random

import trio
import trio.testing
from hypothesis import example, given, settings
from hypothesis import strategies as st

from broker.topics.broadcast.statistics import LAGGARD_ENTRIES
from broker.topics.broadcast.tests.world import World, received, settle
from broker.topics.subscription.sub_types import EXCLUSIVE, SHARED
from broker.topics.subscription.tests.fakes import FakeSession

RETENTION_MS = 60_000


class Run:
    """Random operations, and a model: what each name has acknowledged, as a set of indexes."""

    def __init__(self, world, seed):
        self.world = world
        self.random = random.Random(seed)
        self.sessions = [FakeSession() for _ in range(2)]
        self.acked = {}
        self.connected = {}
        self.left_ms = {}
        self.expired = {}
        """What a name had acknowledged when its retention ended."""

    def index(self, position):
        return self.world.ledger.index(position) + 1

    def minimum(self):
        marks = []
        for acked in self.acked.values():
            at = 0
            while at + 1 in acked:
                at += 1
            marks.append(at)
        return min(marks, default=len(self.world.ledger.entries))

    async def join(self):
        name = f"c{self.random.randrange(5)}"
        if name in self.connected:
            return
        world = self.world
        earliest = self.random.random() < 0.4
        start = world.subscription.keeper.marked if earliest else len(world.ledger.entries)
        consumer = await world.join(
            name,
            session=self.random.choice(self.sessions),
            sub_type=self.random.choice((SHARED, EXCLUSIVE)),
            earliest=earliest,
            flow=self.random.choice((0, 2, 1000)),
        )
        self.acked.setdefault(name, set(range(1, start + 1)))
        self.left_ms.pop(name, None)
        self.connected[name] = consumer
        await world.subscription.commit()

    async def leave(self):
        if self.connected:
            name = self.random.choice(sorted(self.connected))
            self.world.subscription.remove_consumer(self.connected.pop(name))
            self.left_ms[name] = self.world.clock.ms

    async def publish(self):
        self.world.publish(self.random.randrange(1, 4))

    async def ack(self):
        for name, consumer in self.connected.items():
            got = received(consumer)
            if not got or self.random.random() < 0.3:
                continue
            position = self.random.choice(got)
            if self.random.random() < 0.4:
                self.world.ack(consumer, position, cumulative=True)
                self.acked[name] |= set(range(1, self.index(position) + 1))
            else:
                self.world.ack(consumer, position)
                self.acked[name].add(self.index(position))

    async def nack(self):
        for consumer in self.connected.values():
            got = received(consumer)
            if got and self.random.random() < 0.5:
                some = self.random.sample(got, min(2, len(got)))
                positions = self.random.choice((None, some))
                self.world.subscription.redeliver(consumer, positions, -1)

    async def seek(self):
        if not self.connected or not self.world.ledger.entries:
            return
        name = self.random.choice(sorted(self.connected))
        entry = self.random.choice(self.world.ledger.entries)
        await self.world.handles[self.connected.pop(name)].seek(entry.position)
        self.acked[name] = set(range(1, self.index(entry.position)))
        self.left_ms[name] = self.world.clock.ms

    async def flow(self):
        for consumer in self.connected.values():
            self.world.subscription.flow(consumer, self.random.randrange(1, 4))

    async def block(self):
        session = self.random.choice(self.sessions)
        session.writable = not session.writable
        if session.writable:
            for consumer in self.connected.values():
                self.world.subscription.on_writable(consumer)

    async def time_passes(self):
        self.world.clock.ms += self.random.choice((1_000, 30_000))
        self.world.subscription.keeper.expire()
        for name in [
            name
            for name, left in self.left_ms.items()
            if self.world.clock.ms - left >= RETENTION_MS
        ]:
            del self.left_ms[name]
            self.expired[name] = self.acked.pop(name)

    async def restart(self):
        subscription = self.world.subscription
        marked = subscription.keeper.marked
        crashed = self.random.random() >= 0.5
        if crashed:
            await self.world.crash()
        else:
            subscription.keeper.changed()
            await subscription.close()
            await self.world.open()
        for name in self.connected:
            self.left_ms[name] = self.world.clock.ms
        self.connected.clear()
        self.sessions = [FakeSession() for _ in range(2)]
        cursors, ordinals = self.world.subscription.cursors, self.world.subscription.ordinals
        if crashed:
            self.remember_what_was_not_stored(cursors, marked)
        for name in self.left_ms:
            slot = cursors.slot_of(name)
            assert slot is not None, f"{name} is forgotten"
            kept_until_ms = round(1000 * cursors.deadline_of(slot))
            # No consumer could return meanwhile.
            assert kept_until_ms == self.world.clock.ms + RETENTION_MS
            self.left_ms[name] = kept_until_ms - RETENTION_MS
            stored = {
                number for number in range(1, ordinals.tail + 1) if cursors.is_acked(slot, number)
            }
            assert stored <= self.acked[name], f"{name} resumes after its last ack"
            self.acked[name] = stored

    def remember_what_was_not_stored(self, cursors, marked):
        """A crash may undo the end of a retention that was not stored yet: it begins again.

        The consumer resumes at or before its last ack, or at the main cursor if that has moved on.
        """
        for name in self.expired.keys() - self.acked.keys():
            if cursors.slot_of(name) is not None:
                self.acked[name] = self.expired[name] | set(range(1, marked + 1))
                self.left_ms[name] = self.world.clock.ms

    async def check(self):
        self.check_statistics()
        await settle()
        world = self.world
        if self.acked:
            assert world.subscription.keeper.marked == self.minimum()
            assert self.index(world.subscription.cursor.mark_delete) == max(1, self.minimum()) or (
                world.subscription.keeper._lowering
            )

    def check_statistics(self):
        """The counts derived from groups equal a count of each consumer."""
        subscription = self.world.subscription
        groups, attached = subscription.groups, subscription.attached
        shown = subscription.statistics()
        assert shown.unacked_messages == sum(map(groups.unacked, attached.values()))
        newest = subscription.ordinals.tail - LAGGARD_ENTRIES
        laggards = sum(groups.sent[slot] < newest for slot in attached.values())
        assert shown.details["broadcast"]["laggards"] == laggards

    async def finish(self):
        """With permits and room for all, nothing is owed."""
        await self.join()
        for session in self.sessions:
            session.writable = True
        for consumer in self.connected.values():
            self.world.subscription.flow(consumer, 10_000)
            self.world.subscription.on_writable(consumer)
        await settle()
        total = len(self.world.ledger.entries)
        for name, consumer in self.connected.items():
            got = [self.index(position) for position in received(consumer)]
            owed = set(range(1, total + 1)) - self.acked[name]
            assert owed <= set(got), f"{name} did not get {sorted(owed - set(got))}"
            first_times = list(dict.fromkeys(got))
            assert first_times == sorted(first_times), f"{name} got {first_times}"
            self.world.ack(consumer, *received(consumer))
        self.world.clock.ms += 2 * RETENTION_MS
        self.world.subscription.keeper.expire()
        assert self.world.subscription.backlog_entries == 0
        assert self.world.ledger.cursors["all"].backlog_entries == 0


OPERATIONS = [
    "join",
    "leave",
    "publish",
    "ack",
    "nack",
    "seek",
    "flow",
    "block",
    "time_passes",
    "restart",
]


@settings(max_examples=120, deadline=None)
@example(["leave", "time_passes", "time_passes", "restart", "publish", "join"], 0)
@given(st.lists(st.sampled_from(OPERATIONS), min_size=1, max_size=40), st.integers(0, 1_000_000))
def test_nothing_is_owed_and_nothing_is_held_in_vain(operations, seed):
    async def main():
        async with trio.open_nursery() as nursery:
            run = Run(World(nursery), seed)
            await run.world.open()
            await run.join()
            for name in operations:
                await getattr(run, name)()
                await run.check()
            await run.finish()
            await run.world.subscription.close()
            nursery.cancel_scope.cancel()

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
