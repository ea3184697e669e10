"""Looks into what follows the command of SEND and MESSAGE, without touching the payload.

The bytes ("headers and payload", the content of an entry), all numbers big-endian:

    [0x0e02 | size (4) | BrokerEntryMetadata]     added by a broker, only when configured
    [0x0e01 | CRC32C (4) of all that follows]     by producers since protocol version 6
    size (4) | MessageMetadata
    payload

An entry is stored and delivered exactly as it arrived. These functions read; none of them changes
the bytes after 0x0e01, so a checksum made by the producer holds for the consumer.

Source: Pulsar's binary protocol specification; order of the sticky key's sources as in 4.0.8.
"""

from __future__ import annotations

import base64
import binascii
from struct import Struct
from typing import TYPE_CHECKING, Final

from crc32c import crc32c
from google.protobuf.message import DecodeError

from native.entries import crc32c as native_crc32c
from protocol import pulsar_api_pb2 as pb
from protocol.errors import RemoteProtocolError
from protocol.outline import Shape, check_fields
from protocol.varints import after_varint

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mypy_extensions import i64

MAGIC_CHECKSUM: Final = b"\x0e\x01"
MAGIC_BROKER_ENTRY_METADATA: Final = b"\x0e\x02"
_BROKER_MAGIC_1: Final = 0x02

MESSAGES_IN_BATCH_MAX: Final = 2**20
"""More than clients make: with more, an entry counts as one message."""

_PRODUCER_NAME_FIELD: Final = 0x0A
_SEQUENCE_ID_FIELD: Final = 0x10
_PUBLISH_TIME_FIELD: Final = 0x18
_REQUIRED_FIELDS: Final = 7
"""A bit for each of these three."""
_PROPERTY_FIELD: Final = 0x22
_ENCRYPTION_KEY_FIELD: Final = 0x6A
_KEY_METADATA_FIELD: Final = 0x1A
_BATCH_SIZE_FIELD: Final = 0x58
_COMPRESSION_FIELD: Final = 0x40
_COMPRESSION_MAX: Final = pb.SNAPPY
_UNCOMPRESSED_SIZE_FIELD: Final = 0x48
_MARKER_TYPE_FIELD: Final = 0xA0
_BATCHED_MESSAGE_BYTES_MIN: Final = 6
"""In a batch a message has a size and metadata, in which the size of the payload is required."""
_EXPANSION_MAX: Final[dict[int, int]] = {pb.LZ4: 255, pb.ZLIB: 1_032, pb.ZSTD: 2**15, pb.SNAPPY: 22}
"""The most bytes that one compressed byte can stand for: a length byte of LZ4, the longest match of
deflate in two bits, a block of 128 KB in the four bytes of ZSTD's RLE block, a copy of 64 bytes in
three bytes of Snappy."""
_LARGEST: Final = 2**63 - 1
"""Stands for every number of more than 63 bits: larger than all bounds here. Numbers that are read
byte by byte are i64, which compiled code computes without checks for objects."""
_CHECKSUM_HEAD_SIZE: Final = 6
_BROKER_HEAD_SIZE: Final = 6
METADATA_UNCOUNTED_BYTES: Final = 64 * 1024
"""Smaller metadata has at most 32,000 fields anyway: two or three milliseconds to parse."""
METADATA_FIELDS_MAX: Final = METADATA_UNCOUNTED_BYTES // 2
"""The most that fit into smaller metadata, which are never counted; larger metadata may have no
more."""
_SHAPE: Final = Shape(pb.MessageMetadata.DESCRIPTOR)
_crc32c: Final = native_crc32c
"""Compiled, names of this module are no look-up in a dict."""
_U32: Final = Struct(">I")
_read_u32 = _U32.unpack_from
_parse_metadata = pb.MessageMetadata.FromString
_parse_single = pb.SingleMessageMetadata.FromString


def _checksum_offset(data: bytes) -> int:
    """Where the entry as the producer sent it begins: after the broker entry metadata."""
    if data[:2] != MAGIC_BROKER_ENTRY_METADATA:
        return 0
    if len(data) < _BROKER_HEAD_SIZE:
        raise RemoteProtocolError(f"broker entry metadata cut short after {len(data)} bytes")
    offset: int = _BROKER_HEAD_SIZE + _read_u32(data, 2)[0]
    if offset > len(data):
        raise RemoteProtocolError(
            f"broker entry metadata of {offset} bytes in an entry of {len(data)} bytes"
        )
    return offset


