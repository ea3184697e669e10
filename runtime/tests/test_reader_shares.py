"""What a turn of the readers handles when very many connections want one: counted, not timed."""

from __future__ import annotations

import os
from contextlib import contextmanager
from functools import partial

from runtime import readers as module
from runtime.readers import CALL_BYTES, ENDED_PER_TURN, QUANTUM_BYTES, Readers
from runtime.testing.conditions import eventually
from runtime.tests.test_readers import running
from runtime.transport import Taken

HOUR_SECONDS = 3_600.0


@contextmanager
def ready(readers, calls, count, share, size_bytes=1, *, leaves=False):
    """So many descriptors of a share that are always found once more after their call."""
    descriptors = [os.eventfd(1, os.EFD_NONBLOCK) for _ in range(count)]

    def add(descriptor):
        def call():
            calls.append(share)
            if leaves:
                readers.remove(descriptor, call)
            else:
                readers.call_again(descriptor)
            return size_bytes

        readers.add(descriptor, call, share)

    for descriptor in descriptors:
        add(descriptor)
    try:
        yield descriptors
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def turn(readers):
    readers._find()
    readers._call_found()


async def test_one_connection_waits_for_one_quantum_of_a_thousand_of_another_tenant(monkeypatch):
    now = [0.0]

    def current_time():
        now[0] += module.TURN_SECONDS / 50
        return now[0]

    monkeypatch.setattr(module, "monotonic", current_time)
    readers, calls = Readers(), []
    with ready(readers, calls, 1_000, "flood"):
        for _ in range(5):
            turn(readers)
        with ready(readers, calls, 1, "quiet"):
            calls.clear()
            turn(readers)
            assert "quiet" in calls[: QUANTUM_BYTES // CALL_BYTES + 1]
            for _ in range(20):
                turn(readers)
            assert calls.count("quiet") >= len(calls) // 4


async def test_what_comes_during_a_turn_is_called_in_it_before_more_of_a_flood(monkeypatch):
    now = [0.0]

    def current_time():
        now[0] += 2 * module.LOOK_SECONDS
        return now[0]

    monkeypatch.setattr(module, "monotonic", current_time)
    monkeypatch.setattr(module, "TURN_SECONDS", HOUR_SECONDS)
    readers, calls = Readers(), []
    quiet, flood = (os.eventfd(0, os.EFD_NONBLOCK) for _ in range(2))

    def call_quiet():
        calls.append("quiet")
        return 1

    def call_flood():
        calls.append("flood")
        if len(calls) == 10:
            os.eventfd_write(quiet, 1)
        if len(calls) < 20:
            readers.call_again(flood)
        return QUANTUM_BYTES

    try:
        readers.add(quiet, call_quiet, "quiet")
        readers.add(flood, call_flood, "flood")
        os.eventfd_write(flood, 1)
        turn(readers)
        assert calls.index("quiet") == 10
        assert len(calls) == 20
    finally:
        os.close(quiet)
        os.close(flood)


async def test_shares_are_by_bytes_and_by_count(monkeypatch):
    """Chunks of one tenant beside many small requests of another."""
    now = [0.0]

    def current_time():
        now[0] += module.TURN_SECONDS / 50
        return now[0]

    monkeypatch.setattr(module, "monotonic", current_time)
    readers, calls = Readers(), []
    large = module.SHARED_CHUNK_BYTES
    with ready(readers, calls, 1, "large", large), ready(readers, calls, 100, "small"):
        for _ in range(100):
            turn(readers)
        used = {
            "large": calls.count("large") * (large + CALL_BYTES),
            "small": calls.count("small") * (1 + CALL_BYTES),
        }
        assert 0.8 < used["large"] / used["small"] < 1.25


async def test_a_turn_wakes_few_tasks_of_connections_that_end_together(monkeypatch):
    monkeypatch.setattr(module, "TURN_SECONDS", HOUR_SECONDS)
    readers, calls = Readers(), []
    with ready(readers, calls, 500, "leaving", leaves=True):
        turns = []
        while len(readers):
            calls.clear()
            turn(readers)
            turns.append(len(calls))
    assert max(turns) == ENDED_PER_TURN


async def test_chunks_are_small_while_several_tenants_are_served(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(module, "monotonic", lambda: now[0])
    readers, calls, sizes = Readers(), [], []
    descriptor = os.eventfd(1, os.EFD_NONBLOCK)

    def call():
        sizes.append(readers.chunk_bytes_max)
        now[0] += module.TURN_SECONDS
        return 1

    try:
        readers.add(descriptor, call, "flood")

        def flood():
            readers.call_again(descriptor)
            turn(readers)

        now[0] = HOUR_SECONDS
        turn(readers)
        now[0] += 2 * module.SHARED_SECONDS
        flood()
        assert sizes[-1] == module.CHUNK_BYTES_MAX
        with ready(readers, calls, 1, "quiet", leaves=True):
            readers._find()
            flood()
            flood()
        assert calls == ["quiet"]
        assert sizes[-1] == module.SHARED_CHUNK_BYTES
        now[0] += 2 * module.SHARED_SECONDS
        flood()
        assert sizes[-1] == module.CHUNK_BYTES_MAX
        readers.remove(descriptor, call)
    finally:
        os.close(descriptor)


async def test_what_came_before_the_peer_closed_and_the_end_are_both_read():
    async with running() as (readers, nursery, new_pair):
        pair = new_pair()
        pair.peer.sendall(b"last words")
        pair.peer.close()
        nursery.start_soon(pair.transport.receive_into, pair.take)
        await eventually(lambda: pair.got == [b"last words", b""])
        await eventually(lambda: len(readers) == 0)


async def test_what_comes_while_a_piece_is_handled_in_parts_is_read_afterwards():
    async with running() as (_readers, nursery, new_pair):
        pair = new_pair()
        got = []

        def take(data):
            got.append(data)
            if len(got) == 2:
                pair.peer.sendall(b"second")
            return Taken.IN_PART if len(got) < 5 else Taken.WHOLE

        pair.peer.sendall(b"first")
        nursery.start_soon(pair.transport.receive_into, take)
        await eventually(lambda: len(got) == 6)
        assert got == [b"first", None, None, None, None, b"second"]


class Work:
    """A long work whose steps take so much of a simulated time, beside connections whose calls do,
    too."""

    def __init__(self, monkeypatch, step_seconds, call_seconds):
        self.now = 0.0
        self.steps = []
        self.calls = 0
        self._step_seconds = step_seconds
        self._call_seconds = call_seconds
        monkeypatch.setattr(module, "monotonic", lambda: self.now)

    def step(self, name="work"):
        self.steps.append(name)
        self.now += self._step_seconds
        return True

    def turns(self, works, count):
        """Of the readers, in which one connection always wants a call."""
        readers = Readers()
        descriptor = os.eventfd(1, os.EFD_NONBLOCK)

        def call():
            self.calls += 1
            self.now += self._call_seconds
            os.eventfd_write(descriptor, 1)
            return QUANTUM_BYTES

        try:
            readers.add(descriptor, call, "publisher")
            for name in works:
                readers.call_in_turns(partial(self.step, name))
            for _ in range(count):
                readers.serve(0.0)
        finally:
            os.close(descriptor)


async def test_steps_get_a_multiple_of_the_time_of_the_calls_of_their_turn(monkeypatch):
    work = Work(monkeypatch, module.TURN_SECONDS / 10, module.TURN_SECONDS)
    work.turns(["work"], 20)
    assert work.calls == 20
    share = module.STEPS_SHARE * 10 * 20
    assert share <= len(work.steps) <= share + 20


async def test_the_steps_of_a_turn_are_bounded(monkeypatch):
    work = Work(monkeypatch, module.STEPS_SECONDS_MAX / 10, 10 * module.STEPS_SECONDS_MAX)
    work.turns(["work"], 20)
    assert 10 * 20 <= len(work.steps) <= 11 * 20


async def test_several_long_works_share_the_steps(monkeypatch):
    work = Work(monkeypatch, module.TURN_SECONDS / 10, module.TURN_SECONDS)
    names = [f"work {number}" for number in range(7)]
    work.turns(names, 20)
    counts = [work.steps.count(name) for name in names]
    assert max(counts) - min(counts) <= 1


async def test_beside_short_calls_each_step_has_a_turn(monkeypatch):
    """So what comes meanwhile is found between two of them."""
    work = Work(monkeypatch, module.TURN_SECONDS / 10, module.TURN_SECONDS / 100)
    work.turns(["work"], 20)
    assert len(work.steps) >= 20
    assert len(work.steps) <= work.calls
