"""The commands a broker sends, one function each, as finished frames.

Optional fields are set where Apache Pulsar 4.0.8 sets them: some clients fail when one is missing
(`schema_version` of PRODUCER_SUCCESS), others change their behaviour when one is there. The two
commands of the hot path are byte templates (`protocol.templates`) and re-exported here.

`refusal` answers any request in the form its client waits for, which is not ERROR for all of them.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

from protocol import pulsar_api_pb2 as pb
from protocol.command_frames import AnswerTemplate, command_frame, command_frame_of, message_id
from protocol.refusals import NO_REQUEST, refusal, request_id_of
from protocol.templates import (
    UINT64_MAX,
    message_head,
    send_receipt,
    varint,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from protocol.position import Position

__all__ = [
    "NO_REQUEST",
    "UINT64_MAX",
    "message_head",
    "message_id",
    "refusal",
    "request_id_of",
    "send_receipt",
    "varint",
]

_Type = pb.BaseCommand

TEMPLATES_MAX: Final = 64
"""How many different answers of one type, apart from their request ids, are kept encoded."""


# ---- The connection ------------------------------------------------------------------------------


def connected(
    server_version: str,
    protocol_version: int,
    max_message_size: int,
    feature_flags: pb.FeatureFlags | None = None,
) -> bytes:
    """The handshake succeeded. Versions and flags come from `protocol.connection`."""
    return command_frame(
        _Type.CONNECTED,
        server_version=server_version,
        protocol_version=protocol_version,
        max_message_size=max_message_size,
        feature_flags=feature_flags,
    )


_PING: Final = command_frame(_Type.PING)
_PONG: Final = command_frame(_Type.PONG)


def ping() -> bytes:
    """Are you still there?"""
    return _PING


def pong() -> bytes:
    """Answer to PING."""
    return _PONG


_SUCCESS: Final = AnswerTemplate(_Type.SUCCESS)


def success(request_id: int, schema: pb.Schema | None = None) -> bytes:
    """The request is done; with the schema in the answer to a SUBSCRIBE that attached one."""
    if schema is None:
        return _SUCCESS.frame(request_id)
    return command_frame(_Type.SUCCESS, request_id=request_id, schema=schema)


RENEW: Final = b"PulsarAuthRefresh"
"""The data of a challenge that asks for a fresh credential. Clients compare it."""


def auth_challenge(protocol_version: int, method: str) -> bytes:
    """The client must renew its credential."""
    return command_frame(
        _Type.AUTH_CHALLENGE,
        challenge=pb.AuthData(auth_method_name=method, auth_data=RENEW),
        protocol_version=protocol_version,
    )


def error(request_id: int, server_error: pb.ServerError, message: str) -> bytes:
    """The request is refused. See `refusal` for requests with an answer of their own."""
    return command_frame(_Type.ERROR, request_id=request_id, error=server_error, message=message)


# ---- Finding topics ------------------------------------------------------------------------------


@lru_cache(maxsize=TEMPLATES_MAX)
def _partitioned_metadata(partitions: int) -> AnswerTemplate:
    return AnswerTemplate(
        _Type.PARTITIONED_METADATA_RESPONSE,
        partitions=partitions,
        response=pb.CommandPartitionedTopicMetadataResponse.Success,
    )


def partitioned_metadata(request_id: int, partitions: int) -> bytes:
    """0 partitions: not a partitioned topic."""
    return _partitioned_metadata(partitions).frame(request_id)


def partitioned_metadata_error(
    request_id: int, server_error: pb.ServerError, message: str
) -> bytes:
    """PARTITIONED_METADATA is refused."""
    return command_frame(
        _Type.PARTITIONED_METADATA_RESPONSE,
        request_id=request_id,
        response=pb.CommandPartitionedTopicMetadataResponse.Failed,
        error=server_error,
        message=message,
    )


@lru_cache(maxsize=TEMPLATES_MAX)
def _lookup(
    response: pb.CommandLookupTopicResponse.LookupType,
    broker_url: str | None,
    broker_url_tls: str | None,
    authoritative: bool,
    proxy_through_service_url: bool,
) -> AnswerTemplate:
    return AnswerTemplate(
        _Type.LOOKUP_RESPONSE,
        response=response,
        brokerServiceUrl=broker_url,
        brokerServiceUrlTls=broker_url_tls,
        authoritative=authoritative,
        proxy_through_service_url=proxy_through_service_url,
    )


def lookup_connect(
    request_id: int,
    broker_url: str | None,
    broker_url_tls: str | None = None,
    *,
    authoritative: bool = True,
    proxy_through_service_url: bool = False,
) -> bytes:
    """The answer that this broker serves the topic."""
    template = _lookup(
        pb.CommandLookupTopicResponse.Connect,
        broker_url,
        broker_url_tls,
        authoritative,
        proxy_through_service_url,
    )
    return template.frame(request_id)


def lookup_redirect(
    request_id: int,
    broker_url: str | None,
    broker_url_tls: str | None = None,
    *,
    authoritative: bool = False,
    proxy_through_service_url: bool = False,
) -> bytes:
    """Ask that broker."""
    template = _lookup(
        pb.CommandLookupTopicResponse.Redirect,
        broker_url,
        broker_url_tls,
        authoritative,
        proxy_through_service_url,
    )
    return template.frame(request_id)


def lookup_error(request_id: int, server_error: pb.ServerError, message: str) -> bytes:
    """LOOKUP is refused."""
    return command_frame(
        _Type.LOOKUP_RESPONSE,
        request_id=request_id,
        response=pb.CommandLookupTopicResponse.Failed,
        error=server_error,
        message=message,
    )


def names_of_topics(names: Iterable[str]) -> bytes:
    """Some of the names for `topics_of_namespace`."""
    return pb.CommandGetTopicsOfNamespaceResponse(topics=names).SerializePartialToString()


def topics_of_namespace(request_id: int, names: Sequence[bytes]) -> list[bytes]:
    """Topic names in any number of `names_of_topics`, not filtered. The frame in several buffers:
    100,000 names have megabytes, which answers to several requests share."""
    content = pb.CommandGetTopicsOfNamespaceResponse
    first = content(request_id=request_id).SerializePartialToString()
    last = content(filtered=False, changed=True).SerializePartialToString()
    return command_frame_of(_Type.GET_TOPICS_OF_NAMESPACE_RESPONSE, [first, *names, last])


# ---- Producers -----------------------------------------------------------------------------------


def producer_success(
    request_id: int,
    producer_name: str,
    last_sequence_id: int = -1,
    schema_version: bytes = b"",
    topic_epoch: int | None = None,
    *,
    producer_ready: bool = True,
) -> bytes:
    """The producer is open. `schema_version` is always sent: the Java client fails without."""
    return command_frame(
        _Type.PRODUCER_SUCCESS,
        request_id=request_id,
        producer_name=producer_name,
        last_sequence_id=last_sequence_id,
        schema_version=schema_version,
        topic_epoch=topic_epoch,
        producer_ready=producer_ready,
    )


def send_error(
    producer_id: int, sequence_id: int, server_error: pb.ServerError, message: str
) -> bytes:
    """The message was not stored."""
    return command_frame(
        _Type.SEND_ERROR,
        producer_id=producer_id,
        sequence_id=sequence_id,
        error=server_error,
        message=message,
    )


def close_producer(
    producer_id: int,
    request_id: int = NO_REQUEST,
    assigned_broker_url: str | None = None,
    assigned_broker_url_tls: str | None = None,
) -> bytes:
    """The client must look the topic up again."""
    return command_frame(
        _Type.CLOSE_PRODUCER,
        producer_id=producer_id,
        request_id=request_id,
        assignedBrokerServiceUrl=assigned_broker_url,
        assignedBrokerServiceUrlTls=assigned_broker_url_tls,
    )


# ---- Consumers -----------------------------------------------------------------------------------


def ack_response(
    consumer_id: int,
    request_id: int,
    server_error: pb.ServerError | None = None,
    message: str | None = None,
) -> bytes:
    """The acks of a request with id have been taken, or why not."""
    return command_frame(
        _Type.ACK_RESPONSE,
        consumer_id=consumer_id,
        request_id=request_id,
        error=server_error,
        message=message,
    )


def close_consumer(
    consumer_id: int,
    request_id: int = NO_REQUEST,
    assigned_broker_url: str | None = None,
    assigned_broker_url_tls: str | None = None,
) -> bytes:
    """The client must look the topic up again and re-subscribe."""
    return command_frame(
        _Type.CLOSE_CONSUMER,
        consumer_id=consumer_id,
        request_id=request_id,
        assignedBrokerServiceUrl=assigned_broker_url,
        assignedBrokerServiceUrlTls=assigned_broker_url_tls,
    )


def active_consumer_change(consumer_id: int, *, is_active: bool) -> bytes:
    """Whether this consumer of a Failover subscription is the one that receives."""
    return command_frame(_Type.ACTIVE_CONSUMER_CHANGE, consumer_id=consumer_id, is_active=is_active)


def reached_end_of_topic(consumer_id: int) -> bytes:
    """The topic is terminated and the consumer has received everything."""
    return command_frame(_Type.REACHED_END_OF_TOPIC, consumer_id=consumer_id)


def get_last_message_id_response(
    request_id: int,
    last: Position,
    partition: int = -1,
    batch_index: int = -1,
    mark_delete: Position | None = None,
) -> bytes:
    """The newest message, (-1, -1) for none, and the position up to which all is acked."""
    last_message_id = message_id(last, partition)
    last_message_id.batch_index = batch_index
    return command_frame(
        _Type.GET_LAST_MESSAGE_ID_RESPONSE,
        last_message_id=last_message_id,
        request_id=request_id,
        consumer_mark_delete_position=None if mark_delete is None else message_id(mark_delete),
    )


def consumer_stats_response(request_id: int, statistics: Mapping[str, object]) -> bytes:
    """Fields of CommandConsumerStatsResponse by name, for example msgBacklog and type."""
    return command_frame(_Type.CONSUMER_STATS_RESPONSE, request_id=request_id, **statistics)


# ---- Schemas -------------------------------------------------------------------------------------


def get_schema_response(request_id: int, schema: pb.Schema, schema_version: bytes) -> bytes:
    """The schema and its version."""
    return command_frame(
        _Type.GET_SCHEMA_RESPONSE,
        request_id=request_id,
        schema=schema,
        schema_version=schema_version,
    )


def get_or_create_schema_response(request_id: int, schema_version: bytes) -> bytes:
    """The version the schema has in this topic."""
    return command_frame(
        _Type.GET_OR_CREATE_SCHEMA_RESPONSE, request_id=request_id, schema_version=schema_version
    )


# ---- Transactions --------------------------------------------------------------------------------


def tc_client_connect_response(request_id: int) -> bytes:
    """The transaction coordinator can be used on this connection."""
    return command_frame(_Type.TC_CLIENT_CONNECT_RESPONSE, request_id=request_id)


def txn_response(
    kind: pb.BaseCommand.Type, request_id: int, least_bits: int, most_bits: int
) -> bytes:
    """Success of a transaction request; `kind` is the type of its answer."""
    return command_frame(
        kind, request_id=request_id, txnid_least_bits=least_bits, txnid_most_bits=most_bits
    )
