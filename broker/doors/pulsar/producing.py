"""The producers of one connection, as topics know them: SEND_RECEIPT, SEND_ERROR and
CLOSE_PRODUCER.

The receipts of one group of durable messages are put together by the run of messages of one
producer, and leave as one buffer for each connection. Hot path.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from broker.topics.topic.producer import ProducerSession
from protocol import commands
from protocol.templates import ReceiptTemplate

if TYPE_CHECKING:
    from broker.net.session import AnySession
    from broker.topics.topic.producer import Producer
    from protocol.errors import BrokerError
    from protocol.new_messages import NewMessage, NewMessages


@final
class PulsarProducers(ProducerSession):
    """See the module docstring. Invariant: `_receipts` is empty between two events, because
    `answered` follows each `stored`."""

    __slots__ = ("_ledger_id", "_producer_id", "_receipts", "_session", "_template")

    def __init__(self, session: AnySession) -> None:
        super().__init__(
            session.peer,
            session.client_version,
            session.caller,
            session.handshake.client_features,
        )
        self._session = session
        self._receipts: list[bytes] = []
        self._producer_id = self._ledger_id = -1
        self._template = ReceiptTemplate(0, 0)
        """The template of both ids."""

    async def is_alive(self, timeout_seconds: float) -> bool:
        """See ClientConnection."""
        return await self._session.is_alive(timeout_seconds)

    def close(self, reason: str) -> None:
        """See ClientConnection."""
        self._session.close(reason)

    @property
    def received_at(self) -> float:
        """See ProducerSession."""
        return self._session.keep_alive.received_at

    def taken(self, count: int, size_bytes: int) -> None:
        """See ProducerSession."""
        self._session.publishes.taken(count, size_bytes)

    def stored(
        self, producer: Producer, message: NewMessage, ledger_id: int, entry_id: int
    ) -> None:
        """See ProducerSession."""
        if producer.producer_id != self._producer_id or ledger_id != self._ledger_id:
            self._use_template(producer.producer_id, ledger_id)
        self._template.append_to(
            self._receipts, message.sequence_id, message.highest_sequence_id, entry_id
        )

    def stored_run(
        self,
        producer: Producer,
        messages: NewMessages,
        start: int,
        end: int,
        ledger_id: int,
        entry_id: int,
    ) -> None:
        """See ProducerSession."""
        if producer.producer_id != self._producer_id or ledger_id != self._ledger_id:
            self._use_template(producer.producer_id, ledger_id)
        numbers = messages.sequence_ids
        if messages.are_consecutive:
            self._template.append_consecutive(self._receipts, numbers[start], entry_id, end - start)
        else:
            self._template.append_run(self._receipts, numbers[start:end], entry_id)

    def _use_template(self, producer_id: int, ledger_id: int) -> None:
        self._producer_id, self._ledger_id = producer_id, ledger_id
        self._template = ReceiptTemplate(producer_id, ledger_id)

    def answered(self, count: int, size_bytes: int) -> None:
        """See ProducerSession."""
        session, receipts = self._session, self._receipts
        if receipts:
            session.outbox.append(b"".join(receipts))
            receipts.clear()
        if count:
            session.publish_done(count, size_bytes)

    def refused(self, producer: Producer, message: NewMessage, reason: BrokerError) -> None:
        """See ProducerSession."""
        self._session.outbox.append(
            commands.send_error(
                producer.producer_id, message.sequence_id, reason.server_error, reason.message
            )
        )

    def closed(self, producer: Producer) -> None:
        """See ProducerSession. The client looks up and creates the producer again."""
        session, producer_id = self._session, producer.producer_id
        held: object = session.producers.get(producer_id)
        if held is not producer:
            return
        del session.producers[producer_id]
        session.closed_producers.add(producer_id)
        session.outbox.append(commands.close_producer(producer_id, commands.NO_REQUEST))

    def limits_changed(self, change: int) -> None:
        """See ProducerSession."""
        self._session.limited_producers += change
        self._session.limits_changed()
