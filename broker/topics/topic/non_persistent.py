"""A non-persistent topic: messages go to the consumers connected now and are never stored.

A message that no consumer can take (no permits, full connection, no consumer) is dropped and
counted. The producer gets its receipt at once, with the message id 0:0 that Pulsar uses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast, final

from broker.ground.entry import Entry
from broker.topics.topic.topic import Topic
from protocol.metadata import count_messages

if TYPE_CHECKING:
    from broker.tenancy.policies.scopes import TopicPolicies
    from broker.topics.subscription.api import DirectSubscription
    from broker.topics.topic.producer import Producer
    from broker.topics.topic.services import TopicServices
    from protocol.new_messages import NewMessage
    from protocol.topic_name import TopicName


@final
class NonPersistentTopic(Topic):
    """One topic in memory only. It is removed when no client uses it."""

    __slots__ = ("_arrived",)
    persistent = False

    def __init__(self, services: TopicServices, name: TopicName, policies: TopicPolicies) -> None:
        super().__init__(services, name, policies)
        self._arrived: list[Entry] | None = None

    def publish(self, producer: Producer, send: NewMessage) -> None:
        """Keep the messages until the end of the turn, when all are delivered together."""
        if self.closing:
            return  # the producer is being sent away, and its client sends this again
        message_count = count_messages(send.payload)
        producer.messages_in += message_count or 1
        if send.is_chunk:
            producer.chunks_in += 1
            self.chunks_seen.any = True
        producer.bytes_in += len(send.payload)
        if self._arrived is None:
            self._arrived = []
            self.services.turns.published_to(self)
        self._arrived.append(Entry(send.payload, message_count, (0, 0)))
        producer.session.stored(producer, send, 0, 0)
        producer.session.answered(0, 0)

    def append_published(self) -> None:
        """End of a turn: deliver the messages it brought."""
        arrived, self._arrived = self._arrived, None
        if arrived:
            self.published_last_ms = self.services.clock.wall_ms()
            for subscription in self.subscriptions.values():
                cast("DirectSubscription", subscription).deliver(arrived)

    def storage_failed(self, error: Exception) -> None:
        """It has none."""

    def has_messages(self) -> bool:
        """Whether any was published since the topic was loaded."""
        return self._arrived is not None or self.published_last_ms > 0

    def is_idle(self) -> bool:
        """No client is connected, so there is nothing to keep."""
        if self.closing or self.access.producers or self.access.waiting:
            return False
        return not self.consumer_count()
