"""Keys in the order in which they are due. Pure.

A key is due once. Planning it again moves it. What is left of its former places in the heap is
skipped when it comes to the top. When it makes up most of the heap, it is swept out: the heap is
put aside, and every call after that looks at SWEPT_PER_CALL of its places and moves the valid ones
into a new heap. So no call does much, however many keys there are. Both heaps are taken from
meanwhile; the one put aside stays a heap, because its last place is what is removed.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final, Generic, TypeVar, final

if TYPE_CHECKING:
    from collections.abc import Iterator

K = TypeVar("K")

_SWEPT_AT_MIN: Final = 64
SWEPT_PER_CALL: Final = 4
"""A sweep is over before a quarter of its places was added again."""
SKIPPED_PER_SLICE: Final = 256


@final
class DueOrder(Generic[K]):
    """See the module docstring."""

    __slots__ = ("_aside", "_heap", "_number", "_places")

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, K]] = []
        self._aside: list[tuple[float, int, K]] = []
        """A heap that is being swept."""
        self._places: dict[K, int] = {}
        """The number of the valid place of each key."""
        self._number = 0

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, key: K) -> bool:
        return key in self._places

    def plan(self, key: K, due: float) -> None:
        """It is due then, and no longer at the time it was planned for before."""
        self._number += 1
        self._places[key] = self._number
        heappush(self._heap, (due, self._number, key))
        self._sweep()

    def forget(self, key: K) -> None:
        """It is not due any more."""
        self._places.pop(key, None)
        self._sweep()

    def take_due(self, now: float) -> Iterator[K | None]:
        """The keys that are due, the earliest first. A key that is taken is not planned any more.
        Others may be planned meanwhile: those due by the same time come, too. None is a slice of
        former places that were skipped."""
        skipped = 0
        while (heap := self._earlier()) and heap[0][0] <= now:
            place = heappop(heap)
            if self._is_valid(place):
                del self._places[place[2]]
                yield place[2]
            else:
                skipped += 1
                if skipped % SKIPPED_PER_SLICE == 0:
                    yield None

    def _earlier(self) -> list[tuple[float, int, K]]:
        """The heap whose first place is the earlier one; an empty one if both are."""
        heap, aside = self._heap, self._aside
        return aside if aside and (not heap or aside[0] < heap[0]) else heap

    def _sweep(self) -> None:
        aside = self._aside
        if not aside:
            if len(self._heap) <= 2 * len(self._places) + _SWEPT_AT_MIN:
                return
            aside = self._aside = self._heap
            self._heap = []
        for _ in range(min(SWEPT_PER_CALL, len(aside))):
            place = aside.pop()
            if self._is_valid(place):
                heappush(self._heap, place)

    def _is_valid(self, place: tuple[float, int, K]) -> bool:
        return self._places.get(place[2]) == place[1]
