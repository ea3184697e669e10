"""What the broker gives each of its topics to work with. None of it knows the topics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, final

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    import trio

    from broker.config import BrokerConfig
    from broker.managed_ledger.factory import ManagedLedgerFactory
    from broker.seams import Clock
    from broker.subscription.config import SubscriptionConfig
    from broker.subscription.factory import SubscriptionKinds
    from broker.subscription.limits import BrokerUnacked
    from broker.topic.entry_index import EntryInterceptor
    from protocol.topic_name import TopicName


class PublishedTo(Protocol):
    """A topic that took messages in this turn."""

    @property
    def name(self) -> TopicName:
        """Its name, for what is told of it."""

    def kick(self) -> None:
        """Hand on what it took: to the storage, or without one to the subscriptions."""


@final
class TopicServices:
    """See the module essay."""

    def __init__(
        self,
        *,
        config: BrokerConfig,
        clock: Clock,
        factory: ManagedLedgerFactory,
        subscription_kinds: SubscriptionKinds,
        subscription_config: SubscriptionConfig,
        broker_unacked: BrokerUnacked,
        entry_interceptor: EntryInterceptor | None,
        unload: Callable[[TopicName], Awaitable[None]],
    ) -> None:
        self.config = config
        """What is in force now: an administrator may change it while the broker runs."""
        self.clock = clock
        self.factory = factory
        self.subscription_kinds = subscription_kinds
        self.subscription_config = subscription_config
        self.broker_unacked = broker_unacked
        self.entry_interceptor = entry_interceptor
        self.unload = unload
        """For a topic that cannot go on: it is loaded again when it is asked for."""
        self.kicks: list[PublishedTo] = []
        """Topics that took messages in this turn; `kick_storage` at its end serves them."""
        self.running_in: trio.Nursery | None = None

    @property
    def nursery(self) -> trio.Nursery:
        """The owner of topics, subscriptions and their operations."""
        assert self.running_in is not None, "the broker is not running"
        return self.running_in

    def kick_storage(self) -> None:
        """End of a turn: hand everything published in it to the storage.

        Raises: ExceptionGroup: of the topics that failed, when the others have been served. What
        they lost was never acknowledged: the connection whose turn it is ends with this, and its
        client publishes again.
        """
        failures: list[Exception] = []
        while self.kicks:
            kicks, self.kicks = self.kicks, []
            for topic in kicks:
                try:
                    topic.kick()
                except Exception as error:
                    error.add_note(f"of {topic.name.full}")
                    failures.append(error)
        if failures:
            raise ExceptionGroup("topics could not take what was published", failures)
