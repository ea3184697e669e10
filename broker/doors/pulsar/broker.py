"""The interface of the broker that command handlers use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import trio

    from broker.ground.config import BrokerConfig
    from broker.peers.ownership import Ownership
    from broker.tenancy.namespaces.namespaces import Namespaces
    from broker.tenancy.schemas.registry import SchemaRegistry
    from broker.topics.service import TopicWaiter
    from broker.topics.topic.topic import Topic
    from broker.topics.topic_lists import TopicLists
    from protocol.topic_name import TopicName


class Broker(Protocol):
    """See the module docstring."""

    @property
    def config(self) -> BrokerConfig:
        """The configuration in force now."""

    @property
    def nursery(self) -> trio.Nursery:
        """For operations that must continue when the connection ends."""

    @property
    def namespaces(self) -> Namespaces:
        """Namespaces, with the topics that exist and may exist."""

    @property
    def schemas(self) -> SchemaRegistry:
        """The schemas of topics."""

    @property
    def ownership(self) -> Ownership:
        """The brokers that serve topics."""

    @property
    def topic_lists(self) -> TopicLists:
        """The names of the topics of namespaces."""

    def next_producer_name(self) -> str:
        """A name that no other producer has, or had."""

    def call_when_loaded(self, name: TopicName, *, create: bool, waiter: TopicWaiter) -> None:
        """Give the waiter the topic, loaded or (if `create` and policies allow it) created."""

    async def get_or_load_topic(self, name: TopicName, *, create: bool) -> Topic:
        """The same for a task. Raises: BrokerError."""
