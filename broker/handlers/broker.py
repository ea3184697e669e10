"""What the commands of clients need of the broker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import trio

    from broker.config import BrokerConfig
    from broker.namespaces.namespaces import Namespaces
    from broker.ownership import Ownership
    from broker.schemas.registry import SchemaRegistry
    from broker.service import TopicWaiter
    from broker.topic.topic import Topic
    from protocol.topic_name import TopicName


class Broker(Protocol):
    """See the module essay."""

    @property
    def config(self) -> BrokerConfig:
        """What is in force now."""

    @property
    def nursery(self) -> trio.Nursery:
        """For what must go on when the connection ends."""

    @property
    def namespaces(self) -> Namespaces:
        """Which topics there are, and may be."""

    @property
    def schemas(self) -> SchemaRegistry:
        """Their schemas."""

    @property
    def ownership(self) -> Ownership:
        """Which broker serves a topic."""

    def next_producer_name(self) -> str:
        """A name that no other producer has, or had."""

    def loaded_topics(self, namespace_name: str, domain: str) -> list[str]:
        """Full names of the loaded topics of a namespace."""

    def call_when_loaded(self, name: TopicName, *, create: bool, waiter: TopicWaiter) -> None:
        """Give the waiter the topic, loaded or (if `create` and policies allow it) created."""

    async def get_or_load_topic(self, name: TopicName, *, create: bool) -> Topic:
        """The same for a task. Raises: BrokerError."""
