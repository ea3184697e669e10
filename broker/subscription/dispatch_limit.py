"""Those that send under one rate of dispatch: the subscriptions of a topic, of the broker, or one.

A sender without tokens waits in line. When there are tokens the first one gets its turn: it is
called, and sends within the call what it can. Others that ask meanwhile wait behind those in line,
so that a busy subscription does not take every token from the others.

At rest a limit costs no task and no timer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol, final

import trio

from broker.subscription.dispatch_budget import DispatchBudget

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.policies.delivery_rates import DispatchRate
    from broker.subscription.dispatch_budget import Published
    from runtime.clock import Clock

WAIT_SECONDS_MIN: Final = 0.01
"""With a high rate a sender is called for the tokens of this time, and not for each message."""
CALLED_AT_ONCE_MAX: Final = 100
"""Senders called before other work has a turn."""


class DispatchSender(Protocol):
    """Sends messages of a subscription."""

    def take_turn(self) -> None:
        """There are tokens: send within this call."""


@final
class DispatchLimit:
    """See the module docstring."""

    __slots__ = (
        "_budget",
        "_clock",
        "_nursery",
        "_pause",
        "_serving",
        "_waiting",
        "bytes_taken",
        "level",
        "messages_taken",
        "times_held",
    )

    def __init__(
        self,
        rate: DispatchRate,
        level: str,
        clock: Clock,
        nursery: Callable[[], trio.Nursery],
        published: Published | None = None,
    ) -> None:
        """`level` is what the rate is of, for reports. `nursery` runs the timer."""
        self.level = level
        self._budget = DispatchBudget(rate, clock.now(), published)
        self._clock = clock
        self._nursery = nursery
        self._waiting: dict[DispatchSender, None] = {}
        self._serving = False
        self._pause: trio.CancelScope | None = None
        self.messages_taken = 0
        """What was sent since the limit was made, as `bytes_taken`."""
        self.bytes_taken = 0
        self.times_held = 0
        """How often a sender had to wait."""

    def use(self, rate: DispatchRate) -> None:
        """Another rate from now on. Those that wait keep their places."""
        self._budget.use(rate, self._clock.now())
        if self._pause is not None:
            self._pause.cancel()

    @property
    def is_holding(self) -> bool:
        """Whether a sender waits."""
        return bool(self._waiting)

    def admits(self, sender: DispatchSender, *, in_turn: bool) -> bool:
        """Whether it may send now. If not, it is called when it may. A sender that has its turn,
        here or at another limit, passes those that wait: else two limits that are both used up
        could send it from one line to the other for ever."""
        may_try = in_turn or not self._waiting
        if may_try and self._budget.seconds_until_any(self._clock.now()) == 0:
            return True
        self.times_held += 1
        self._waiting[sender] = None
        if not self._serving:
            self._serving = True
            self._nursery().start_soon(self._serve)
        return False

    def holds(self, sender: DispatchSender) -> bool:
        """Whether it waits in line."""
        return sender in self._waiting

    def forget(self, sender: DispatchSender) -> None:
        """It sends no more under this rate."""
        self._waiting.pop(sender, None)

    def tokens(self) -> tuple[float, float]:
        """(messages, bytes) that may be sent now."""
        return self._budget.tokens(self._clock.now())

    def take(self, messages: int, size_bytes: int) -> None:
        """So much was sent."""
        self.messages_taken += messages
        self.bytes_taken += size_bytes
        self._budget.take(messages, size_bytes, self._clock.now())

    async def _serve(self) -> None:
        """Call those that wait, one after the other, until none does."""
        try:
            while self._waiting:
                seconds = self._call_waiting()
                if self._waiting:
                    with trio.CancelScope() as self._pause:
                        await trio.sleep(max(seconds, WAIT_SECONDS_MIN) if seconds else 0)
        finally:
            self._serving = False
            self._pause = None

    def _call_waiting(self) -> float:
        """Returns the time until the first of those that are left may send."""
        for _ in range(CALLED_AT_ONCE_MAX):
            if not self._waiting:
                break
            seconds = self._budget.seconds_until_any(self._clock.now())
            if seconds > 0:
                return seconds
            sender = next(iter(self._waiting))
            del self._waiting[sender]
            sender.take_turn()
        return 0.0
