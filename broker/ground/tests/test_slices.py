"""Long work gives others their turn: names are sorted in slices, and work is shared."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from broker.ground.slices import (
    NAMES_PER_SLICE,
    SharedReadings,
    for_each,
    sorted_in_slices,
)

MANY = 300


class Counted(str):
    """A name that counts its comparisons."""

    __slots__ = ()
    comparisons = 0

    def __lt__(self, other):
        Counted.comparisons += 1
        return str.__lt__(self, other)

    __hash__ = str.__hash__


class Turns(trio.abc.Instrument):
    """The most comparisons of names in one step of a task."""

    def __init__(self):
        self.most = 0
        self._before = 0

    def before_task_step(self, task):
        self._before = Counted.comparisons

    def after_task_step(self, task):
        self.most = max(self.most, Counted.comparisons - self._before)


@pytest.mark.parametrize("count", [0, 1, NAMES_PER_SLICE, NAMES_PER_SLICE + 1, 20_000])
def test_names_are_sorted_in_slices(count):
    names = [Counted(f"t{number * 7919 % 20_011}") for number in range(count)]
    turns = Turns()
    found = trio.run(sorted_in_slices, [*names, None, *names[:10]], instruments=[turns])
    assert found == sorted(set(map(str, names)))
    assert turns.most <= NAMES_PER_SLICE * 10, "a slice sorts that many names, or merges them"


async def test_lists_that_are_waited_for_together_are_made_twice_at_most():
    made = 0

    async def read(key):
        nonlocal made
        made += 1
        await trio.lowlevel.checkpoint()
        return made

    readings: SharedReadings[str, object] = SharedReadings()
    found = []

    async def ask():
        found.append(await readings.get("key", read))

    async with trio.open_nursery() as nursery:
        for _ in range(300):
            nursery.start_soon(ask)
    assert len(found) == 300
    assert made <= 2
    assert await readings.get("key", read) == made, (
        "a later caller is told the state after its request"
    )


async def test_a_list_is_made_for_those_who_wait_when_its_first_caller_leaves_or_it_fails():
    fails = True

    async def read(key):
        nonlocal fails
        await trio.testing.wait_all_tasks_blocked()
        if fails:
            fails = False
            raise ValueError(key)
        return key

    readings: SharedReadings[str, object] = SharedReadings()
    found = []

    async def ask():
        try:
            found.append(await readings.get("key", read))
        except ValueError as error:
            found.append(str(error) + " failed")

    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(ask)
    assert sorted(found) == ["key", "key", "key failed"]

    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(ask)
        with trio.CancelScope() as scope:
            scope.cancel()
            await readings.get("key", read)
    assert found[3:] == ["key"] * 3


async def test_work_for_many_values_is_begun_for_a_few_of_them_at_a_time():
    begun, released = [], trio.Event()

    async def work(value):
        begun.append(value)
        await released.wait()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(for_each, range(MANY), work, 8)
        await trio.testing.wait_all_tasks_blocked()
        assert begun == list(range(8))
        released.set()
    assert begun == list(range(MANY))


async def test_work_that_needs_no_wait_lets_others_run():
    turns = 0

    async def others():
        nonlocal turns
        while True:
            turns += 1
            await trio.lowlevel.checkpoint()

    async def work(value):
        del value

    async with trio.open_nursery() as nursery:
        nursery.start_soon(others)
        await for_each(range(MANY), work, 8)
        nursery.cancel_scope.cancel()
    assert turns >= MANY // 8


async def test_failed_work_is_told_and_ends_the_rest():
    done = []

    async def work(value):
        done.append(value)
        if value == 20:
            raise OSError("no room")

    with pytest.raises(ExceptionGroup) as told:
        await for_each(range(MANY), work, 8)
    assert told.group_contains(OSError, match="no room")
    assert len(done) < MANY
