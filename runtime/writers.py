"""Calls those who wait until their sockets take bytes again, without a task for each.

A task that waits for one socket costs a registration of the socket and a turn of trio for each
piece that it sends: as much as the piece itself. So these sockets are in the set of `Readers`,
which reports that there is room and makes the calls in its own turns.

The set is edge-triggered: it reports room once after the kernel has refused some bytes. A caller
that still had room asks to be called without such a report. Calls are made in the order in which
room was found, each of them once for each time it was asked for, and they never raise. A turn
begins no call after `TURN_SECONDS`, so that everything else goes on between two of them.

Invariant: a descriptor in `_full` has a call. One in `_ready` may have been removed since.
"""

from __future__ import annotations

from collections import deque
from time import monotonic
from typing import TYPE_CHECKING, Final, final

from runtime.watchdog import CALLBACK_SECONDS_MAX, watchdog_of_loop

if TYPE_CHECKING:
    from collections.abc import Callable

TURN_SECONDS: Final = 0.0005
"""About one call that sends as much as it may."""


@final
class Writers:
    """See the module docstring. `Readers` has the set, and is the only user."""

    __slots__ = ("_calls", "_full", "_ready", "_watchdog")

    def __init__(self) -> None:
        self._calls: dict[int, Callable[[], object]] = {}
        self._full: set[int] = set()
        """Descriptors that the set will report when there is room."""
        self._ready: deque[int] = deque()
        """Descriptors whose call is due."""
        self._watchdog = watchdog_of_loop()

    def __len__(self) -> int:
        """Calls that are due."""
        return len(self._ready)

    def __bool__(self) -> bool:
        return len(self) > 0

    def knows(self, descriptor: int) -> bool:
        """Whether the set has to report room on it."""
        return descriptor in self._calls

    def add(self, descriptor: int, call: Callable[[], object], *, is_full: bool) -> None:
        """Invoke `call` once: when there is room, or in any case if the descriptor is not full."""
        self._calls[descriptor] = call
        if is_full:
            self._full.add(descriptor)
        else:
            self._full.discard(descriptor)
            self._ready.append(descriptor)

    def remove(self, descriptor: int) -> None:
        """Call no more. Idempotent."""
        self._calls.pop(descriptor, None)
        self._full.discard(descriptor)

    def found(self, descriptor: int) -> None:
        """There is room, or the peer is gone."""
        if descriptor in self._full:
            self._full.discard(descriptor)
            self._ready.append(descriptor)

    def call_ready(self, now: float) -> float:
        """Make the calls that are due, or as many as a turn has. Returns the time afterwards."""
        ready, watchdog = self._ready, self._watchdog
        end = now + TURN_SECONDS
        left = len(ready)
        while left and now < end:
            left -= 1
            # If its number belongs to another connection by now, that call finds nothing to send.
            call = self._calls.get(ready.popleft())
            if call is None:
                continue
            begun = now
            call()
            now = monotonic()
            if now - begun > CALLBACK_SECONDS_MAX and watchdog is not None:
                watchdog.called(call, now - begun)
        return now
