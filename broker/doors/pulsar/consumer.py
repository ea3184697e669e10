"""Commands of an attached consumer: FLOW, ACK, redelivery, closing, queries.

The frequent ones are synchronous. As in Pulsar, FLOW, ACK and redelivery for a consumer that does
not exist (any more) are ignored: the client has been notified, or will subscribe again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.doors.pulsar.pending import PendingConsumer
from broker.net.errors import ConnectionRefused
from broker.topics.subscription.api import AckId
from broker.topics.subscription.statistics import iso_time
from protocol import commands
from protocol import pulsar_api_pb2 as pb
from protocol.errors import ConsumerNotFound, MetadataError, ServiceNotReady
from protocol.metadata import is_batch
from protocol.position import signed_id
from protocol.requests import PERMITS_MAX

if TYPE_CHECKING:
    from collections.abc import Awaitable, Coroutine
    from typing import Any

    from broker.doors.pulsar.broker import Broker
    from broker.doors.pulsar.session import ClientSession
    from broker.ground.entry import Entry
    from broker.topics.subscription.api import ConsumerHandle
    from protocol.plain_acks import PlainAck
    from protocol.position import Position
    from protocol.requests import CloseConsumer, Flow

_CUMULATIVE = pb.CommandAck.Cumulative


def handle_flow(session: ClientSession, request: Flow) -> None:
    """The consumer accepts more messages."""
    permits = request.permits
    if not 0 < permits <= PERMITS_MAX:
        raise ConnectionRefused(
            f"FLOW of {permits} messages: it must grant at least one, at most {PERMITS_MAX}"
        )
    consumer = session.consumers.get(request.consumer_id)
    if isinstance(consumer, PendingConsumer):
        consumer.permits += permits
    elif consumer is not None:
        consumer.flow(permits)


def handle_ack(session: ClientSession, body: pb.CommandAck) -> None:
    """Acknowledge. Answered with ACK_RESPONSE when the client gave a request id."""
    consumer = session.consumers.get(body.consumer_id)
    wants_answer = body.HasField("request_id")
    if consumer is None or isinstance(consumer, PendingConsumer):
        if wants_answer:
            raise ConsumerNotFound(f"Consumer {body.consumer_id} is not subscribed")
        return
    if body.HasField("txnid_most_bits") and body.txnid_most_bits | body.txnid_least_bits:
        raise ServiceNotReady("Transactions are not enabled")
    ids = [
        AckId((signed_id(each.ledgerId), signed_id(each.entryId)), tuple(each.ack_set))
        for each in body.message_id
    ]
    consumer.ack(ids, cumulative=body.ack_type == _CUMULATIVE)
    if wants_answer:
        session.send(commands.ack_response(body.consumer_id, body.request_id))


def handle_plain_ack(session: ClientSession, ack: PlainAck) -> None:
    """Acknowledge whole entries, or all up to one."""
    consumer = session.consumers.get(ack.consumer_id)
    if consumer is None or isinstance(consumer, PendingConsumer):
        return
    if ack.is_cumulative:
        consumer.ack((AckId((ack.ledger_id, ack.entry_ids[0])),), cumulative=True)
    else:
        consumer.ack_entries(ack.ledger_id, ack.entry_ids)


def handle_redeliver(
    session: ClientSession, body: pb.CommandRedeliverUnacknowledgedMessages
) -> None:
    """Redeliver unacknowledged messages: some of them, or all of the consumer."""
    consumer = session.consumers.get(body.consumer_id)
    if consumer is None or isinstance(consumer, PendingConsumer):
        return
    positions: list[Position] | None = None
    if body.message_ids:
        positions = [
            (signed_id(each.ledgerId), signed_id(each.entryId)) for each in body.message_ids
        ]
    epoch = body.consumer_epoch if body.HasField("consumer_epoch") else -1
    consumer.redeliver(positions, epoch)


def attached(session: ClientSession, consumer_id: int) -> ConsumerHandle:
    """An existing consumer. Raises: BrokerError."""
    consumer = session.consumers.get(consumer_id)
    if consumer is None or isinstance(consumer, PendingConsumer):
        raise MetadataError("Consumer not found")
    return consumer


def handle_unsubscribe(
    broker: Broker, session: ClientSession, body: pb.CommandUnsubscribe
) -> Coroutine[Any, Any, None]:
    """Remove the subscription of this consumer with its position or, in a broadcast, the state of
    this consumer. The consumer is detached at once.

    If a later step fails, the client gets an error and assumes that its consumer continues. It is
    then sent CLOSE_CONSUMER, subscribes again, and finds everything as before.
    """
    left = attached(session, body.consumer_id).unsubscribe(force=body.force)
    del session.consumers[body.consumer_id]
    return _answer_unsubscribe(broker, left, session, body)


async def _answer_unsubscribe(
    broker: Broker, left: Awaitable[None], session: ClientSession, body: pb.CommandUnsubscribe
) -> None:
    try:
        await left
    except Exception:
        # The refusal must come first, and it does: it is queued before another task runs.
        broker.nursery.start_soon(_send_away, session, body.consumer_id)
        raise
    session.send(commands.success(body.request_id))


async def _send_away(session: ClientSession, consumer_id: int) -> None:
    if consumer_id not in session.consumers:
        session.send(commands.close_consumer(consumer_id, commands.NO_REQUEST))


def handle_close_consumer(session: ClientSession, request: CloseConsumer) -> None:
    """Detach a consumer. Its unacknowledged messages go to others, or wait."""
    consumer = session.consumers.pop(request.consumer_id, None)
    if isinstance(consumer, PendingConsumer):
        consumer.cancelled = True
    elif consumer is not None:
        consumer.remove()
    session.send(commands.success(request.request_id))


def handle_consumer_stats(session: ClientSession, body: pb.CommandConsumerStats) -> None:
    """Statistics of one consumer and its subscription."""
    consumer = session.consumers.get(body.consumer_id)
    if consumer is None or isinstance(consumer, PendingConsumer):
        raise ConsumerNotFound(f"Consumer {body.consumer_id} is not subscribed")
    row = consumer.statistics()
    session.send(
        commands.consumer_stats_response(
            body.request_id,
            {
                "msgRateOut": row.message_rate_out,
                "msgThroughputOut": row.byte_rate_out,
                "msgRateRedeliver": row.redeliver_rate,
                "consumerName": row.consumer_name,
                "availablePermits": max(row.available_permits, 0),
                "unackedMessages": row.unacked_messages,
                "blockedConsumerOnUnackedMsgs": row.blocked_on_unacked,
                "address": row.address,
                "connectedSince": iso_time(row.connected_since_ms),
                "type": consumer.type_name,
                "msgRateExpired": consumer.subscription.expirations.rate,
                "msgBacklog": consumer.subscription.backlog_entries,
                "messageAckRate": row.ack_rate,
            },
        )
    )


def handle_get_last_message_id(
    session: ClientSession, body: pb.CommandGetLastMessageId
) -> Coroutine[Any, Any, None]:
    """The newest message of the topic, and the position up to which everything is acknowledged."""
    consumer = attached(session, body.consumer_id)
    mark_delete = consumer.mark_delete()
    newest = consumer.topic.newest_message()
    return _answer_last_message_id(
        session, body.request_id, consumer.topic.partition, newest, mark_delete
    )


async def _answer_last_message_id(
    session: ClientSession,
    request_id: int,
    partition: int,
    newest: Awaitable[Entry | None],
    mark_delete: Position | None,
) -> None:
    position, batch_index = await last_message(newest)
    session.send(
        commands.get_last_message_id_response(
            request_id, position, partition, batch_index, mark_delete
        )
    )


async def last_message(newest_message: Awaitable[Entry | None]) -> tuple[Position, int]:
    """Position of the newest entry for clients, (-1, -1) if there is none, and the index of its
    last message when it is a batch, else -1.

    Raises: BrokerError: the entry cannot be read.
    """
    newest = await newest_message
    if newest is None:
        return (-1, -1), -1
    batch_index = newest.messages() - 1 if is_batch(newest.metadata) else -1
    return newest.position, batch_index
