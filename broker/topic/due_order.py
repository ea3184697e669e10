"""Keys in the order in which they are due. Pure.

A key is due once. Planning it again moves it. What is left of its former places in the heap is
skipped when it comes to the top, and swept out when it makes up most of the heap.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Final, Generic, TypeVar, final

if TYPE_CHECKING:
    from collections.abc import Iterator

K = TypeVar("K")

_SWEPT_AT_MIN: Final = 64
SKIPPED_PER_SLICE: Final = 256


@final
class DueOrder(Generic[K]):
    """See the module docstring."""

    __slots__ = ("_heap", "_number", "_places")

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, K]] = []
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
        if len(self._heap) > 2 * len(self._places) + _SWEPT_AT_MIN:
            self._heap = [each for each in self._heap if self._is_valid(each)]
            heapify(self._heap)

    def forget(self, key: K) -> None:
        """It is not due any more."""
        self._places.pop(key, None)

    def take_due(self, now: float) -> Iterator[K | None]:
        """Those that are due, the earliest first. One that is taken is not planned any more. Others
        may be planned meanwhile: those that are due by the same time come, too. None is a slice of
        former places that were skipped."""
        skipped = 0
        while self._heap and self._heap[0][0] <= now:
            place = heappop(self._heap)
            if self._is_valid(place):
                del self._places[place[2]]
                yield place[2]
            else:
                skipped += 1
                if skipped % SKIPPED_PER_SLICE == 0:
                    yield None

    def _is_valid(self, place: tuple[float, int, K]) -> bool:
        return self._places.get(place[2]) == place[1]