def metadata_range(data: bytes) -> tuple[int, int]:
    """Start and end of the MessageMetadata.

    Raises: RemoteProtocolError: sizes that do not fit.
    """
    size = len(data)
    start = 0
    if size > 1 and data[0] == 0x0E:
        if data[1] != 0x01:
            start = _checksum_offset(data)
        if data[start : start + 2] == MAGIC_CHECKSUM:
            start += _CHECKSUM_HEAD_SIZE
    if start + 4 > size:
        raise RemoteProtocolError(f"message of {size} bytes ends before its metadata")
    end: int = start + 4 + _read_u32(data, start)[0]
    if end > size:
        raise RemoteProtocolError(
            f"message metadata ends at byte {end} of a message of {size} bytes"
        )
    return start + 4, end


def _parsed(data: bytes, start: int, end: int) -> pb.MessageMetadata:
    try:
        return _parse_metadata(data[start:end])
    except DecodeError as error:
        raise RemoteProtocolError(f"message metadata cannot be read: {error}") from None


def peek(data: bytes) -> pb.MessageMetadata:
    """The metadata of an entry. A text in it that is not UTF-8 comes out as bytes, not as str.

    Raises: RemoteProtocolError: sizes that do not fit, or bytes that are no metadata.
    """
    start, end = metadata_range(data)
    return _parsed(data, start, end)


def peek_and_payload(data: bytes) -> tuple[pb.MessageMetadata, memoryview]:
    """The metadata of an entry, and its payload as a view into `data`.

    Raises: RemoteProtocolError: as `peek`.
    """
    start, end = metadata_range(data)
    return _parsed(data, start, end), memoryview(data)[end:]


def check_metadata(data: bytes) -> str:
    """Why a message is refused for its metadata; "" if it is not. Everything that looks at a
    message takes time for each property: 850,000 of them, 0.1 s. Metadata that is no larger than
    `METADATA_UNCOUNTED_BYTES` is not looked at, and may be broken, as with Pulsar."""
    try:
        start, end = metadata_range(data)
    except RemoteProtocolError:
        return ""  # which is never parsed either
    if end - start > METADATA_UNCOUNTED_BYTES:
        try:
            check_fields(data, start, end, _SHAPE, METADATA_FIELDS_MAX)
        except RemoteProtocolError as error:
            return f"metadata of {end - start} bytes: {error}"
    return ""


def verify_checksum(data: bytes) -> bool:
    """Whether the checksum fits; True when there is none, False also for a checksum cut short."""
    size = len(data)
    if size >= _CHECKSUM_HEAD_SIZE and data[0] == 0x0E and data[1] == 0x01:
        checksum: i64 = data[2]
        checksum = checksum << 8 | data[3]
        checksum = checksum << 8 | data[4]
        checksum = checksum << 8 | data[5]
        computed: i64 = _crc32c(data, 0, _CHECKSUM_HEAD_SIZE)
        return computed == checksum
    start = _checksum_offset(data) if data[:2] == MAGIC_BROKER_ENTRY_METADATA else 0
    if data[start : start + 2] != MAGIC_CHECKSUM:
        return True
    if len(data) < start + _CHECKSUM_HEAD_SIZE:
        return False
    expected: int = _read_u32(data, start + 2)[0]
    return crc32c(memoryview(data)[start + _CHECKSUM_HEAD_SIZE :]) == expected


def has_checksum(data: bytes) -> bool:
    """Whether the producer protected the entry with a checksum."""
    start = _checksum_offset(data)
    return data[start : start + 2] == MAGIC_CHECKSUM


def encode_message(metadata: pb.MessageMetadata, payload: bytes, *, checksum: bool = True) -> bytes:
    """An entry as a producer makes it."""
    encoded = metadata.SerializeToString()
    body = b"".join((_U32.pack(len(encoded)), encoded, payload))
    if not checksum:
        return body
    return b"".join((MAGIC_CHECKSUM, _U32.pack(crc32c(body)), body))


def broker_entry_metadata(data: bytes) -> pb.BrokerEntryMetadata | None:
    """The metadata that a broker added in front of the entry, if any."""
    end = _checksum_offset(data)
    if end == 0:
        return None
    try:
        return pb.BrokerEntryMetadata.FromString(data[_BROKER_HEAD_SIZE:end])
    except DecodeError as error:
        raise RemoteProtocolError(f"broker entry metadata cannot be read: {error}") from None


def strip_broker_entry_metadata(data: bytes) -> bytes:
    """The entry as the producer sent it; the same object when nothing was added, and when what was
    added is cut short: no consumer can read such an entry, and it must not hold up the others."""
    if len(data) < 2 or data[1] != _BROKER_MAGIC_1:
        return data  # asked for every message that is delivered
    try:
        end = _checksum_offset(data)
    except RemoteProtocolError:
        return data
    return data[end:] if end else data


