"""The rates of dispatch that hold for one subscription: the broker's, its topic's and its own.

A step may send as many entries as, on average, hold the messages and bytes for which there are
tokens. What it sends in excess (a batch, a large entry) is a debt, and the next step waits for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, final

from broker.limits.dispatch_budget import NEVER, SUBSCRIPTION, Throttled
from broker.limits.dispatch_limit import DispatchLimit
from broker.tenancy.policies.delivery_rates import NO_DISPATCH_RATE
from broker.topics.subscription.pump import Step

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.topics.subscription.dispatcher import Dispatcher
    from broker.topics.subscription.factory import TopicContext


def _nothing() -> None:
    pass


class Allowance(NamedTuple):
    """The amount that one step may send."""

    entries: int
    size_bytes: int


@final
class DispatchGate:
    """See the module docstring. A step that it lets through is `allowed`, sends, and says what it
    `sent`, with nothing awaited in between."""

    __slots__ = (
        "_context",
        "_entries",
        "_in_turn",
        "_is_free",
        "_messages",
        "_name",
        "_own",
        "_own_rate",
        "_resume",
        "_size_bytes",
        "limits",
        "throttled",
    )

    def __init__(self, name: str, context: TopicContext, resume: Callable[[], None]) -> None:
        """`resume` takes a step at once, when the subscription has waited for its turn."""
        self._name = name
        self._context = context
        self._resume = resume
        self._own_rate = NO_DISPATCH_RATE
        self._own: DispatchLimit | None = None
        self._in_turn = False
        self._is_free = False
        self._entries = 0
        """Sent by the last step that sent anything, with messages and bytes."""
        self._messages = 0
        self._size_bytes = 0
        self.limits: tuple[DispatchLimit, ...] = ()
        """Empty: nothing is limited, and no call is needed."""
        self.throttled: dict[str, Throttled] = {}
        """By level, since the topic was loaded."""
        self.renew()

    def renew(self) -> bool:
        """Take up the limits in force. Returns whether there are any."""
        context = self._context
        limits = context.limits
        rate = limits.rates.of_subscription(self._name)
        if rate != self._own_rate:
            self._own_rate = rate
            self._own = None
            if rate:
                self._own = DispatchLimit(
                    rate, SUBSCRIPTION, context.clock, lambda: context.nursery, limits.published
                )
        before = self.limits
        own = () if self._own is None else (self._own,)
        self.limits = (*limits.dispatch_limits, *own)
        for each in before:
            if each not in self.limits:
                each.forget(self)
        return bool(self.limits)

    def close(self) -> None:
        """Nothing is sent any more."""
        for each in self.limits:
            each.forget(self)
        self._resume = _nothing  # it refers to the owner of the gate

    def take_turn(self) -> None:
        """There are tokens of a limit that it waited for."""
        self._in_turn = True
        try:
            self._resume()
        finally:
            self._in_turn = False

    def step(self, dispatcher: Dispatcher, backlog_entries: int, most: Allowance) -> Step:
        """A step of the dispatcher within the rates."""
        allowed = self.allowed(backlog_entries, most)
        if allowed is None:
            return Step.IDLE
        entries, messages = dispatcher.entries_out, dispatcher.messages_out
        size_bytes = dispatcher.bytes_out
        left = dispatcher.step(allowed.entries, allowed.size_bytes)
        self.sent(
            dispatcher.entries_out - entries,
            dispatcher.messages_out - messages,
            dispatcher.bytes_out - size_bytes,
        )
        return left

    def allowed(self, backlog_entries: int, most: Allowance) -> Allowance | None:
        """The part that a step may send now of what it could send. None: nothing; `resume` will be
        called when it may."""
        self._is_free = backlog_entries < self._context.limits.rates.free_below_entries
        if self._is_free:
            return most
        for each in self.limits:
            if not each.admits(self, in_turn=self._in_turn):
                self._count(each, most)
                return None
        entries, size_bytes = most
        for each in self.limits:
            entries, size_bytes = self._count(each, Allowance(entries, size_bytes))
        return Allowance(max(1, entries), max(1, size_bytes))

    def _count(self, limit: DispatchLimit, most: Allowance) -> Allowance:
        """The part of it that a limit leaves, counted if it is less."""
        messages, size_bytes = limit.tokens()
        fit = messages
        bytes_fit = float(most.entries)
        if self._entries:
            if not self._context.limits.rates.counts_entries:
                fit = messages * self._entries / max(self._messages, 1)
            bytes_fit = size_bytes * self._entries / max(self._size_bytes, 1)
        entries = min(most.entries, int(fit))
        times = self.throttled.get(limit.level, NEVER)
        self.throttled[limit.level] = Throttled(
            times.messages + (entries < most.entries),
            times.size_bytes + (size_bytes < most.size_bytes),
        )
        return Allowance(min(entries, int(bytes_fit)), min(most.size_bytes, int(size_bytes)))

    def sent(self, entries: int, messages: int, size_bytes: int) -> None:
        """Take tokens for what was sent since the last call of `allowed`."""
        if self._is_free or not entries:
            return
        self._entries, self._messages, self._size_bytes = entries, messages, size_bytes
        counted = entries if self._context.limits.rates.counts_entries else messages
        for each in self.limits:
            each.take(counted, size_bytes)

    @property
    def is_waiting(self) -> bool:
        """Whether a rate holds it now."""
        return any(each.holds(self) for each in self.limits)

    def why(self) -> str:
        """The rate that holds the subscription now; empty: none does."""
        for each in self.limits:
            if each.holds(self):
                return f"the dispatch rate of the {each.level} is used up"
        return ""
