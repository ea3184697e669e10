"""Finds the connections that have something to read: one task for all of them.

A task of its own that waits for its socket costs a connection about 15 us each time something
comes: to register the socket anew, to wake the task, and to walk down to where it waits. When ten
thousand connections acknowledge the same message that is more than the work itself. So the sockets
stay in one epoll set, level-triggered (what is not read is reported again), and one task waits for
the set, which is itself readable as soon as one of its sockets is, and calls the readers. A reader
never waits and never raises.

Fairness: after `TURN_SECONDS` of calls everything else runs. Who was found readable and not called
waits for the next turn. A connection whose last call read much (one with a thousand consumers that
acknowledge, say) waits behind those that read little, which are looked for in every turn: a
publisher does not wait for a hundred of the others. Those with little take at most half a turn
while others wait, and one of the others is called in every turn. What was read is the measure
because time is not: a call also sends what others have queued in the same turn. A chunk of more
requests than are handled in one call goes on behind all who read much (`call_again`).
"""

from __future__ import annotations

import contextlib
import os
import select
from collections import deque
from typing import TYPE_CHECKING, final

import trio

if TYPE_CHECKING:
    from collections.abc import Callable

FOUND_PER_TURN_MAX = 256
LOOK_AGAIN_BELOW = 64
"""Found with little to read, and not called yet: with more there is no need to look for others."""
TURN_SECONDS = 0.002
LITTLE_BYTES = 8 * 1024
"""Who read no more in its last call is expected to read little."""


@final
class Readers:
    """The sockets that are read without a task each, and whom to call for them."""

    __slots__ = ("_calls", "_epoll", "_found", "_found_much", "_much", "_waiting", "_wake")

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._calls: dict[int, Callable[[], int]] = {}
        self._much: set[int] = set()
        self._found: deque[int] = deque()
        self._found_much: deque[int] = deque()
        self._waiting: set[int] = set()
        """What is in one of the two queues."""
        self._wake = -1
        """Readable when `run` shall look at the queues, while it runs."""

    def __len__(self) -> int:
        return len(self._calls) - (self._wake in self._calls)

    def add(self, descriptor: int, call: Callable[[], int]) -> None:
        """Call whenever the descriptor is readable, or broken, until `remove`. The call returns how
        many bytes it has read.

        Raises: OSError: the descriptor cannot be waited for.
        """
        self._epoll.register(descriptor, select.EPOLLIN)
        self._calls[descriptor] = call

    def remove(self, descriptor: int, call: Callable[[], int]) -> None:
        """Do not call any more; to be said before the descriptor is closed. Idempotent, also when
        somebody else has got the number meanwhile."""
        if self._calls.get(descriptor) == call:
            del self._calls[descriptor]
            self._much.discard(descriptor)
            with contextlib.suppress(OSError):  # it is closed, and so not in the set any more
                self._epoll.unregister(descriptor)

    def call_again(self, descriptor: int) -> None:
        """Call in a later turn even if nothing comes to read: something that was read is left. To
        be said by the call itself."""
        if descriptor not in self._waiting:
            self._waiting.add(descriptor)
            self._found_much.append(descriptor)

    def call_soon(self, descriptor: int) -> None:
        """The same for anybody else, who does not know whether `run` waits."""
        self.call_again(descriptor)
        if self._wake != -1:
            os.eventfd_write(self._wake, 1)

    async def run(self) -> None:
        """Call readers until cancelled."""
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self.add(self._wake, self._woken)
        try:
            await self._run()
        finally:
            self.remove(self._wake, self._woken)
            os.close(self._wake)
            self._wake = -1

    def _woken(self) -> int:
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._wake)
        return 0

    async def _run(self) -> None:
        descriptor = self._epoll.fileno()
        while True:
            if self._waiting:
                await trio.lowlevel.checkpoint()
            else:
                await trio.lowlevel.wait_readable(descriptor)
            if len(self._found) < LOOK_AGAIN_BELOW:
                self._find()
            self._call_found()

    def _find(self) -> None:
        waiting = self._waiting
        for descriptor, _ in self._epoll.poll(0, FOUND_PER_TURN_MAX):
            if descriptor not in waiting:
                waiting.add(descriptor)
                much = descriptor in self._much
                (self._found_much if much else self._found).append(descriptor)

    def _call_found(self) -> None:
        now = trio.current_time()
        end = now + TURN_SECONDS
        end_of_little = now + TURN_SECONDS / 2 if self._found_much else end
        while self._found:
            now = self._call(self._found.popleft(), now)
            if now >= end_of_little:
                break
        while self._found_much:
            now = self._call(self._found_much.popleft(), now)
            if now >= end:
                return

    def _call(self, descriptor: int, begun: float) -> float:
        """Call who reads it; the time then."""
        # Who was removed meanwhile is not called; a number that is somebody else's by now is a
        # call too many, which finds nothing to read.
        self._waiting.discard(descriptor)
        call = self._calls.get(descriptor)
        if call is None:
            return begun
        if call() <= LITTLE_BYTES:
            self._much.discard(descriptor)
        elif descriptor in self._calls:
            self._much.add(descriptor)
        return trio.current_time()
