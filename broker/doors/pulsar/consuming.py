"""The consumers of one connection, as subscriptions know them: MESSAGE, ACTIVE_CONSUMER_CHANGE,
REACHED_END_OF_TOPIC and CLOSE_CONSUMER.

The frames of a whole delivery are made by one call, and so are those of one entry for many
consumers. Hot path.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from broker.net.strip import FrameStrip
from broker.topics.subscription.consumer import ConsumerSession
from native.broadcast import message_frames, message_heads
from protocol import commands
from protocol.templates import epoch_option, message_head, message_rest, message_run_frames

if TYPE_CHECKING:
    from array import array
    from collections.abc import Sequence

    from broker.net.session import AnySession
    from broker.topics.subscription.consumer import (
        AckRuns,
        AckRunTarget,
        Consumer,
        Delivery,
        SharedEntry,
    )

ACTIVE_CHANGE_VERSION_MIN: Final = 12
"""Protocol version from which clients understand ACTIVE_CONSUMER_CHANGE."""
STRIP_PAYLOAD_BYTES_MIN: Final = 2304
"""Frames with smaller payloads are joined by the outbox, which is cheaper than a vector of them.
From this size on, the 512 frames of one call are as much as one step sends of a strip."""
STRIP_FRAMES_MIN: Final = 8
"""Fewer frames leave together with the other output of the turn."""


@final
class PulsarConsumers(ConsumerSession):
    """See the module docstring."""

    __slots__ = ("_outbox", "_session")

    def __init__(self, session: AnySession) -> None:
        super().__init__(
            session.peer,
            session.client_version,
            session.caller,
            session.handshake.client_features,
        )
        self._session = session
        self._outbox = session.outbox

    async def is_alive(self, timeout_seconds: float) -> bool:
        """See ClientConnection."""
        return await self._session.is_alive(timeout_seconds)

    def close(self, reason: str) -> None:
        """See ClientConnection."""
        self._session.close(reason)

    @property
    def writable(self) -> bool:
        """See ConsumerSession. False while the outbox is over its high-water mark."""
        return self._outbox.writable

    def deliver(self, consumer: Consumer, delivery: Delivery) -> None:
        """See ConsumerSession."""
        epoch = consumer.epoch if consumer.epoch >= 0 else None
        if delivery.redelivery_counts is None:
            buffers = message_run_frames(
                consumer.consumer_id,
                delivery.ledger_id,
                delivery.entry_ids,
                delivery.partition,
                delivery.payloads,
                delivery.size_bytes,
                epoch,
            )
        else:
            buffers = _one_by_one(consumer.consumer_id, delivery, epoch)
        self._outbox.append_many(buffers, sum(map(len, buffers)))

    def deliver_to_many(
        self,
        slots: array[int],
        consumers: Sequence[Consumer | None],
        consumer_ids: array[int],
        entry: SharedEntry,
        payload: bytes,
        epoch: int,
    ) -> None:
        """See ConsumerSession. The heads of all sessions share what follows the consumer's id."""
        del consumers
        rest = entry.encodings.get(epoch)
        if rest is None:
            option = epoch_option(epoch if epoch >= 0 else None)
            rest = message_rest(*entry.position, entry.partition, option)
            entry.keep(epoch, rest)
        frames = len(slots)
        if len(payload) >= STRIP_PAYLOAD_BYTES_MIN and frames >= STRIP_FRAMES_MIN:
            heads = message_heads(slots, consumer_ids, rest, len(payload))
            self._outbox.append_strip(FrameStrip(heads, payload, frames))
            return
        buffers = message_frames(slots, consumer_ids, rest, payload)
        self._outbox.append_many(buffers, sum(map(len, buffers)))

    def active(self, consumer: Consumer, *, is_active: bool) -> None:
        """See ConsumerSession."""
        if self._session.protocol_version >= ACTIVE_CHANGE_VERSION_MIN:
            change = commands.active_consumer_change(consumer.consumer_id, is_active=is_active)
            self._outbox.append(change)

    def ended(self, consumer: Consumer) -> None:
        """See ConsumerSession."""
        self._outbox.append(commands.reached_end_of_topic(consumer.consumer_id))

    def closed(self, consumer: Consumer) -> None:
        """See ConsumerSession. The client looks up and subscribes again."""
        consumers, consumer_id = self._session.consumers, consumer.consumer_id
        attached = consumers.get(consumer_id)
        if attached is not None and attached.consumer is consumer:
            del consumers[consumer_id]
            self._outbox.append(commands.close_consumer(consumer_id, commands.NO_REQUEST))

    def ack_runs_for(self, target: AckRunTarget) -> AckRuns | None:
        """See ConsumerSession."""
        return self._session.ack_runs_for(target)


def _one_by_one(consumer_id: int, delivery: Delivery, epoch: int | None) -> list[bytes]:
    """The frames of entries of which some were delivered before, or are acked in part."""
    counts, ack_sets = delivery.redelivery_counts, delivery.ack_sets
    assert counts is not None
    assert ack_sets is not None
    ledger_id, partition, entry_ids = delivery.ledger_id, delivery.partition, delivery.entry_ids
    buffers: list[bytes] = []
    for at, payload in enumerate(delivery.payloads):
        buffers.append(
            message_head(
                consumer_id,
                ledger_id,
                entry_ids[at],
                partition,
                counts[at],
                len(payload),
                ack_sets[at],
                epoch,
            )
        )
        buffers.append(payload)
    return buffers
