"""The limits of subscriptions: those of one topic, and the bound on unacknowledged messages of the
whole broker, shared by all its subscriptions.

The sum is derived and not counted: each subscription reports its own recomputable number. From the
limit on, subscriptions that hold more than their share stop. One resumes when it holds less than
half of its share, and all do when the sum is below half of the limit, so that they do not alternate
quickly (BrokerService of Pulsar 4.0, which looks for the limit only every 30 seconds, and not in
the first ten minutes).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import structlog

from broker.topics.subscription.unacked import is_below_half

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.limits.dispatch_budget import Published
    from broker.limits.dispatch_limit import DispatchLimit
    from broker.tenancy.policies.effective import EffectivePolicies

log: Final = structlog.get_logger()


@final
class SubscriptionLimits:
    """The limits in force for each subscription of one topic; 0: none. Also whether messages wait
    for the time that their producer names. The topic changes them, and
    then calls `limits_changed` of its subscriptions."""

    __slots__ = (
        "delivers_later",
        "dispatch_limits",
        "dispatch_waits_for_acks",
        "max_consumers_per_subscription",
        "max_unacked_messages_per_consumer",
        "max_unacked_messages_per_subscription",
        "published",
        "rates",
    )

    def __init__(self, policies: EffectivePolicies, published: Published | None = None) -> None:
        self.published = published
        """How fast messages are published to the topic."""
        self.use(policies)

    def use(
        self, policies: EffectivePolicies, dispatch_limits: tuple[DispatchLimit, ...] = ()
    ) -> bool:
        """Take up those of these policies, and the limits that the subscriptions of the topic
        share. Returns whether any is another now."""
        before = self._all()
        self.delivers_later = policies.delays.delivers_later
        self.dispatch_waits_for_acks = policies.dispatch_waits_for_acks
        self.dispatch_limits = dispatch_limits
        self.rates = policies.delivery
        self.max_consumers_per_subscription = policies.counts.consumers_of_subscription_max
        self.max_unacked_messages_per_consumer = policies.counts.unacked_of_consumer_max
        self.max_unacked_messages_per_subscription = policies.counts.unacked_of_subscription_max
        return before != self._all()

    def _all(self) -> list[object]:
        return [getattr(self, name, None) for name in self.__slots__]


@final
class BrokerUnacked:
    """Unacked messages by subscription (any hashable key) against one limit (0: no limit)."""

    __slots__ = ("_held", "_resume", "_share", "_stopped", "blocked", "limit", "messages")

    def __init__(self, limit: int, share: float) -> None:
        """`share` of the limit is what a subscription may hold while the limit is reached. With a
        share of 0 there is no limit, as in Pulsar."""
        self.limit = limit if share > 0 else 0
        self._share = int(limit * share)
        self.messages = 0
        self.blocked = False
        self._held: dict[object, int] = {}
        self._stopped: set[object] = set()
        self._resume: dict[object, Callable[[], None]] = {}

    def report(self, key: object, messages: int) -> None:
        """The subscription `key` now holds `messages` unacked ones; 0 removes it."""
        before = self._held.pop(key, 0)
        if messages:
            self._held[key] = messages
        self.messages += messages - before
        if not self.limit:
            return
        if not self.blocked:
            if self.messages >= self.limit:
                self._block()
        elif is_below_half(self.messages, self.limit):
            self._unblock()
        elif messages > self._share:
            self._stopped.add(key)
        elif key in self._stopped and is_below_half(messages, self._share):
            self._go_on(key)

    def _block(self) -> None:
        self.blocked = True
        self._stopped = {key for key, held in self._held.items() if held > self._share}
        log.warning(
            "maxUnackedMessagesPerBroker is reached: subscriptions that hold much get no more"
            " messages until consumers acknowledge",
            messages=self.messages,
            limit=self.limit,
            share=self._share,
            subscriptions=len(self._stopped),
        )

    def _unblock(self) -> None:
        self.blocked = False
        log.info(
            "unacknowledged messages are below half of maxUnackedMessagesPerBroker again",
            messages=self.messages,
            limit=self.limit,
        )
        stopped, self._stopped = self._stopped, set()
        for key in stopped:
            self._go_on(key)

    def _go_on(self, key: object) -> None:
        self._stopped.discard(key)
        resume = self._resume.pop(key, None)
        if resume is not None:
            resume()

    def blocks(self, key: object, resume: Callable[[], None]) -> bool:
        """Whether `key` must not send now. If so, `resume` is called once when it may again.

        Subscriptions that hold no more than their share are still served, so a stuck neighbour does
        not stop them.
        """
        if key not in self._stopped:
            return False
        self._resume[key] = resume
        return True

    def holds(self, key: object) -> bool:
        """Whether `key` must not send now."""
        return key in self._stopped

    def forget(self, key: object) -> None:
        """The subscription is closed."""
        self._resume.pop(key, None)
        self._stopped.discard(key)
        self.report(key, 0)
