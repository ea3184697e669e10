"""Runs a dispatcher: at once when it can, in a task only when it must wait.

Every event that may let messages flow (new entries, permits, acks, consumers, room in an outbox)
calls `run`, which dispatches synchronously. A task continues only when entries must come from
storage, or when a slice of work is used up and others must be served first. It ends with the work.
There is at most one such task and one timer per subscription. All these tasks share the turns of
`runtime.rounds`: however many backlogs are read, a round of the event loop sends a few slices.

A step or a read that fails is logged and tried again, with growing delays. The messages stay
stored, and the request that caused the step (a publish, or an ack of another consumer) is not
affected.

No wake-up is lost: the task ends after a step that found nothing to do, unless `run` was called
since that step began.
"""

from __future__ import annotations

import math
from enum import IntEnum
from typing import TYPE_CHECKING, Final, final

import structlog
import trio

from protocol.errors import BrokerError
from runtime.rounds import heavy_rounds
from runtime.wall_time import sleep_until

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from runtime.clock import Clock

RETRY_FIRST_SECONDS: Final = 0.1
RETRY_LAST_SECONDS: Final = 5.0

_log = structlog.get_logger()


class Step(IntEnum):
    """The work that remains after a dispatch step."""

    IDLE = 0
    """Nothing can be sent until something changes. The change will call `run`."""
    READ = 1
    """Entries must be read from storage first."""
    MORE = 2
    """The slice is used up."""


def _no_step() -> Step:
    return Step.IDLE


async def _no_fill() -> None:
    pass


@final
class Pump:
    """Drives one dispatcher. `step` sends what it can; `fill` reads what the step asked for."""

    def __init__(
        self,
        topic_name: str,
        name: str,
        nursery: trio.Nursery,
        clock: Clock,
        step: Callable[[], Step],
        fill: Callable[[], Awaitable[None]],
    ) -> None:
        self._topic_name = topic_name
        self._name = name
        self._nursery = nursery
        self._clock = clock
        self._step = step
        self._fill = fill
        self._active = False
        self._stepping = False
        self._again = False
        self._step_failed = False
        self._left = Step.IDLE
        """What the last step of the task has left."""
        self._closed = False
        self._scope: trio.CancelScope | None = None
        self._wake_ms: float = math.inf
        """Wall clock. inf: not planned, as below."""
        self._wake_at: float = math.inf
        """Monotonic clock."""
        self._timer_running = False
        self._timer_scope: trio.CancelScope | None = None
        self.failure = ""
        """Why storage cannot be read or entries cannot be sent now; empty when they can."""

    def run_in_turn(self) -> None:
        """Dispatch soon, in the turn of its task: for what concerns many subscriptions at once, and
        is no news of one."""
        if self._stepping or self._active:
            self._again = True
        elif not self._closed:
            self._active = True
            self._nursery.start_soon(self._go_on, Step.MORE)

    @property
    def is_busy(self) -> bool:
        """Whether a task or a timer is running, or a step."""
        return self._active or self._stepping or self._timer_running

    @property
    def waiting(self) -> bool:
        """Whether a task is running."""
        return self._active

    def run(self) -> None:
        """Dispatch now. Safe at any time, also from within a step."""
        if self._stepping or self._active:
            self._again = True
        elif not self._closed:
            left = self._step_once()
            if left:
                self._active = True
                self._nursery.start_soon(self._go_on, left)

    def _step_once(self) -> Step:
        self._stepping = True
        try:
            self._again = False
            left = self._step()
            if self._again and not left:
                left = Step.MORE
            return left
        except Exception as error:
            self._step_failed = True
            self.failure = str(error) or type(error).__name__
            _log.error(
                "subscription cannot dispatch, retrying",
                topic=self._topic_name,
                subscription=self._name,
                exc_info=error,
            )
            return Step.MORE
        finally:
            self._stepping = False

    async def _go_on(self, left: Step) -> None:
        retry_seconds = RETRY_FIRST_SECONDS
        rounds = heavy_rounds()
        with trio.CancelScope() as self._scope:
            while left and not self._closed:
                if self._step_failed or not await self._wait_for_work(left):
                    self._step_failed = False
                    await trio.sleep(retry_seconds)
                    retry_seconds = min(2 * retry_seconds, RETRY_LAST_SECONDS)
                else:
                    self.failure = ""
                    retry_seconds = RETRY_FIRST_SECONDS
                await rounds.do(self._slice)
                left = self._left
                if self._again and not left:
                    left = Step.MORE
        self.failure = ""
        self._active = False

    def _slice(self) -> bool:
        """One step. Returns whether the next one can follow at once."""
        if self._closed:
            return False
        self._left = self._step_once()
        return self._left is Step.MORE and not self._step_failed

    async def _wait_for_work(self, left: Step) -> bool:
        """Read, if there is something to read. False: that failed and has been logged."""
        try:
            if left is Step.READ:
                await self._fill()
        except Exception as error:
            self.failure = str(error) or type(error).__name__
            _log.warning(
                "subscription cannot read, retrying",
                topic=self._topic_name,
                subscription=self._name,
                reason=self.failure,
                exc_info=None if isinstance(error, BrokerError) else error,
            )
            return False
        return True

    def wake_at(self, wall_ms: int) -> None:
        """Run at that time of the wall clock: for times that a client has named. A clock that is
        set meanwhile is obeyed."""
        if wall_ms < self._wake_ms:
            self._wake_ms = float(wall_ms)  # compiled, it is no object
            self._set_timer()

    def wake_after(self, seconds: float) -> None:
        """Run after that time, whatever the wall clock shows."""
        wake_at = self._clock.now() + seconds
        if wake_at < self._wake_at:
            self._wake_at = wake_at
            self._set_timer()

    def _set_timer(self) -> None:
        if self._closed:
            return
        if self._timer_scope is not None:
            self._timer_scope.cancel()
        elif not self._timer_running:
            self._timer_running = True
            self._nursery.start_soon(self._keep_time)

    async def _keep_time(self) -> None:
        while not self._closed:
            if self._is_time():
                self.run()
                continue
            if math.isinf(self._wake_ms) and math.isinf(self._wake_at):
                break
            with trio.CancelScope() as self._timer_scope:
                await self._sleep()
            self._timer_scope = None
        self._timer_running = False

    def _is_time(self) -> bool:
        is_time = False
        if self._wake_ms <= self._clock.wall_ms():
            self._wake_ms = math.inf
            is_time = True
        if self._wake_at <= self._clock.now():
            self._wake_at = math.inf
            is_time = True
        return is_time

    async def _sleep(self) -> None:
        left_seconds = max(0.0, self._wake_at - self._clock.now())
        with trio.CancelScope(deadline=trio.current_time() + left_seconds):
            if self._wake_ms < math.inf:
                await sleep_until(self._clock, self._wake_ms)
            else:
                await trio.sleep_forever()

    def use_step(self, step: Callable[[], Step]) -> None:
        """Another step from now on."""
        if not self._closed:
            self._step = step

    def close(self) -> None:
        """Stop for good. Tasks end at their next step."""
        self._closed = True
        self._step, self._fill = _no_step, _no_fill  # they refer to the owner of the pump
        if self._scope is not None:
            self._scope.cancel()
        if self._timer_scope is not None:
            self._timer_scope.cancel()
