"""The client side of the protocol, without I/O: for tests, simulation and load generators.

Requests are functions that return finished frames; ids are the caller's. `Client` adds what a
connection needs: request ids and a decoder. Keyword arguments named `**fields` are the optional
fields of the command by their protocol names, so that every option a command has can be tested.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Any, Final, NamedTuple, final

from protocol import pulsar_api_pb2 as pb
from protocol.ack_set import from_words
from protocol.command_frames import command_frame, message_id, set_fields
from protocol.frames import FrameDecoder, encode_frame
from protocol.message_id import MessageId, from_wire, to_wire
from protocol.metadata import batch_messages, encode_message, is_batch, peek_and_payload

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from protocol.frames import ParsedFrame
    from protocol.position import Position

_Type = pb.BaseCommand
_U32: Final = Struct(">I")

PROTOCOL_VERSION: Final = 21
PUBLISH_TIME_MS_DEFAULT: Final = 1_700_000_000_000

Fields = Any
"""Value of an optional field of a command."""


def key_values(properties: Mapping[str, str]) -> list[pb.KeyValue]:
    """Properties as commands and metadata carry them."""
    return [pb.KeyValue(key=key, value=value) for key, value in properties.items()]


def _wire(identifier: MessageId | Position | pb.MessageIdData) -> pb.MessageIdData:
    if isinstance(identifier, pb.MessageIdData):
        return identifier
    if isinstance(identifier, MessageId):
        return to_wire(identifier)
    return message_id(identifier)


# ---- The connection ------------------------------------------------------------------------------


def connect(
    client_version: str = "vela-client",
    protocol_version: int = PROTOCOL_VERSION,
    **fields: Fields,
) -> bytes:
    """CONNECT; credentials are auth_method_name and auth_data."""
    return command_frame(
        _Type.CONNECT,
        client_version=client_version,
        protocol_version=protocol_version,
        **fields,
    )


def auth_response(method: str, data: bytes) -> bytes:
    """Answer to AUTH_CHALLENGE."""
    return command_frame(
        _Type.AUTH_RESPONSE, response=pb.AuthData(auth_method_name=method, auth_data=data)
    )


def ping() -> bytes:
    """PING."""
    return command_frame(_Type.PING)


def pong() -> bytes:
    """PONG."""
    return command_frame(_Type.PONG)


# ---- Finding topics ------------------------------------------------------------------------------


def partitioned_metadata(topic: str, request_id: int, **fields: Fields) -> bytes:
    """PARTITIONED_METADATA."""
    return command_frame(_Type.PARTITIONED_METADATA, topic=topic, request_id=request_id, **fields)


def lookup(topic: str, request_id: int, **fields: Fields) -> bytes:
    """LOOKUP."""
    return command_frame(_Type.LOOKUP, topic=topic, request_id=request_id, **fields)


def get_topics_of_namespace(namespace: str, request_id: int, **fields: Fields) -> bytes:
    """GET_TOPICS_OF_NAMESPACE."""
    return command_frame(
        _Type.GET_TOPICS_OF_NAMESPACE, namespace=namespace, request_id=request_id, **fields
    )


# ---- Producers -----------------------------------------------------------------------------------


def producer(topic: str, producer_id: int, request_id: int, **fields: Fields) -> bytes:
    """PRODUCER."""
    return command_frame(
        _Type.PRODUCER, topic=topic, producer_id=producer_id, request_id=request_id, **fields
    )


def close_producer(producer_id: int, request_id: int) -> bytes:
    """CLOSE_PRODUCER."""
    return command_frame(_Type.CLOSE_PRODUCER, producer_id=producer_id, request_id=request_id)


def message(
    payload: bytes,
    *,
    producer_name: str = "producer",
    sequence_id: int = 0,
    publish_time: int = PUBLISH_TIME_MS_DEFAULT,
    properties: Mapping[str, str] | None = None,
    checksum: bool = True,
    **fields: Fields,
) -> bytes:
    """Headers and payload of one unbatched message; fields are those of MessageMetadata."""
    metadata = pb.MessageMetadata(
        producer_name=producer_name,
        sequence_id=sequence_id,
        publish_time=publish_time,
        properties=key_values(properties or {}),
        **fields,
    )
    return encode_message(metadata, payload, checksum=checksum)


class BatchItem(NamedTuple):
    """One message of a batch; fields are those of SingleMessageMetadata."""

    payload: bytes
    fields: Mapping[str, Any] = {}


def batch(
    items: Iterable[bytes | BatchItem],
    *,
    producer_name: str = "producer",
    sequence_id: int = 0,
    publish_time: int = PUBLISH_TIME_MS_DEFAULT,
    checksum: bool = True,
    **fields: Fields,
) -> bytes:
    """Headers and payload of a batch. Its messages have the sequence ids from `sequence_id` on."""
    parts: list[bytes] = []
    count = 0
    for item in items:
        payload, single_fields = (item, {}) if isinstance(item, bytes) else item
        single = pb.SingleMessageMetadata(
            payload_size=len(payload), sequence_id=sequence_id + count, **single_fields
        ).SerializeToString()
        parts += (_U32.pack(len(single)), single, payload)
        count += 1
    metadata = pb.MessageMetadata(
        producer_name=producer_name,
        sequence_id=sequence_id,
        highest_sequence_id=sequence_id + max(count - 1, 0),
        publish_time=publish_time,
        num_messages_in_batch=count,
        **fields,
    )
    return encode_message(metadata, b"".join(parts), checksum=checksum)


def send(
    producer_id: int,
    sequence_id: int,
    headers_and_payload: bytes,
    num_messages: int = 1,
    **fields: Fields,
) -> bytes:
    """SEND of what `message` or `batch` made."""
    command = pb.BaseCommand(type=_Type.SEND)
    content = command.send
    content.producer_id = producer_id
    content.sequence_id = sequence_id
    content.num_messages = num_messages
    set_fields(content, fields)
    return encode_frame(command, headers_and_payload)


# ---- Consumers -----------------------------------------------------------------------------------


def subscribe(
    topic: str,
    subscription: str,
    consumer_id: int,
    request_id: int,
    sub_type: pb.CommandSubscribe.SubType = pb.CommandSubscribe.Exclusive,
    *,
    start_message_id: MessageId | Position | pb.MessageIdData | None = None,
    metadata: Mapping[str, str] | None = None,
    subscription_properties: Mapping[str, str] | None = None,
    sticky_ranges: Iterable[tuple[int, int]] | None = None,
    **fields: Fields,
) -> bytes:
    """SUBSCRIBE. `sticky_ranges` makes a Key_Shared consumer choose its hash ranges."""
    command = pb.BaseCommand(type=_Type.SUBSCRIBE)
    content = command.subscribe
    content.topic = topic
    content.subscription = subscription
    content.subType = sub_type
    content.consumer_id = consumer_id
    content.request_id = request_id
    if start_message_id is not None:
        content.start_message_id.CopyFrom(_wire(start_message_id))
    content.metadata.extend(key_values(metadata or {}))
    content.subscription_properties.extend(key_values(subscription_properties or {}))
    if sticky_ranges is not None:
        content.keySharedMeta.keySharedMode = pb.STICKY
        for start, end in sticky_ranges:
            content.keySharedMeta.hashRanges.add(start=start, end=end)
    set_fields(content, fields)
    return encode_frame(command)


def flow(consumer_id: int, permits: int) -> bytes:
    """FLOW."""
    return command_frame(_Type.FLOW, consumer_id=consumer_id, messagePermits=permits)


def ack(
    consumer_id: int,
    message_ids: Iterable[MessageId | Position | pb.MessageIdData],
    *,
    cumulative: bool = False,
    request_id: int | None = None,
    **fields: Fields,
) -> bytes:
    """ACK of entries, or with the ack_set of a MessageId of some messages of a batch."""
    return command_frame(
        _Type.ACK,
        consumer_id=consumer_id,
        ack_type=pb.CommandAck.Cumulative if cumulative else pb.CommandAck.Individual,
        message_id=[_wire(identifier) for identifier in message_ids],
        request_id=request_id,
        **fields,
    )


def redeliver_unacknowledged(
    consumer_id: int,
    message_ids: Iterable[MessageId | Position | pb.MessageIdData] = (),
    consumer_epoch: int | None = None,
) -> bytes:
    """REDELIVER_UNACKNOWLEDGED_MESSAGES; without ids, of everything."""
    return command_frame(
        _Type.REDELIVER_UNACKNOWLEDGED_MESSAGES,
        consumer_id=consumer_id,
        message_ids=[_wire(identifier) for identifier in message_ids],
        consumer_epoch=consumer_epoch,
    )


def unsubscribe(consumer_id: int, request_id: int, *, force: bool | None = None) -> bytes:
    """UNSUBSCRIBE."""
    return command_frame(
        _Type.UNSUBSCRIBE, consumer_id=consumer_id, request_id=request_id, force=force
    )


def seek(
    consumer_id: int,
    request_id: int,
    target: MessageId | Position | pb.MessageIdData | None = None,
    *,
    publish_time: int | None = None,
) -> bytes:
    """SEEK to a message id, or to a publish time in milliseconds since 1970."""
    return command_frame(
        _Type.SEEK,
        consumer_id=consumer_id,
        request_id=request_id,
        message_id=None if target is None else _wire(target),
        message_publish_time=publish_time,
    )


def get_last_message_id(consumer_id: int, request_id: int) -> bytes:
    """GET_LAST_MESSAGE_ID."""
    return command_frame(_Type.GET_LAST_MESSAGE_ID, consumer_id=consumer_id, request_id=request_id)


def close_consumer(consumer_id: int, request_id: int) -> bytes:
    """CLOSE_CONSUMER."""
    return command_frame(_Type.CLOSE_CONSUMER, consumer_id=consumer_id, request_id=request_id)


def consumer_stats(consumer_id: int, request_id: int) -> bytes:
    """CONSUMER_STATS."""
    return command_frame(_Type.CONSUMER_STATS, consumer_id=consumer_id, request_id=request_id)


# ---- Schemas -------------------------------------------------------------------------------------


def get_schema(topic: str, request_id: int, schema_version: bytes | None = None) -> bytes:
    """GET_SCHEMA."""
    return command_frame(
        _Type.GET_SCHEMA, topic=topic, request_id=request_id, schema_version=schema_version
    )


def get_or_create_schema(topic: str, request_id: int, schema: pb.Schema) -> bytes:
    """GET_OR_CREATE_SCHEMA."""
    return command_frame(
        _Type.GET_OR_CREATE_SCHEMA, topic=topic, request_id=request_id, schema=schema
    )


# ---- Receiving -----------------------------------------------------------------------------------


class ReceivedMessage(NamedTuple):
    """One message as an application sees it."""

    message_id: MessageId
    payload: bytes
    metadata: pb.MessageMetadata
    single: pb.SingleMessageMetadata | None
    redelivery_count: int


def received_messages(command: pb.BaseCommand, payload: bytes) -> list[ReceivedMessage]:
    """The messages of one MESSAGE command: one, or those of a batch that are still to be acked."""
    delivery = command.message
    metadata, body = peek_and_payload(payload)
    entry = from_wire(delivery.message_id)
    count = delivery.redelivery_count
    if not is_batch(metadata):
        return [ReceivedMessage(entry, bytes(body), metadata, None, count)]
    unacked = from_words(delivery.ack_set) if delivery.ack_set else -1
    return [
        ReceivedMessage(entry._replace(batch_index=index), bytes(content), metadata, single, count)
        for index, (single, content) in enumerate(
            batch_messages(body, metadata.num_messages_in_batch)
        )
        if unacked >> index & 1
    ]


@final
class Client:
    """The state of one client connection."""

    def __init__(self) -> None:
        self._decoder = FrameDecoder()
        self._request_id = 0

    def next_request_id(self) -> int:
        """A request id that has not been used on this connection."""
        self._request_id += 1
        return self._request_id

    def receive(self, data: bytes) -> list[ParsedFrame]:
        """The commands that `data` completes, with headers and payload after MESSAGE.

        Raises: RemoteProtocolError: the broker violated the protocol.
        """
        frames = self._decoder.feed(data)
        if self._decoder.failure is not None:
            raise self._decoder.failure
        return frames
