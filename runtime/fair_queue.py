"""A queue whose flows get equal shares, however much each of them puts in. Pure.

Deficit round robin (Shreedhar and Varghese 1995) with the two lists of FQ-CoDel (RFC 8290): a flow
without waiting items goes before flows with such items, until it has used one quantum. A flow that
uses less than its share therefore waits for at most one quantum of each other such flow, and not
for the queues of flows that use all they can get. The latter are served in between, at least once
after `NEW_IN_A_ROW` items, so that a series of new flows does not starve them.

The cost of an item may be known only after it has been worked off: `charge` follows `take`. Items
that are put in between belong to this work, so a single flow that asks for more does not count as
new. Within a flow the order stays.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, Generic, TypeVar, final

if TYPE_CHECKING:
    from collections.abc import Hashable

K = TypeVar("K", bound="Hashable")
V = TypeVar("V")
NEW_IN_A_ROW: Final = 8
"""Items of flows that had nothing waiting, before one of the others."""


@final
class _Flow(Generic[K, V]):
    __slots__ = ("credit", "items", "key")

    def __init__(self, key: K, credit: int) -> None:
        self.key = key
        self.credit = credit
        """The cost that it may still use before others are served; below 0 it has used more."""
        self.items: deque[V] = deque()


@final
class FairQueue(Generic[K, V]):
    """See the module docstring. Invariants: a flow is in one of the two lists as long as it is
    known; a flow is known as long as it has items, and until it has passed the others once, or
    nothing waits; the flow whose item is being worked off is known, too."""

    __slots__ = ("_flows", "_in_a_row", "_new", "_old", "_quantum", "_served", "_size")

    def __init__(self, quantum: int) -> None:
        """`quantum`: the cost that a flow may cause before the next one is served. More than most
        items cost; an item that costs more is paid off in the flow's next rounds."""
        self._quantum = quantum
        self._flows: dict[K, _Flow[K, V]] = {}
        self._new: deque[_Flow[K, V]] = deque()
        self._old: deque[_Flow[K, V]] = deque()
        self._served: _Flow[K, V] | None = None
        """The flow of the item taken last, until its `charge`."""
        self._size = 0
        self._in_a_row = 0

    def __len__(self) -> int:
        """Items that wait."""
        return self._size

    def __bool__(self) -> bool:
        return len(self) > 0

    @property
    def flows(self) -> int:
        """Flows that have items, or had some a moment ago."""
        return len(self._flows)

    def append(self, key: K, item: V) -> None:
        """At the end of the flow `key`."""
        if not self._size and self._flows:
            self._forget()
        flow = self._flows.get(key)
        if flow is None:
            flow = self._flows[key] = _Flow(key, self._quantum)
            self._new.append(flow)
        flow.items.append(item)
        self._size += 1

    def _forget(self) -> None:
        """All but the flow that is being served."""
        self._flows.clear()
        self._new.clear()
        self._old.clear()
        served = self._served
        if served is not None:
            self._flows[served.key] = served
            self._old.append(served)

    def take(self) -> V:
        """The next item; `charge` says what it cost.

        Raises: IndexError: nothing waits.
        """
        flow = self._next()
        self._size -= 1
        is_new = bool(self._new) and self._new[0] is flow
        self._in_a_row = self._in_a_row + 1 if is_new else 0
        self._served = flow
        return flow.items.popleft()

    def first(self) -> V:
        """The item that `take` would return.

        Raises: IndexError: nothing waits.
        """
        return self._next().items[0]

    def _next(self) -> _Flow[K, V]:
        if not self._size:
            raise IndexError("nothing waits")
        while True:
            is_new = bool(self._new) and not (self._old and self._in_a_row >= NEW_IN_A_ROW)
            flow = self._new[0] if is_new else self._old[0]
            if flow.credit <= 0:
                flow.credit += self._quantum
                self._pass_others(is_new)
            elif flow.items:
                return flow
            elif is_new:
                self._pass_others(is_new)  # or it could go first again and again
            else:
                del self._flows[self._old.popleft().key]

    def charge(self, cost: int) -> None:
        """The item taken last cost so much."""
        served, self._served = self._served, None
        if served is not None:
            served.credit -= cost

    def _pass_others(self, is_new: bool) -> None:
        self._old.append((self._new if is_new else self._old).popleft())
