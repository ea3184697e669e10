"""Finds the connections that have something to read: one task for all of them.

A task of its own that waits for its socket costs a connection about 15 us each time something
comes: to register the socket anew, to wake the task, and to walk down to where it waits. When ten
thousand connections acknowledge the same message that is more than the work itself. So the sockets
stay in one epoll set, level-triggered (what is not read is reported again), and one task waits for
the set, which is itself readable as soon as one of its sockets is, and calls the readers. A reader
never waits and never raises.

Fairness: after `TURN_SECONDS` of calls everything else runs. Who was found readable and not called
comes first in the next turn.
"""

from __future__ import annotations

import contextlib
import select
from collections import deque
from typing import TYPE_CHECKING, final

import trio

if TYPE_CHECKING:
    from collections.abc import Callable

FOUND_PER_TURN_MAX = 256
TURN_SECONDS = 0.002


@final
class Readers:
    """The sockets that are read without a task each, and whom to call for them."""

    __slots__ = ("_calls", "_epoll", "_found")

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._calls: dict[int, Callable[[], None]] = {}
        self._found: deque[int] = deque()

    def __len__(self) -> int:
        return len(self._calls)

    def add(self, descriptor: int, call: Callable[[], None]) -> None:
        """Call whenever the descriptor is readable, or broken, until `remove`.

        Raises: OSError: the descriptor cannot be waited for.
        """
        self._epoll.register(descriptor, select.EPOLLIN)
        self._calls[descriptor] = call

    def remove(self, descriptor: int, call: Callable[[], None]) -> None:
        """Do not call any more; to be said before the descriptor is closed. Idempotent, also when
        somebody else has got the number meanwhile."""
        if self._calls.get(descriptor) == call:
            del self._calls[descriptor]
            with contextlib.suppress(OSError):  # it is closed, and so not in the set any more
                self._epoll.unregister(descriptor)

    async def run(self) -> None:
        """Call readers until cancelled."""
        descriptor = self._epoll.fileno()
        while True:
            if self._found:
                await trio.lowlevel.checkpoint()
            else:
                await trio.lowlevel.wait_readable(descriptor)
                self._found.extend(at for at, _ in self._epoll.poll(0, FOUND_PER_TURN_MAX))
            self._call_found()

    def _call_found(self) -> None:
        end = trio.current_time() + TURN_SECONDS
        while self._found:
            # Who was removed meanwhile is not called; a number that is somebody else's by now is a
            # call too many, which finds nothing to read.
            call = self._calls.get(self._found.popleft())
            if call is not None:
                call()
                if trio.current_time() >= end:
                    return
