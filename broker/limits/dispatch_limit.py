"""The senders under one rate of dispatch: the subscriptions of a topic, those of the broker, or
one.

A sender without tokens waits in line. When there are tokens the first one gets its turn: it is
called, and sends within the call what it can. Others that ask meanwhile wait after those in line,
so that a busy subscription does not take every token from the others.

At rest a limit costs no task and no timer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, final

from broker.limits.dispatch_budget import DispatchBudget
from runtime.turn_line import TurnLine

if TYPE_CHECKING:
    from collections.abc import Callable

    import trio

    from broker.limits.dispatch_budget import Published
    from broker.tenancy.policies.delivery_rates import DispatchRate
    from runtime.clock import Clock


class DispatchSender(Protocol):
    """Sends messages of a subscription."""

    def take_turn(self) -> None:
        """There are tokens: send within this call."""


@final
class DispatchLimit:
    """See the module docstring."""

    __slots__ = ("_budget", "_clock", "_line", "bytes_taken", "level", "messages_taken")

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
        self._line: TurnLine[DispatchSender, None] = TurnLine(
            self._seconds_until_any, _call, nursery
        )
        self.messages_taken = 0
        """Messages sent since the limit was made; `bytes_taken` likewise."""
        self.bytes_taken = 0

    def use(self, rate: DispatchRate) -> None:
        """Another rate from now on. Those that wait keep their places."""
        self._budget.use(rate, self._clock.now())
        self._line.look_again()

    @property
    def is_holding(self) -> bool:
        """Whether a sender waits."""
        return bool(self._line)

    @property
    def times_held(self) -> int:
        """How often a sender had to wait."""
        return self._line.joined

    def admits(self, sender: DispatchSender, *, in_turn: bool) -> bool:
        """Whether it may send now. If not, it is called when it may. A sender that has its turn,
        here or at another limit, passes those that wait: else two limits that are both used up
        could send it from one line to the other for ever."""
        may_try = in_turn or not self._line
        if may_try and self._seconds_until_any() == 0:
            return True
        self._line.join(sender, None)
        return False

    def holds(self, sender: DispatchSender) -> bool:
        """Whether it waits in line."""
        return sender in self._line

    def forget(self, sender: DispatchSender) -> None:
        """It sends no more under this rate."""
        self._line.forget(sender)

    def tokens(self) -> tuple[float, float]:
        """(messages, bytes) that may be sent now."""
        return self._budget.tokens(self._clock.now())

    def take(self, messages: int, size_bytes: int) -> None:
        """So much was sent."""
        self.messages_taken += messages
        self.bytes_taken += size_bytes
        self._budget.take(messages, size_bytes, self._clock.now())

    def _seconds_until_any(self, _wish: None = None) -> float:
        return self._budget.seconds_until_any(self._clock.now())


def _call(sender: DispatchSender, _wish: None) -> None:
    sender.take_turn()
