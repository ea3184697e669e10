"""A ledger's metadata: its bookies per range of entries, its quorums, its state.

The record is the only truth about how a ledger ends: it changes by compare-and-set on the store's
version, OPEN -> (IN_RECOVERY ->) CLOSED, and while the ledger is not CLOSED neither its length nor
its last entry is known from here.

Format: an ASCII header `BookieMetadataFormatVersion\\t3\\n`, then a varint with the size of a
LedgerMetadataFormat protobuf, then that. Version 2 (the same record as protobuf text) is read too.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from enum import IntEnum
from itertools import pairwise
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, final

from google.protobuf import text_format
from google.protobuf.message import DecodeError

from protocol.bookkeeper import data_formats_pb2 as formats
from protocol.bookkeeper.digests import INVALID_ENTRY_ID, DigestType

if TYPE_CHECKING:
    from collections.abc import Mapping

_HEADER: Final = re.compile(rb"BookieMetadataFormatVersion\t(\d{1,4})\n")
_HEADER_V3: Final = b"BookieMetadataFormatVersion\t3\n"
_VARINT_SIZE_BYTES_MAX: Final = 5


class InvalidMetadata(Exception):
    """Bytes in the metadata store that are not the record they should be."""


class LedgerState(IntEnum):
    """Numbers of ledger metadata's state."""

    OPEN = 1
    IN_RECOVERY = 2
    CLOSED = 3


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerMetadata:
    """One version of a ledger's metadata. `ensembles`: first entry id -> bookie ids, ascending."""

    ensemble_size: int
    write_quorum_size: int
    ack_quorum_size: int
    ensembles: Mapping[int, tuple[str, ...]]
    digest_type: DigestType = DigestType.CRC32C
    password: bytes = b""
    state: LedgerState = LedgerState.OPEN
    last_entry_id: int = INVALID_ENTRY_ID
    length: int = 0
    ctime_ms: int = 0
    custom_metadata: Mapping[str, bytes] = field(default_factory=dict)
    c_token: int = 0
    """Random number of the create attempt: a retried create finds its own record by it."""

    def __post_init__(self) -> None:
        if not self.ensemble_size >= self.write_quorum_size >= self.ack_quorum_size >= 0:
            raise InvalidMetadata(
                f"ensemble {self.ensemble_size} >= write quorum {self.write_quorum_size} >= "
                f"ack quorum {self.ack_quorum_size} does not hold"
            )
        ordered = {first: tuple(self.ensembles[first]) for first in sorted(self.ensembles)}
        object.__setattr__(self, "ensembles", MappingProxyType(ordered))
        custom = MappingProxyType(dict(self.custom_metadata))
        object.__setattr__(self, "custom_metadata", custom)

    @property
    def is_closed(self) -> bool:
        """Its last entry and length are final."""
        return self.state is LedgerState.CLOSED

    def ensemble_of(self, entry_id: int) -> tuple[str, ...]:
        """The bookies among which `entry_id` is, or will be, written.

        Raises: KeyError: no segment starts at or before the entry.
        """
        found: tuple[str, ...] | None = None
        for first, bookie_ids in self.ensembles.items():
            if first > entry_id:
                break
            found = bookie_ids
        if found is None:
            raise KeyError(entry_id)
        return found

    @property
    def last_ensemble(self) -> tuple[int, tuple[str, ...]]:
        """(first entry id, bookies) of the newest segment."""
        first = max(self.ensembles)
        return first, self.ensembles[first]

    def with_ensemble(self, first_entry_id: int, bookie_ids: tuple[str, ...]) -> LedgerMetadata:
        """With a new segment, or another ensemble for the segment that starts there."""
        return replace(self, ensembles={**self.ensembles, first_entry_id: bookie_ids})

    def closed(self, last_entry_id: int, length: int) -> LedgerMetadata:
        """As the end of the ledger is decided. The create token has served its purpose."""
        return replace(
            self,
            state=LedgerState.CLOSED,
            last_entry_id=last_entry_id,
            length=length,
            c_token=0,
        )

    def in_recovery(self) -> LedgerMetadata:
        """As a reader announces that it decides the end of the ledger."""
        return replace(self, state=LedgerState.IN_RECOVERY, c_token=0)


