"""The table of commands and their handlers.

A handler `handle(session, body)` answers at once and returns None, or returns a coroutine that will
answer. `body` is the command's own message. Tasks of one turn start in any order, so a handler that
changes something is no coroutine function: it has begun the change when it returns. It refuses by
raising `BrokerError`, which the session turns into the answer the client waits for, or ends the
connection by raising `ConnectionRefused`.

Handlers that need the broker are bound to it (`Broker`). SEND is not in the table: it is passed
with its payload to `publish.Publishing`.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any, final

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
from broker.handlers.publish import Publishing
from broker.handlers.schema import handle_get_or_create_schema, handle_get_schema
from broker.handlers.seek import handle_seek
from broker.handlers.session import ClientSession
from broker.handlers.subscribe import handle_subscribe
from broker.handlers.transaction import handle_transaction
from protocol import pulsar_api_pb2 as pb

if TYPE_CHECKING:
    from broker.handlers.authenticating import Authenticating
    from broker.handlers.broker import Broker

_Type = pb.BaseCommand

Handler = Callable[[ClientSession, Any], Coroutine[Any, Any, None] | None]


@final
class BrokerCommands:
    """The handlers of one broker."""

    __slots__ = ("handlers", "send_handler")

    def __init__(self, broker: Broker, authenticating: Authenticating | None = None) -> None:
        """Without `authenticating` everybody is served."""
        self.send_handler = Publishing()
        self.handlers = _table(broker)
        if authenticating is not None:
            self.handlers[_Type.CONNECT] = authenticating.handle_connect
            self.handlers[_Type.AUTH_RESPONSE] = authenticating.handle_auth_response


def _table(broker: Broker) -> dict[int, Handler]:
    return {
        _Type.CONNECT: handle_connect,
        _Type.AUTH_RESPONSE: handle_auth_response,
        _Type.PING: handle_ping,
        _Type.PONG: handle_pong,
        _Type.PARTITIONED_METADATA: partial(handle_partitioned_metadata, broker),
        _Type.LOOKUP: partial(handle_lookup, broker),
        _Type.GET_TOPICS_OF_NAMESPACE: partial(handle_topics_of_namespace, broker),
        _Type.WATCH_TOPIC_LIST: handle_watch_topic_list,
        _Type.WATCH_TOPIC_LIST_CLOSE: handle_watch_topic_list_close,
        _Type.PRODUCER: partial(handle_producer, broker),
        _Type.CLOSE_PRODUCER: handle_close_producer,
        _Type.SUBSCRIBE: partial(handle_subscribe, broker),
        _Type.FLOW: handle_flow,
        _Type.ACK: handle_ack,
        _Type.REDELIVER_UNACKNOWLEDGED_MESSAGES: handle_redeliver,
        _Type.UNSUBSCRIBE: partial(handle_unsubscribe, broker),
        _Type.CLOSE_CONSUMER: handle_close_consumer,
        _Type.CONSUMER_STATS: handle_consumer_stats,
        _Type.GET_LAST_MESSAGE_ID: handle_get_last_message_id,
        _Type.SEEK: handle_seek,
        _Type.GET_SCHEMA: partial(handle_get_schema, broker),
        _Type.GET_OR_CREATE_SCHEMA: partial(handle_get_or_create_schema, broker),
        _Type.TC_CLIENT_CONNECT_REQUEST: handle_transaction,
        _Type.NEW_TXN: handle_transaction,
        _Type.ADD_PARTITION_TO_TXN: handle_transaction,
        _Type.ADD_SUBSCRIPTION_TO_TXN: handle_transaction,
        _Type.END_TXN: handle_transaction,
        _Type.END_TXN_ON_PARTITION: handle_transaction,
        _Type.END_TXN_ON_SUBSCRIPTION: handle_transaction,
    }
