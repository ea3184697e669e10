"""The limits of subscriptions: those of one topic, and the bound on unacknowledged messages of the
whole broker, shared by all its subscriptions.

The sum is derived and not counted: each subscription reports its own recomputable number. Over the
limit, subscriptions that hold more than their share stop. They resume when the sum falls below half
the limit, so that they do not alternate quickly (BrokerService of Pulsar 4.0).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.policies.effective import EffectivePolicies


@final
class SubscriptionLimits:
    """The limits in force for each subscription of one topic; 0: none. Also whether messages wait
    for the time that their producer names. The topic changes them, and
    then calls `limits_changed` of its subscriptions."""

    __slots__ = (
        "delivers_later",
        "dispatch_waits_for_acks",
        "max_consumers_per_subscription",
        "max_unacked_messages_per_consumer",
        "max_unacked_messages_per_subscription",
    )

    def __init__(self, policies: EffectivePolicies) -> None:
        self.use(policies)

    def use(self, policies: EffectivePolicies) -> bool:
        """Take up those of these policies. Returns whether any is another now."""
        before = self._all()
        self.delivers_later = policies.delays.delivers_later
        self.dispatch_waits_for_acks = policies.dispatch_waits_for_acks
        self.max_consumers_per_subscription = policies.counts.consumers_of_subscription_max
        self.max_unacked_messages_per_consumer = policies.counts.unacked_of_consumer_max
        self.max_unacked_messages_per_subscription = policies.counts.unacked_of_subscription_max
        return before != self._all()

    def _all(self) -> list[object]:
        return [getattr(self, name, None) for name in self.__slots__]


@final
class BrokerUnacked:
    """Unacked messages by subscription (any hashable key) against one limit (0: no limit)."""

    __slots__ = ("_held", "_resume", "_share", "blocked", "limit", "messages")

    def __init__(self, limit: int, share: float) -> None:
        """`share` of the limit is what a subscription may hold while the limit is reached. With a
        share of 0 there is no limit, as in Pulsar."""
        self.limit = limit if share > 0 else 0
        self._share = int(limit * share)
        self.messages = 0
        self.blocked = False
        self._held: dict[object, int] = {}
        self._resume: dict[object, Callable[[], None]] = {}

    def report(self, key: object, messages: int) -> None:
        """The subscription `key` now holds `messages` unacked ones; 0 removes it."""
        before = self._held.pop(key, 0)
        if messages:
            self._held[key] = messages
        self.messages += messages - before
        if not self.limit:
            return
        if self.messages >= self.limit:
            self.blocked = True
        elif self.blocked and self.messages <= self.limit // 2:
            self.blocked = False
            waiting, self._resume = self._resume, {}
            for resume in waiting.values():
                resume()

    def blocks(self, key: object, resume: Callable[[], None]) -> bool:
        """Whether `key` must not send now. If so, `resume` is called once when it may again.

        Subscriptions that hold no more than their share are still served, so a stuck neighbour does
        not stop them.
        """
        if not self.holds(key):
            return False
        self._resume[key] = resume
        return True

    def holds(self, key: object) -> bool:
        """Whether `key` must not send now."""
        return self.blocked and self._held.get(key, 0) > self._share

    def forget(self, key: object) -> None:
        """The subscription is closed."""
        self._resume.pop(key, None)
        self.report(key, 0)
