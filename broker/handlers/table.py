"""Which handler serves which command: the one table.

A handler `handle(session, body)` answers at once and returns None, or returns a coroutine that
will; `body` is the command's own message. Tasks of one turn start in any order, so a handler that
changes something is no coroutine function: it has begun the change when it returns. It refuses by
raising `BrokerError`, which the session turns into the answer the client waits for, or ends the
connection by raising `ConnectionRefused`.

SEND is not in the table: it is handled by `publish.handle_send` directly, with its payload.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from broker.handlers.connect import handle_auth_response, handle_connect, handle_ping, handle_pong
from broker.handlers.consumer import (
    handle_ack,
    handle_close_consumer,
    handle_consumer_stats,
    handle_flow,
    handle_get_last_message_id,
    handle_redeliver,
    handle_unsubscribe,
)
from broker.handlers.lookup import (
    handle_lookup,
    handle_partitioned_metadata,
    handle_topics_of_namespace,
    handle_watch_topic_list,
    handle_watch_topic_list_close,
)
from broker.handlers.producer import handle_close_producer, handle_producer
from broker.handlers.schema import handle_get_or_create_schema, handle_get_schema
from broker.handlers.seek import handle_seek
from broker.handlers.subscribe import handle_subscribe
from broker.handlers.transaction import handle_transaction
from protocol import pulsar_api_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from broker.net.session import Session

_Type = pb.BaseCommand

HANDLERS: Final[dict[int, Callable[[Session, Any], Coroutine[Any, Any, None] | None]]] = {
    _Type.CONNECT: handle_connect,
    _Type.AUTH_RESPONSE: handle_auth_response,
    _Type.PING: handle_ping,
    _Type.PONG: handle_pong,
    _Type.PARTITIONED_METADATA: handle_partitioned_metadata,
    _Type.LOOKUP: handle_lookup,
    _Type.GET_TOPICS_OF_NAMESPACE: handle_topics_of_namespace,
    _Type.WATCH_TOPIC_LIST: handle_watch_topic_list,
    _Type.WATCH_TOPIC_LIST_CLOSE: handle_watch_topic_list_close,
    _Type.PRODUCER: handle_producer,
    _Type.CLOSE_PRODUCER: handle_close_producer,
    _Type.SUBSCRIBE: handle_subscribe,
    _Type.FLOW: handle_flow,
    _Type.ACK: handle_ack,
    _Type.REDELIVER_UNACKNOWLEDGED_MESSAGES: handle_redeliver,
    _Type.UNSUBSCRIBE: handle_unsubscribe,
    _Type.CLOSE_CONSUMER: handle_close_consumer,
    _Type.CONSUMER_STATS: handle_consumer_stats,
    _Type.GET_LAST_MESSAGE_ID: handle_get_last_message_id,
    _Type.SEEK: handle_seek,
    _Type.GET_SCHEMA: handle_get_schema,
    _Type.GET_OR_CREATE_SCHEMA: handle_get_or_create_schema,
    _Type.TC_CLIENT_CONNECT_REQUEST: handle_transaction,
    _Type.NEW_TXN: handle_transaction,
    _Type.ADD_PARTITION_TO_TXN: handle_transaction,
    _Type.ADD_SUBSCRIPTION_TO_TXN: handle_transaction,
    _Type.END_TXN: handle_transaction,
    _Type.END_TXN_ON_PARTITION: handle_transaction,
    _Type.END_TXN_ON_SUBSCRIPTION: handle_transaction,
}
