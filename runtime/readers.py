"""Finds the connections that have something to read: one task for all of them.

If each connection had its own waiting task, every arrival would cost about 15 us: to register the
socket again, to wake the task and to walk down to the place where it waits. When ten thousand
connections acknowledge the same message, that exceeds the work itself. The sockets therefore stay
in one level-triggered epoll set, which reports unread data again. The set is itself readable as
soon as one of its sockets is. One task waits for the set and calls the readers. A reader never
waits and never raises.

Fairness: after `TURN_SECONDS` of calls all other tasks run. Ready sockets not yet served wait for
the next turn. A connection whose last call read much (for example one with a thousand consumers
that acknowledge) waits after those that read little. The task looks for the latter in every turn,
so a publisher does not wait for a hundred busy connections. Connections with little to read get at
most half a turn while others wait, and at least one of the others is called in every turn. The
measure is bytes read and not time, because a call also sends output that others have queued in the
same turn. If a chunk holds more requests than one call handles, it continues after all connections
that read much (`call_again`).

Strangers: anyone can begin a handshake, and each costs a millisecond. Connections that are still in
theirs have an epoll set of their own, which counts as one connection that reads much. So however
many there are, others find their turn at once, and wait for `STRANGERS_SECONDS` of them at most.
"""

from __future__ import annotations

import contextlib
import os
import select
import threading
from collections import deque
from typing import TYPE_CHECKING, final

import trio

if TYPE_CHECKING:
    from collections.abc import Callable

FOUND_PER_TURN_MAX = 256
LOOK_AGAIN_BELOW = 64
"""Sockets found with little to read and not yet called. With more, no search for others is
needed."""
TURN_SECONDS = 0.002
STRANGERS_PER_TURN_MAX = 16
STRANGERS_SECONDS = 0.001
LITTLE_BYTES = 8 * 1024
"""A connection that read no more than this in its last call is expected to read little."""


@final
class Readers:
    """Sockets that are read without a task each, and the callable for each of them. To be made in
    the event loop."""

    __slots__ = (
        "_calls",
        "_epoll",
        "_found",
        "_found_much",
        "_lock",
        "_much",
        "_soon",
        "_strangers",
        "_strangers_epoll",
        "_token",
        "_waiting",
        "_wake",
    )

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._strangers_epoll = select.epoll()
        self._strangers: set[int] = set()
        """Descriptors in the set of strangers."""
        self._calls: dict[int, Callable[[], int]] = {}
        self._much: set[int] = {self._strangers_epoll.fileno()}
        self._found: deque[int] = deque()
        self._found_much: deque[int] = deque()
        self._waiting: set[int] = set()
        """Descriptors in one of the two queues."""
        self._wake = -1
        """Readable when `run`, while it runs, has to look at the queues."""
        self._soon: list[tuple[Callable[..., object], tuple[object, ...]]] = []
        """What other threads want to have called. One queue, so that the order stays the same
        when `run` begins and ends."""
        self._lock = threading.Lock()
        self._token = trio.lowlevel.current_trio_token()
        self._epoll.register(self._strangers_epoll.fileno(), select.EPOLLIN)

    def __len__(self) -> int:
        return len(self._calls) - (self._wake in self._calls)

    def add(self, descriptor: int, call: Callable[[], int], *, is_stranger: bool = False) -> None:
        """Invoke `call` whenever the descriptor is readable or broken, until `remove`. The call
        returns the number of bytes it has read. `is_stranger`: see the module docstring.

        Raises: OSError: epoll cannot watch the descriptor.
        """
        if is_stranger:
            self._strangers_epoll.register(descriptor, select.EPOLLIN)
            self._strangers.add(descriptor)
        else:
            self._epoll.register(descriptor, select.EPOLLIN)
        self._calls[descriptor] = call

    def remove(self, descriptor: int, call: Callable[[], int]) -> None:
        """Stop calling. Must be called before the descriptor is closed. Idempotent, even when the
        number has meanwhile been given to another connection."""
        if self._calls.get(descriptor) == call:
            del self._calls[descriptor]
            self._much.discard(descriptor)
            is_stranger = descriptor in self._strangers
            self._strangers.discard(descriptor)
            with contextlib.suppress(OSError):  # it is closed and therefore no longer in the set
                (self._strangers_epoll if is_stranger else self._epoll).unregister(descriptor)

    def call_again(self, descriptor: int) -> None:
        """Call in a later turn even if no more bytes arrive, because some of the bytes read are
        not handled yet. Only for use within the call itself."""
        if descriptor not in self._waiting:
            self._waiting.add(descriptor)
            self._found_much.append(descriptor)

    def call_soon(self, descriptor: int) -> None:
        """The same for any other caller, which does not know whether `run` waits."""
        self.call_again(descriptor)
        if self._wake != -1:
            os.eventfd_write(self._wake, 1)

    def run_sync_soon(self, call: Callable[..., object], *arguments: object) -> None:
        """Call in the event loop, in the order of these calls. For other threads. It is like
        trio's function of this name, which it uses unless `run` runs, and takes less CPU: the loop
        finds the wish among its sockets."""
        with self._lock:
            self._soon.append((call, arguments))
            if len(self._soon) > 1:
                return  # the first one has asked
            if self._wake == -1:
                self._token.run_sync_soon(self._call_soon)
            else:
                os.eventfd_write(self._wake, 1)

    def _call_soon(self) -> None:
        with self._lock:
            soon, self._soon = self._soon, []
        for call, arguments in soon:
            call(*arguments)

    async def run(self) -> None:
        """Call readers until cancelled."""
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self.add(self._wake, self._woken)
        try:
            await self._run()
        finally:
            self.remove(self._wake, self._woken)
            with self._lock:
                os.close(self._wake)
                self._wake = -1
                if self._soon:
                    self._token.run_sync_soon(self._call_soon)

    def _woken(self) -> int:
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._wake)
        self._call_soon()
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
        """Call the reader of this descriptor. Returns the time afterwards."""
        # A descriptor removed meanwhile is not called. If its number belongs to another connection
        # by now, the call is superfluous and finds nothing to read.
        self._waiting.discard(descriptor)
        call = self._calls.get(descriptor)
        if call is None:
            if descriptor == self._strangers_epoll.fileno():
                return self._call_strangers()
            return begun
        if call() <= LITTLE_BYTES:
            self._much.discard(descriptor)
        elif descriptor in self._calls:
            self._much.add(descriptor)
        return trio.current_time()

    def _call_strangers(self) -> float:
        """Those that are not called now stay in their set, and others of it come first."""
        now = trio.current_time()
        end = now + STRANGERS_SECONDS
        for descriptor, _ in self._strangers_epoll.poll(0, STRANGERS_PER_TURN_MAX):
            call = self._calls.get(descriptor)
            if call is not None:
                call()
            now = trio.current_time()
            if now >= end:
                break
        return now
