"""LoopWait: the sockets of `Readers` are served within the wait of trio's loop.

A message that comes alone wakes the loop twice: by itself, and when it is durable. If a task of
trio waits for the readers' sockets, each of these takes a turn of trio: its set reports the
readers' set, a task is scheduled and stepped, asks the readers' set in turn, and registers it again
(two more system calls); deadlines are compared and instruments called. That is more work than the
message itself. Here the loop therefore waits in the readers' set, which contains the set of trio.
It calls the readers that are found at once, and continues to wait.

Trio has a turn when its own set is readable, when the time for which it wanted to wait has passed,
or when a call has made a task runnable or a deadline earlier. While the loop never waits, it polls
the readers before each turn, with one system call for both sets.

The calls run in the thread of the loop, outside of all tasks: they can start tasks, set events and
read the time, but there is no current task.

Trio has no public way to replace its wait. This module uses the attributes of trio's loop that the
protocols below name. If one of them is missing (with another version or operating system, or in a
loop that is a guest of another one), `wait_of_loop` returns None, and a task has to wait. The first
`Readers` of a loop to run waits for the loop; its other `Readers` use tasks. A test fails if the
pinned version no longer has these attributes.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Protocol, final

import trio

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Awaitable, Callable

    Events = list[tuple[int, int]]
    WaitFor = Callable[[int], Awaitable[None]]


class _Set(Protocol):
    def fileno(self) -> int: ...


class _Waiting(Protocol):
    """The part of trio's loop that knows who waits for which descriptor."""

    _epoll: _Set
    wait_readable: WaitFor
    wait_writable: WaitFor
    notify_closing: Callable[[int], None]
    process_events: Callable[[Events], None]
    statistics: Callable[[], object]
    force_wakeup: Callable[[], None]
    close: Callable[[], None]

    def get_events(self, timeout: float) -> Events:
        """Wait. Without events only after the whole time."""


class _Deadlines(Protocol):
    def next_deadline(self) -> float: ...


class _Loop(Protocol):
    """A running loop of trio."""

    deadlines: Any
    """`_Deadlines`."""
    io_manager: Any
    """A `_Waiting`."""
    runq: deque[trio.lowlevel.Task]
    """The tasks that can run."""
    is_guest: bool


class Served(Protocol):
    """`runtime.readers.Readers`, as far as the wait calls them."""

    def serve(self, seconds_max: float) -> bool:
        """Wait until a socket is readable, and call. Returns whether the set of trio is."""


@final
class LoopWait:
    """See the module docstring. It stands in the place of what it replaces."""

    def __init__(self, loop: _Loop, served: Served) -> None:
        self._loop = loop
        self._runnable = loop.runq
        replaced: _Waiting = loop.io_manager
        self._replaced = replaced
        self._served = served
        self._task: trio.lowlevel.Task | None = None
        """The task of `run`, while it waits."""
        self._error: BaseException | None = None
        """The exception that `serve` has raised."""
        self.descriptor = replaced._epoll.fileno()
        """Readable when trio has something to do. `serve` reports that."""
        self.wait_readable = replaced.wait_readable
        self.wait_writable = replaced.wait_writable
        self.notify_closing = replaced.notify_closing
        self.process_events = replaced.process_events
        self.statistics = replaced.statistics
        self.force_wakeup = replaced.force_wakeup
        self.close = replaced.close

    async def run(self) -> None:
        """Wait for the loop until cancelled. Raises: whatever `serve` raises."""
        self._task = trio.lowlevel.current_task()
        self._loop.io_manager = self
        try:
            await trio.lowlevel.wait_task_rescheduled(self._ended)
        finally:
            self._task = None
            self._loop.io_manager = self._replaced
            if self._error is not None:  # also if that call has cancelled this task before
                raise self._error

    def _ended(self, _: object) -> trio.lowlevel.Abort:
        self._task = None
        return trio.lowlevel.Abort.SUCCEEDED

    def get_events(self, timeout: float) -> Events:
        """Called by trio for its wait, of so many seconds at most. Returns what its own set has."""
        task = self._task
        if task is None:
            return self._replaced.get_events(timeout)
        deadlines: _Deadlines = self._loop.deadlines
        due = deadlines.next_deadline()
        end = time.monotonic() + timeout
        left = timeout
        is_trios = False
        while not is_trios:
            try:
                is_trios = self._served.serve(left)
            except BaseException as error:  # for the task
                self._error = error
                if self._task is not None:
                    self._task = None
                    trio.lowlevel.reschedule(task)
                break
            left = end - time.monotonic()
            if not is_trios and (left <= 0 or self._runnable or deadlines.next_deadline() < due):
                return []
        return self._replaced.get_events(0)


def wait_of_loop(served: Served) -> LoopWait | None:
    """For the running loop. None: it cannot be had, or another one has it."""
    try:
        from trio._core._io_epoll import EpollIOManager
        from trio._core._run import GLOBAL_RUN_CONTEXT

        loop = GLOBAL_RUN_CONTEXT.runner
        if loop.is_guest or not isinstance(loop.io_manager, EpollIOManager):
            return None
        loop.deadlines.next_deadline()
        return LoopWait(loop, served)
    except (ImportError, AttributeError):
        return None