def add_broker_entry_metadata(
    data: bytes, broker_timestamp_ms: int | None, index: int | None
) -> bytes:
    """The entry with time of arrival and index of its last message in front; None: without it.

    The result is a new object. It is the first header that is taken off again.
    """
    encoded = pb.BrokerEntryMetadata(
        broker_timestamp=broker_timestamp_ms, index=index
    ).SerializeToString()
    return b"".join((MAGIC_BROKER_ENTRY_METADATA, _U32.pack(len(encoded)), encoded, data))


def is_batch(metadata: pb.MessageMetadata) -> bool:
    """Whether the payload is a batch. A batch of one is one: its message has index 0."""
    return metadata.HasField("num_messages_in_batch")


def message_count(metadata: pb.MessageMetadata) -> int:
    """Messages in an entry whose payload is known to be a batch or a message; see `count_messages`
    for entries from elsewhere."""
    return metadata.num_messages_in_batch


def count_messages(data: bytes) -> int:
    """Messages in an entry: 1 unless it is a batch, and 1 if it claims to hold a number of messages
    that it cannot hold: a consumer discards such an entry, and counts it as one message. 0 if no
    client may get it: clients give up their connection when they cannot read the metadata, and do
    not know markers.

    Read from the bytes, which takes less time than parsing: this is asked for every message that is
    published, and for every entry that is read back.
    """
    size: i64 = len(data)
    start: i64 = 0
    if size > 1 and data[0] == 0x0E:
        if data[1] == 0x01:
            start = _CHECKSUM_HEAD_SIZE
        else:
            try:
                start = metadata_range(data)[0] - 4
            except RemoteProtocolError:
                return 0
    if start + 4 > size:
        return 0
    end: i64 = data[start]
    end = end << 8 | data[start + 1]
    end = end << 8 | data[start + 2]
    end = end << 8 | data[start + 3]
    end += start + 4
    if end > size:
        return 0
    return _count_of(data, start + 4, end)


def _count_of(data: bytes, start: i64, end: i64) -> i64:
    """As `count_messages`, of the metadata at `data[start:end]`."""
    at = start
    count: i64 = 1
    compression: i64 = 0
    uncompressed_size: i64 = 0
    missing: i64 = _REQUIRED_FIELDS
    while at < end:
        tag: i64 = data[at]
        at += 1
        if tag > 0x7F:
            # Two bytes are enough for every known field.
            if at >= end or data[at] > 0x7F:
                return _parsed_count(data, start, end)
            more: i64 = data[at]
            tag = tag & 0x7F | more << 7
            at += 1
            if tag == _MARKER_TYPE_FIELD:
                return 0
        if tag < 8:
            return 0
        wire_type = tag & 7
        if wire_type == 0 or wire_type == 2:
            begin = at
            at = after_varint(data, begin, end)
            if at > end:
                return 0
            value: i64 = data[begin]
            if value > 0x7F:
                value = _long_varint(data, begin, at)
            if wire_type == 2:
                if value > end - at:
                    return 0
                if tag == _PRODUCER_NAME_FIELD:
                    missing &= ~1
                elif tag == _PROPERTY_FIELD:
                    if not _is_pair(data, at, at + value, 0):
                        return _parsed_count(data, start, end)
                elif tag == _ENCRYPTION_KEY_FIELD and not _is_pair(
                    data, at, at + value, _KEY_METADATA_FIELD
                ):
                    return _parsed_count(data, start, end)
                at += value
            elif tag == _SEQUENCE_ID_FIELD:
                missing &= ~2
            elif tag == _PUBLISH_TIME_FIELD:
                missing &= ~4
            elif tag == _BATCH_SIZE_FIELD:
                count = value
            elif tag == _COMPRESSION_FIELD and value <= _COMPRESSION_MAX:
                compression = value  # protobuf drops unknown values
            elif tag == _UNCOMPRESSED_SIZE_FIELD:
                uncompressed_size = value
        elif wire_type == 1 or wire_type == 5:
            at += 8 if wire_type == 1 else 4
        else:
            return 0
    if at != end or missing != 0:
        return 0
    if count <= 1:
        return 1
    return _possible_count(count, len(data) - end, compression, uncompressed_size)


def _is_pair(data: bytes, at: i64, end: i64, pairs_field: i64) -> bool:
    """Whether these bytes are a message in its usual form that has its fields 1 and 2, both
    required, with lengths. `pairs_field` is the tag of a field with such messages, 0 for none."""
    missing: i64 = 3
    while at < end:
        tag: i64 = data[at]
        if tag < 8 or tag > 0x7F:
            return False
        at += 1
        wire_type = tag & 7
        if wire_type == 2:
            begin = at
            at = after_varint(data, begin, end)
            if at > end:
                return False
            size: i64 = data[begin]
            if size > 0x7F:
                size = _long_varint(data, begin, at)
            if size > end - at:
                return False
            if tag == 0x0A:
                missing &= ~1
            elif tag == 0x12:
                missing &= ~2
            elif tag == pairs_field and not _is_pair(data, at, at + size, 0):
                return False
            at += size
        elif wire_type == 0:
            at = after_varint(data, at, end)
        elif wire_type == 1:
            at += 8
        elif wire_type == 5:
            at += 4
        else:
            return False
    return at == end and missing == 0


