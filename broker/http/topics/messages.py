"""Single stored messages over HTTP: peek at a subscription's backlog, examine a topic, read an id.

The payload is the body. The metadata that Pulsar's clients use is in headers, under Pulsar's names.
A batch is returned whole, with its number of messages: clients split it.
"""

from __future__ import annotations

import base64
import json
import zlib
from typing import TYPE_CHECKING, Final

import trio

from broker.ground.refusal import Refusal, not_found, precondition_failed
from broker.ground.slices import STEPS_PER_SLICE
from broker.http.router import Route
from broker.http.topics.topics import TOPIC, existing_persistent
from broker.topics.subscription.statistics import iso_time
from protocol import pulsar_api_pb2 as pb
from protocol.errors import RemoteProtocolError
from protocol.metadata import metadata_range, peek_and_payload
from web.responses import Response

if TYPE_CHECKING:
    from broker.ground.entry import Entry
    from broker.http.context import AdminRequest
    from broker.topics.topic.persistent import PersistentTopic
    from protocol.position import Position

SKIPPED_MAX: Final = 100_000
"""Individually acknowledged entries that a peek skips before it gives up."""
SHOWN_BYTES_MAX: Final = 16 * 1024 * 1024
"""Larger compressed messages are refused: bytes can expand a thousandfold."""
SHOWN_METADATA_BYTES_MAX: Final = 64 * 1024
"""Clients do not read longer headers. 850,000 properties took 0.6 s of the event loop."""
_DECOMPRESSING: Final = trio.CapacityLimiter(2)
_TIMES: Final = {
    "publish_time": "publish-time",
    "event_time": "event-time",
    "deliver_at_time": "deliver-at-time",
}
_TEXTS: Final = {
    "null_value": "null-value",
    "producer_name": "producer-name",
    "sequence_id": "sequence-id",
    "replicated_from": "replicated-from",
    "partition_key": "partition-key",
    "uncompressed_size": "uncompressed-size",
    "encryption_algo": "encryption-algo",
    "partition_key_b64_encoded": "partition-key-b64-encoded",
    "marker_type": "marker-type",
    "txnid_least_bits": "txnid-least-bits",
    "txnid_most_bits": "txnid-most-bits",
    "highest_sequence_id": "highest-sequence-id",
    "uuid": "uuid",
    "num_chunks_from_msg": "num-chunks-from-msg",
    "total_chunk_msg_size": "total-chunk-msg-size",
    "chunk_id": "chunk-id",
    "null_partition_key": "null-partition-key",
}
_BYTES: Final = {
    "encryption_param": "Base64-encryption-param",
    "schema_version": "Base64-schema-version",
    "ordering_key": "Base64-ordering-key",
}


async def peek(request: AdminRequest) -> Response:
    """The nth message that a subscription has not acknowledged, counted from 1. One that does not
    exist has acknowledged none."""
    position = _whole(request, request.names["messagePosition"])
    topic = await _persistent(request, "Peek messages on a {} topic is not allowed")
    if position < 1:
        raise precondition_failed("The position of a message is counted from 1")
    cursor = topic.ledger.cursors.get(request.names["subscription"])
    left, after = position, (0, -1) if cursor is None else cursor.mark_delete
    for number in range(1, SKIPPED_MAX + 1):
        entries = await topic.ledger.read((after[0], after[1] + 1), 1, 1)
        if not entries:
            raise not_found("Message not found")
        after = entries[0].position
        left -= cursor is None or not cursor.is_acked(after)
        if not left:
            return await _answer(entries[0])
        if number % STEPS_PER_SLICE == 0:  # cached entries are read without a pause
            await trio.lowlevel.checkpoint()
    raise Refusal(501, f"The message lies more than {SKIPPED_MAX} entries ahead")


async def examine(request: AdminRequest) -> Response:
    """The nth message of a topic, counted from 1, from its beginning or from its end."""
    count = max(1, _whole(request, request.query.get("messagePosition") or "1"))
    topic = await _persistent(request, "Examine messages on a {} topic is not allowed")
    total = topic.ledger.entries
    if total <= 0:
        raise precondition_failed("Could not examine messages due to the total message is zero")
    if request.query.get("initialPosition", "latest") != "earliest":
        count = max(1, total - count + 1)
    return await _read(topic, topic.ledger.nth_position(count))


async def by_id(request: AdminRequest) -> Response:
    """The entry of an id."""
    names = request.names
    ledger_id, entry_id = _whole(request, names["ledgerId"]), _whole(request, names["entryId"])
    topic = await _persistent(request, "GetMessageById is not allowed on {}-topic")
    if not topic.ledger.holds((ledger_id, entry_id)):
        raise not_found("Message id not found")
    return await _read(topic, (ledger_id, entry_id))


async def _persistent(request: AdminRequest, refusal: str) -> PersistentTopic:
    """The stored topic of the path. `refusal` names the kind of topic in its braces."""
    if await request.context.namespaces.partitions_of(request.topic):
        told = refusal.format("partitioned")
        if refusal.startswith("Examine"):
            told += ", please try examine message on specific topic partition"
        raise Refusal(405, told)
    return await existing_persistent(request, refusal.format("non-persistent"))


