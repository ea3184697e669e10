"""Long work of the event loop in slices, so that other tasks are served in between."""

from __future__ import annotations

from heapq import merge
from itertools import groupby, islice
from typing import TYPE_CHECKING, Final, Generic, TypeVar, final

import trio

from runtime.locks import KeyedLocks

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Hashable, Iterable, Iterator, Sequence

K = TypeVar("K", bound="Hashable")
V = TypeVar("V")

STEPS_PER_SLICE: Final = 32
"""A step is the work for one row: a subscription, a consumer, a producer, a ledger, or the rest of
a topic."""
NAMES_PER_SLICE: Final = 1_000
"""Names that are filtered, sorted, merged or encoded in one slice: about a millisecond."""
_NAMING: Final = trio.Semaphore(2)
"""Slices of names in one round of the event loop, however many lists are being made."""


async def in_slices(steps: Iterable[object], per_slice: int = STEPS_PER_SLICE) -> None:
    """Take every step. The data of the steps may change between two slices.

    Raises: any error of a step.
    """
    for number, _ in enumerate(steps, 1):
        if number % per_slice == 0:
            await trio.lowlevel.checkpoint()


async def for_each(
    values: Iterable[V], work: Callable[[V], Awaitable[None]], at_once_max: int
) -> None:
    """Await the work for every value, for at most `at_once_max` of them at a time. A value is taken
    when it is its turn: a task for each of 10,000 values would start in one turn of the event loop.

    Raises: any error of the work, after which no further value is taken.
    """
    left = iter(values)
    async with trio.open_nursery() as nursery:
        for _ in range(at_once_max):
            nursery.start_soon(_work_off, left, work)


async def _work_off(left: Iterator[V], work: Callable[[V], Awaitable[None]]) -> None:
    for value in left:
        await work(value)
        await trio.lowlevel.checkpoint()  # The work of most values may need no wait.


async def start_each(
    nursery: trio.Nursery,
    values: Iterable[V],
    work: Callable[[V], Awaitable[None]],
    per_round: int,
) -> None:
    """Start a task for every value, some of them in each round of the event loop. For work that may
    wait for long, where `for_each` would let it keep the rest waiting."""
    for number, value in enumerate(values, 1):
        nursery.start_soon(work, value)
        if number % per_round == 0:
            await trio.lowlevel.checkpoint()


async def taken_in_slices(values: Iterable[V], steps: int = NAMES_PER_SLICE) -> list[V]:
    """Everything an iterator yields, in slices of some of its steps."""
    taken: list[V] = []
    left = iter(values)
    while True:
        async with _NAMING:
            before = len(taken)
            taken += islice(left, steps)
            if len(taken) < before + steps:
                return taken
            await trio.lowlevel.checkpoint()


async def sorted_in_slices(names: Iterable[str | None]) -> list[str]:
    """The distinct names in order. A slice sorts the next NAMES_PER_SLICE of them, or merges that
    many of the sorted ones. None is a step of work without a name."""
    runs: list[list[str]] = []
    left = iter(names)
    more = True
    while more:
        async with _NAMING:
            part = list(islice(left, NAMES_PER_SLICE))
            more = len(part) == NAMES_PER_SLICE
            runs.append(sorted({name for name in part if name is not None}))
            await trio.lowlevel.checkpoint()
    if len(runs) == 1:
        return runs[0]
    return await taken_in_slices(name for name, _ in groupby(merge(*runs)))


def portions(names: Sequence[V]) -> Iterator[Sequence[V]]:
    """NAMES_PER_SLICE names at a time."""
    for start in range(0, len(names), NAMES_PER_SLICE):
        yield names[start : start + NAMES_PER_SLICE]


@final
class SharedReadings(Generic[K, V]):
    """Long reads whose result the callers that wait for it share.

    A result shows nothing older than its caller's request: a caller shares only a reading that has
    not begun. So there are at most two results per key in the making, however many callers wait.
    """

    def __init__(self) -> None:
        self._waiting: dict[K, _Reading[V]] = {}
        """By key: the reading that has not begun."""
        self._locks: KeyedLocks[K] = KeyedLocks()

    async def get(self, key: K, read: Callable[[K], Awaitable[V]]) -> V:
        """The result, to be left unchanged. `read` is the same function for all callers of a key;
        it is not kept, because it may refer to the owner of this object.

        Raises: any error of the read.
        """
        while key in self._waiting:
            shared = self._waiting[key]
            await shared.ended.wait()
            if shared.results:
                return shared.results[0]
            # It failed, or its caller has left: read it for this caller.
        reading = self._waiting[key] = _Reading()
        try:
            async with self._locks.hold(key):
                del self._waiting[key]
                result = await read(key)
                reading.results.append(result)
                return result
        finally:
            if self._waiting.get(key) is reading:
                del self._waiting[key]
            reading.ended.set()


@final
class _Reading(Generic[V]):
    __slots__ = ("ended", "results")

    def __init__(self) -> None:
        self.ended = trio.Event()
        self.results: list[V] = []
        """The result; empty before, and after a failure."""
