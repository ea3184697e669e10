"""SEND: from the frame to the topic. The hottest function of the broker."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from broker.net.errors import ConnectionRefused
from broker.net.send_handler import SendHandler
from broker.topics.topic.producer import NO_LIMITS, Producer
from protocol import pulsar_api_pb2 as pb
from protocol.errors import BrokerError, NotAllowed, ServerError
from protocol.metadata import (
    METADATA_UNCOUNTED_BYTES,
    check_metadata,
    count_messages,
    verify_checksum,
)
from protocol.send_runs import PAYLOAD_BYTES_MIN

if TYPE_CHECKING:
    from broker.doors.pulsar.session import ClientSession
    from protocol.send_fields import Send
    from protocol.send_runs import SendRun


@final
class Publishing(SendHandler):
    """Verifies messages and hands them to the topics."""

    def handle(self, session: ClientSession, send: Send) -> None:
        """Hand a message to its producer's topic. The receipt comes when it is durable."""
        producer_id = send.producer_id
        producer = session.producers.get(producer_id)
        if not isinstance(producer, Producer):
            _refuse_unknown(session, producer_id)
            return
        payload = send.payload
        size = len(payload)
        if size < PAYLOAD_BYTES_MIN:
            raise ConnectionRefused(f"SEND of {size} bytes, too few for message metadata")
        if not send.is_verified and not verify_checksum(payload):
            broken = BrokerError(ServerError.ChecksumError, "Checksum failed on the broker")
            producer.topic.refuse_message(producer, send, broken)
            return
        send.is_verified = True
        if size > METADATA_UNCOUNTED_BYTES:
            refusal = check_metadata(payload)
            if refusal:
                # The code after which a client fails this message alone.
                producer.topic.refuse_message(producer, send, NotAllowed(refusal))
                return
        producer.topic.publish(producer, send)

    def handle_run(self, session: ClientSession, run: SendRun) -> None:
        """Hand messages of one producer to its topic. None of them is large."""
        producer = session.producers.get(run.producer_id)
        if isinstance(producer, Producer):
            producer.topic.publish_run(producer, run)
        else:
            _refuse_unknown(session, run.producer_id)

    def admits(self, session: ClientSession, send: Send) -> bool:
        """Whether the limits of its topic let the message pass now. One that is refused, or that is
        dropped because its producer is sent away, does not wait."""
        producer = session.producers.get(send.producer_id)
        if not isinstance(producer, Producer) or producer.limits is NO_LIMITS:
            return True
        payload, limits = send.payload, producer.limits
        size = len(payload)
        refusal = limits.refusal_of(payload)
        if refusal:
            producer.topic.refuse_message(producer, send, NotAllowed(refusal))
            return False
        if not session.admitted_by(limits.rates, count_messages(payload) or 1, size):
            return False
        backlog = limits.backlog
        return backlog is None or backlog.takes(size)


def _refuse_unknown(session: ClientSession, producer_id: int) -> None:
    """A message for a producer that does not exist, or on a connection without CONNECT.

    If the broker itself has closed the producer, the client has not noticed yet and will send the
    message again through a new one. Otherwise the order of later messages cannot be kept on this
    connection, so it ends, as with Pulsar.
    """
    if not session.connected:
        session.handshake.check(pb.BaseCommand.SEND)
    if producer_id in session.closed_producers:
        return
    raise ConnectionRefused(
        f"SEND for producer {producer_id}, which is not open on this connection"
    )
