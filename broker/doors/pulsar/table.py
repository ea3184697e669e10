"""The table of commands and their handlers.

A handler `handle(session, body)` answers at once and returns None, or returns a coroutine that will
answer. `body` is the command's own message. Tasks of one turn start in any order, so a handler that
changes something is no coroutine function: it has begun the change when it returns. It refuses by
raising `BrokerError`, which the session turns into the answer the client waits for, or ends the
connection by raising `ConnectionRefused`.

Handlers that need the broker are bound to it (`Broker`). SEND is not in the table: it is passed
with its payload to `publish.Publishing`. An ACK that the decoder has read by itself (`PlainAck`)
has a handler besides. Beside each handler stands the right that its command requires if
authorization is on.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, final

from broker.doors.pulsar.authorization import (
    LOOKUP,
    NEW_SCHEMA,
    NOTHING,
    PARTITIONS,
    PRODUCE,
    SCHEMA,
    SUBSCRIBE,
    TOPICS,
    WATCH,
    Command,
    asking,
    still_allowed,
)
from broker.doors.pulsar.connect import (
    handle_auth_response,
    handle_connect,
    handle_ping,
    handle_pong,
)
from broker.doors.pulsar.consumer import (
    handle_ack,
    handle_close_consumer,
    handle_consumer_stats,
    handle_flow,
    handle_get_last_message_id,
    handle_plain_ack,
    handle_redeliver,
    handle_unsubscribe,
)
from broker.doors.pulsar.lookup import (
    handle_lookup,
    handle_partitioned_metadata,
    handle_topics_of_namespace,
    handle_watch_topic_list,
    handle_watch_topic_list_close,
)
from broker.doors.pulsar.producer import handle_close_producer, handle_producer
from broker.doors.pulsar.publish import Publishing
from broker.doors.pulsar.schema import handle_get_or_create_schema, handle_get_schema
from broker.doors.pulsar.seek import handle_seek
from broker.doors.pulsar.subscribe import handle_subscribe
from broker.doors.pulsar.transaction import handle_transaction
from broker.net.frame_handlers import ON_FRAME
from protocol import pulsar_api_pb2 as pb
from protocol.send_fields import Send
from protocol.send_runs import SendRun

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from broker.doors.pulsar.authenticating import Authenticating
    from broker.doors.pulsar.authorization import Decisions, Handler
    from broker.doors.pulsar.broker import Broker

_Type = pb.BaseCommand


@final
class BrokerCommands:
    """The handlers of one broker."""

    __slots__ = ("handle_plain_ack", "handlers", "on_frame", "send_handler")

    def __init__(
        self,
        broker: Broker,
        authenticating: Authenticating | None = None,
        decisions: Decisions | None = None,
    ) -> None:
        """Without `authenticating` every client is served, and without `decisions` each may do
        everything."""
        publishing = Publishing()
        self.send_handler = publishing
        self.on_frame: Mapping[type, Callable[[Any, Any], bool | None]] = {
            **ON_FRAME,
            Send: publishing.handle,
            SendRun: publishing.handle_run,
        }
        self.handle_plain_ack = handle_plain_ack
        self.handlers: dict[int, Handler] = {
            kind: command.handler if decisions is None else asking(decisions, command)
            for kind, command in commands_of(broker, decisions).items()
        }
        if authenticating is not None:
            self.handlers[_Type.CONNECT] = authenticating.handle_connect
            self.handlers[_Type.AUTH_RESPONSE] = authenticating.handle_auth_response


def commands_of(broker: Broker, decisions: Decisions | None = None) -> dict[int, Command]:
    """All commands but SEND."""
    may_produce, may_consume = (
        still_allowed(decisions, PRODUCE),
        still_allowed(decisions, SUBSCRIBE),
    )
    return {
        _Type.CONNECT: Command(handle_connect, NOTHING),
        _Type.AUTH_RESPONSE: Command(handle_auth_response, NOTHING),
        _Type.PING: Command(handle_ping, NOTHING),
        _Type.PONG: Command(handle_pong, NOTHING),
        _Type.PARTITIONED_METADATA: Command(
            partial(handle_partitioned_metadata, broker), PARTITIONS
        ),
        _Type.LOOKUP: Command(partial(handle_lookup, broker), LOOKUP),
        _Type.GET_TOPICS_OF_NAMESPACE: Command(partial(handle_topics_of_namespace, broker), TOPICS),
        _Type.WATCH_TOPIC_LIST: Command(handle_watch_topic_list, WATCH),
        _Type.WATCH_TOPIC_LIST_CLOSE: Command(handle_watch_topic_list_close, NOTHING),
        _Type.PRODUCER: Command(partial(handle_producer, broker, may_produce), PRODUCE),
        _Type.CLOSE_PRODUCER: Command(handle_close_producer, NOTHING),
        _Type.SUBSCRIBE: Command(partial(handle_subscribe, broker, may_consume), SUBSCRIBE),
        _Type.FLOW: Command(handle_flow, NOTHING),
        _Type.ACK: Command(handle_ack, NOTHING),
        _Type.REDELIVER_UNACKNOWLEDGED_MESSAGES: Command(handle_redeliver, NOTHING),
        _Type.UNSUBSCRIBE: Command(partial(handle_unsubscribe, broker), NOTHING),
        _Type.CLOSE_CONSUMER: Command(handle_close_consumer, NOTHING),
        _Type.CONSUMER_STATS: Command(handle_consumer_stats, NOTHING),
        _Type.GET_LAST_MESSAGE_ID: Command(handle_get_last_message_id, NOTHING),
        _Type.SEEK: Command(handle_seek, NOTHING),
        _Type.GET_SCHEMA: Command(partial(handle_get_schema, broker), SCHEMA),
        _Type.GET_OR_CREATE_SCHEMA: Command(
            partial(handle_get_or_create_schema, broker), NEW_SCHEMA
        ),
        _Type.TC_CLIENT_CONNECT_REQUEST: Command(handle_transaction, NOTHING),
        _Type.NEW_TXN: Command(handle_transaction, NOTHING),
        _Type.ADD_PARTITION_TO_TXN: Command(handle_transaction, NOTHING),
        _Type.ADD_SUBSCRIPTION_TO_TXN: Command(handle_transaction, NOTHING),
        _Type.END_TXN: Command(handle_transaction, NOTHING),
        _Type.END_TXN_ON_PARTITION: Command(handle_transaction, NOTHING),
        _Type.END_TXN_ON_SUBSCRIPTION: Command(handle_transaction, NOTHING),
    }