def _parsed_count(data: bytes, start: i64, end: i64) -> i64:
    """The same from metadata of an unusual form."""
    try:
        metadata = _parsed(data, start, end)
    except RemoteProtocolError:
        return 0
    if not metadata.IsInitialized() or is_marker(metadata):
        return 0
    return _possible_count(
        metadata.num_messages_in_batch,
        len(data) - end,
        metadata.compression,
        metadata.uncompressed_size,
    )


def _long_varint(data: bytes, at: i64, end: i64) -> i64:
    """The number at `data[at:end]`, of ten bytes at most; _LARGEST if it has more than 63 bits."""
    if end - at == 10 and data[end - 1] != 0:
        return _LARGEST
    value: i64 = 0
    while end > at:
        end -= 1
        byte: i64 = data[end]
        value = value << 7 | byte & 0x7F
    return value


def _possible_count(count: i64, room_bytes: i64, compression: i64, uncompressed_size: i64) -> i64:
    """The number of messages that a batch claims to hold, or 1 if they have no room in it. The size
    of a compressed batch is a claim, too, so it is bounded by what the bytes can stand for."""
    if compression != 0:
        room_bytes = min(uncompressed_size, room_bytes * _EXPANSION_MAX.get(compression, 0))
    if count > MESSAGES_IN_BATCH_MAX or count * _BATCHED_MESSAGE_BYTES_MIN > room_bytes:
        return 1
    return max(count, 1)


def is_encrypted(metadata: pb.MessageMetadata) -> bool:
    """Whether the producer encrypted the payload."""
    return len(metadata.encryption_keys) > 0


def is_transactional(metadata: pb.MessageMetadata) -> bool:
    """Whether the message belongs to a transaction."""
    return metadata.HasField("txnid_most_bits") and metadata.HasField("txnid_least_bits")


def is_marker(metadata: pb.MessageMetadata) -> bool:
    """Whether the entry is internal to Pulsar and never shown to consumers."""
    return metadata.HasField("marker_type")


def key_bytes(partition_key: str | bytes, *, b64_encoded: bool) -> bytes:
    """The bytes a key stands for. A text that only claims to be base64 stands for itself."""
    if isinstance(partition_key, bytes):
        return partition_key
    if b64_encoded:
        try:
            return base64.b64decode(partition_key, validate=True)
        except (binascii.Error, ValueError):
            pass
    return partition_key.encode()


def sticky_key(metadata: pb.MessageMetadata) -> bytes:
    """The key that Key_Shared hashes: the ordering key, else the partition key, else producer and
    sequence id, so that messages without a key spread over the consumers.
    """
    if metadata.HasField("ordering_key"):
        return metadata.ordering_key
    if metadata.HasField("partition_key"):
        key = text_field(metadata, "partition_key")
        return key_bytes(key, b64_encoded=metadata.partition_key_b64_encoded)
    return f"{text_field(metadata, 'producer_name')}-{metadata.sequence_id}".encode()


def text_field(metadata: pb.MessageMetadata, name: str) -> str:
    """A field of type string. Bytes that are not UTF-8 are replaced, as by Java's clients.

    protobuf gives such a field as bytes, whatever its type says.
    """
    value: object = getattr(metadata, name)
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def parse_single(data: bytes, number: int) -> pb.SingleMessageMetadata:
    """The metadata of the message with this number in a batch.

    Raises: RemoteProtocolError: these bytes are none.
    """
    try:
        return _parse_single(data)
    except DecodeError as error:
        raise RemoteProtocolError(f"message {number} of a batch: {error}") from None


def batch_messages(
    payload: bytes | memoryview, count: int
) -> Iterator[tuple[pb.SingleMessageMetadata, bytes | memoryview]]:
    """The messages of a batch, whose payload must be neither compressed nor encrypted any more.
    They are copied out of bytes, and are views into a view.

    Raises: RemoteProtocolError: the payload is not a batch of that many messages.
    """
    length = len(payload)
    offset = 0
    for number in range(count):
        if offset + 4 > length:
            raise RemoteProtocolError(f"batch ends before its message {number} of {count}")
        end: int = offset + 4 + _read_u32(payload, offset)[0]
        single = parse_single(bytes(payload[offset + 4 : end]), number)
        size = single.payload_size
        offset = end + size
        if size < 0 or offset > length:
            raise RemoteProtocolError(f"message {number} of {count} passes the end of its batch")
        yield single, payload[end:offset]