async def _read(topic: PersistentTopic, position: Position) -> Response:
    for entry in await topic.ledger.read(position, 1, 1):
        if entry.position == position:
            return await _answer(entry)
    raise not_found("Message not found")


def _whole(request: AdminRequest, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise not_found(f"There is nothing at {request.path}") from None


async def _answer(entry: Entry) -> Response:
    """Raises: Refusal: it cannot be read, is too large, or is compressed as Python cannot read."""
    try:
        start, end = metadata_range(entry.data)
        if end - start > SHOWN_METADATA_BYTES_MAX:
            raise Refusal(
                501,
                f"The metadata of the message has {end - start} bytes, and Vela shows"
                f" {SHOWN_METADATA_BYTES_MAX} over HTTP at most",
            )
        metadata, payload = peek_and_payload(entry.data)
    except RemoteProtocolError:
        raise Refusal(500, f"The entry {entry.position} has no metadata that can be read") from None
    headers = _headers(entry, metadata)
    body = bytes(payload)
    if metadata.num_messages_in_batch > 1 or metadata.HasField("num_messages_in_batch"):
        headers["X-Pulsar-num-batch-message"] = str(metadata.num_messages_in_batch)
        headers["X-Pulsar-batch-size"] = str(len(body))
    if not metadata.encryption_keys:
        body = await _decompressed(metadata, body)
    return Response(body, headers=headers, media_type="application/octet-stream")


def _headers(entry: Entry, metadata: pb.MessageMetadata) -> dict[str, str]:
    ledger_id, entry_id = entry.position
    properties = {str(each.key): str(each.value) for each in metadata.properties}
    headers = {
        "X-Pulsar-Message-ID": f"{ledger_id}:{entry_id}",
        "X-Pulsar-PROPERTY": json.dumps(properties, separators=(",", ":")),
        "X-Pulsar-Is-Encrypted": "true" if metadata.encryption_keys else "false",
        "X-Pulsar-txn-uncommitted": "false",
    }
    for field, name in _TIMES.items():
        if metadata.HasField(field):
            headers[f"X-Pulsar-{name}"] = _time_text(getattr(metadata, field))
    for field, name in _TEXTS.items():
        if metadata.HasField(field):
            headers[f"X-Pulsar-{name}"] = _header_text(getattr(metadata, field))
    for field, name in _BYTES.items():
        if metadata.HasField(field):
            headers[f"X-Pulsar-{name}"] = base64.b64encode(getattr(metadata, field)).decode()
    if metadata.HasField("compression"):
        headers["X-Pulsar-compression"] = pb.CompressionType.Name(metadata.compression)
    if metadata.HasField("num_chunks_from_msg"):
        headers["X-Pulsar-PROPERTY-TOTAL-CHUNKS"] = str(metadata.num_chunks_from_msg)
        headers["X-Pulsar-PROPERTY-CHUNK-ID"] = str(metadata.chunk_id)
    return headers


def _time_text(time_ms: int) -> str:
    """A time; a number of milliseconds that no calendar has is shown as it is."""
    try:
        return iso_time(time_ms) or ""
    except (ValueError, OverflowError, OSError):
        return str(time_ms)


def _header_text(value: object) -> str:
    """A value that a header can carry: a producer may have written any character. White space at
    the ends does not belong to the value of a header."""
    if isinstance(value, bool):
        return "true" if value else "false"
    raw = value if isinstance(value, bytes) else str(value).encode()
    text = raw.decode("latin-1").strip(" ")
    return "".join(character if character >= " " else "?" for character in text)


async def _decompressed(metadata: pb.MessageMetadata, body: bytes) -> bytes:
    if metadata.compression == pb.CompressionType.NONE:
        return body
    if metadata.compression != pb.CompressionType.ZLIB:
        name = pb.CompressionType.Name(metadata.compression)
        raise Refusal(501, f"Messages compressed with {name} cannot be shown over HTTP by Vela")
    size = metadata.uncompressed_size
    if size > SHOWN_BYTES_MAX:
        raise Refusal(
            501, f"The message has {size} bytes, and Vela shows {SHOWN_BYTES_MAX} over HTTP at most"
        )
    return await trio.to_thread.run_sync(_inflated, body, size, limiter=_DECOMPRESSING)


def _inflated(body: bytes, size: int) -> bytes:
    """At most `size` bytes, which zlib would take for "no limit" if it were 0."""
    try:
        return zlib.decompressobj().decompress(body, size) if size else b""
    except zlib.error as error:
        raise Refusal(500, f"The message cannot be decompressed: {error}") from None


_SUBSCRIPTION: Final = f"{TOPIC}/subscription/{{subscription}}"
ROUTES: Final = (
    Route("GET", f"{_SUBSCRIPTION}/position/{{messagePosition}}", peek),
    Route("GET", f"{TOPIC}/examinemessage", examine),
    Route("GET", f"{TOPIC}/ledger/{{ledgerId}}/entry/{{entryId}}", by_id),
)
