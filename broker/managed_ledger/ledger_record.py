"""The record of a topic in the metadata store: its ledgers, its termination position, properties.

Pure codec for `ManagedLedgerInfo` (field numbers in protocol/ml_formats.proto). Entries, size and
timestamp are written for closed ledgers only; the last ledger of the list is the open one.
Contexts of ledgers that real Pulsar has offloaded are preserved without being interpreted. A record
that real Pulsar compressed (managedLedgerInfoCompressionType, off by default) is read when it uses
ZLIB. Other compressions are refused by name.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, final

from google.protobuf.message import DecodeError

from broker.managed_ledger.ledger_table import LedgerRow
from protocol import ml_formats_pb2 as formats
from protocol.errors import MetadataError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from google.protobuf.message import Message

    from protocol.position import Position

_COMPRESSED_MAGIC: Final = b"\x47\x78"
_ZLIB: Final = 2
_RECORD_BYTES_MAX: Final = 64 << 20
_NONE: Final = 0


@final
@dataclass(slots=True)
class LedgerRecord:
    """The decoded record."""

    rows: Sequence[LedgerRow] = ()
    terminated_position: Position | None = None
    properties: dict[str, str] = field(default_factory=dict)


def encode_ledger_record(record: LedgerRecord) -> bytes:
    """As stored."""
    info = formats.ManagedLedgerInfo()
    for row in record.rows:
        one = info.ledgerInfo.add(ledgerId=row.ledger_id)
        if row.timestamp_ms:
            one.entries = row.entries
            one.size = row.size_bytes
            one.timestamp = row.timestamp_ms
        if row.offload_context:
            one.offloadContext.ParseFromString(row.offload_context)
    if record.terminated_position is not None:
        info.terminatedPosition.ledgerId = record.terminated_position[0]
        info.terminatedPosition.entryId = record.terminated_position[1]
    for key, value in record.properties.items():
        info.properties.add(key=key, value=value)
    return info.SerializeToString()


def decode_ledger_record(data: bytes, path: str) -> LedgerRecord:
    """Decode the record stored at `path`. Raises: MetadataError."""
    info = formats.ManagedLedgerInfo()
    parse_record(info, data, path)
    rows = [
        LedgerRow(
            one.ledgerId,
            one.entries,
            one.size,
            one.timestamp,
            one.offloadContext.SerializeToString() if one.HasField("offloadContext") else b"",
        )
        for one in info.ledgerInfo
    ]
    newest = -1
    for row in rows:
        if row.ledger_id <= newest or row.entries < 0 or row.size_bytes < 0:
            raise damaged(path, f"{row.entries} entries in ledger {row.ledger_id} after {newest}")
        newest = row.ledger_id
    terminated: Position | None = None
    if info.HasField("terminatedPosition"):
        terminated = (info.terminatedPosition.ledgerId, info.terminatedPosition.entryId)
    return LedgerRecord(rows, terminated, {one.key: one.value for one in info.properties})


def parse_record(info: Message, data: bytes, path: str) -> None:
    """Fill `info` from a record that Pulsar may have compressed.

    Raises: MetadataError: it is damaged, or its compression is unknown.
    """
    try:
        info.ParseFromString(decompressed(data))
    except (DecodeError, zlib.error) as error:
        raise damaged(path, f"{len(data)} bytes: {error}") from error
    if not info.IsInitialized():  # the parser does not look
        raise damaged(path, f"{len(data)} bytes, without a field that it needs")


def damaged(path: str, reason: str) -> MetadataError:
    """The refusal of what needs the record at this path."""
    return MetadataError(
        f"the record at {path} in the metadata store is damaged ({reason});"
        " restore the metadata from a backup"
    )


def decompressed(data: bytes) -> bytes:
    """A record without Pulsar's optional compression wrapper: magic, size of the wrapper's
    protobuf (4 bytes), that protobuf, the compressed record."""
    if data[:2] != _COMPRESSED_MAGIC:
        return data
    size = int.from_bytes(data[2:6], "big")
    wrapper = formats.ManagedLedgerInfoMetadata()
    wrapper.ParseFromString(data[6 : 6 + size])
    if not wrapper.IsInitialized():
        raise DecodeError("the head of a compressed record is not complete")
    compressed = data[6 + size :]
    if wrapper.compressionType == _NONE:
        return compressed
    if wrapper.compressionType == _ZLIB:
        inflating = zlib.decompressobj()
        record = inflating.decompress(compressed, _RECORD_BYTES_MAX)
        if not inflating.eof:
            raise zlib.error(f"it does not end within {_RECORD_BYTES_MAX} bytes")
        return record
    name = formats.CompressionType.Name(wrapper.compressionType)
    raise MetadataError(
        f"a managed ledger record is compressed with {name}; rewrite it with"
        " managedLedgerInfoCompressionType=NONE"
    )