def encode_ledger_metadata(metadata: LedgerMetadata) -> bytes:
    """The record to store, in version 3."""
    is_closed = metadata.is_closed
    record = formats.LedgerMetadataFormat(
        quorumSize=metadata.write_quorum_size,
        ensembleSize=metadata.ensemble_size,
        length=metadata.length if is_closed else 0,
        lastEntryId=metadata.last_entry_id if is_closed else INVALID_ENTRY_ID,
        state=metadata.state.name,
        digestType=metadata.digest_type.name,
        password=metadata.password,
        ackQuorumSize=metadata.ack_quorum_size,
        ctime=metadata.ctime_ms,
        cToken=metadata.c_token,
    )
    for first_entry_id, bookie_ids in metadata.ensembles.items():
        record.segment.add(firstEntryId=first_entry_id, ensembleMember=bookie_ids)
    for key, value in metadata.custom_metadata.items():
        record.customMetadata.add(key=key, value=value)
    encoded: bytes = record.SerializeToString()
    return _HEADER_V3 + _varint(len(encoded)) + encoded


def decode_ledger_metadata(data: bytes) -> LedgerMetadata:
    """The record in the store, version 2 or 3.

    Raises: InvalidMetadata: it is not one, or in a version this code does not know.
    """
    header = _HEADER.match(data)
    if header is None:
        raise InvalidMetadata("ledger metadata does not start with its version header")
    record = formats.LedgerMetadataFormat()
    version = int(header.group(1))
    body = data[header.end() :]
    try:
        if version == 3:
            record.ParseFromString(_delimited(body))
        elif version == 2:
            text_format.Parse(body.decode("utf-8"), record, allow_unknown_field=True)
        else:
            raise InvalidMetadata(f"ledger metadata version {version} is not known (2 and 3 are)")
    except (DecodeError, text_format.ParseError, UnicodeDecodeError) as error:
        raise InvalidMetadata(f"ledger metadata version {version}: {error}") from error
    if not record.IsInitialized():
        raise InvalidMetadata("ledger metadata lacks required fields")
    return _from_record(record)


def _from_record(record: formats.LedgerMetadataFormat) -> LedgerMetadata:
    _refuse_impossible(record)
    state = LedgerState(record.state)
    is_closed = state is LedgerState.CLOSED
    # A record without an ack quorum predates it: then every copy had to be acknowledged.
    ack_quorum_size = (
        record.ackQuorumSize if record.HasField("ackQuorumSize") else record.quorumSize
    )
    return LedgerMetadata(
        ensemble_size=record.ensembleSize,
        write_quorum_size=record.quorumSize,
        ack_quorum_size=ack_quorum_size,
        ensembles={one.firstEntryId: tuple(one.ensembleMember) for one in record.segment},
        digest_type=DigestType(record.digestType),
        password=record.password,
        state=state,
        last_entry_id=record.lastEntryId if is_closed else INVALID_ENTRY_ID,
        length=record.length if is_closed else 0,
        ctime_ms=record.ctime,
        custom_metadata={one.key: one.value for one in record.customMetadata},
        c_token=record.cToken,
    )


def _refuse_impossible(record: formats.LedgerMetadataFormat) -> None:
    """Refuse metadata that no client writes: the entries of such a ledger have no bookies, or not
    enough.

    Raises: InvalidMetadata.
    """
    firsts = [one.firstEntryId for one in record.segment]
    if not firsts or firsts[0] != 0 or any(second <= first for first, second in pairwise(firsts)):
        raise InvalidMetadata(f"ledger metadata: its segments start at the entries {firsts[:100]}")
    for one in record.segment:
        if len(one.ensembleMember) != record.ensembleSize or not all(one.ensembleMember):
            raise InvalidMetadata(
                f"ledger metadata: the segment of entry {one.firstEntryId} names "
                f"{sum(map(bool, one.ensembleMember))} bookies, not {record.ensembleSize}"
            )
    if record.quorumSize < 1:
        raise InvalidMetadata(f"ledger metadata: a write quorum of {record.quorumSize}")
    if record.state == formats.LedgerMetadataFormat.CLOSED and (
        record.lastEntryId < INVALID_ENTRY_ID or record.length < 0
    ):
        raise InvalidMetadata(
            f"ledger metadata: closed at entry {record.lastEntryId}, {record.length} bytes"
        )


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _delimited(data: bytes) -> bytes:
    """The bytes after a varint that gives their size; later bytes are ignored."""
    size = shift = 0
    for at, byte in enumerate(data[:_VARINT_SIZE_BYTES_MAX], 1):
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            if len(data) - at < size:
                raise InvalidMetadata(f"ledger metadata: {len(data) - at} of {size} bytes")
            return data[at : at + size]
    raise InvalidMetadata("ledger metadata: its size is not a varint")
