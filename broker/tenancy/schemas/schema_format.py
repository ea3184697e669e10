"""Records of schemas as Pulsar stores them. Pure codecs.

The locator of a topic lists its versions; every version is an entry of a ledger, which repeats the
list as it was before, and holds a record with the schema. A deletion is a version whose record is
marked deleted and whose hash is empty. Format: `protocol/schema_formats.proto`,
docs/formats/schemas.md.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from google.protobuf.message import DecodeError

from broker.tenancy.schemas.schema_info import SchemaInfo
from protocol import schema_formats_pb2 as formats

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

_COMPONENT: Final = ("component", b"schema")
_APPLICATION: Final = ("application", b"pulsar")
_SCHEMA_ID: Final = "pulsar/schemaId"
DELETION_HASH: Final = b""
_NOWHERE: Final = -1
_ROWS_PER_PART: Final = 300


class DamagedSchema(Exception):
    """A stored record is not one of this format. The text says which part."""


@final
@dataclass(frozen=True, slots=True)
class IndexEntry:
    """One version and the position of its entry. `digest` is empty for a deletion."""

    version: int
    ledger_id: int
    entry_id: int
    digest: bytes


@final
@dataclass(frozen=True, slots=True)
class StoredSchema:
    """One version. `schema` is None for a deletion."""

    version: int
    schema: SchemaInfo | None
    timestamp_ms: int


def locator_parts(index: Sequence[IndexEntry]) -> Iterator[bytes]:
    """The parts that `encode_locator` joins; each part takes about a millisecond."""
    yield formats.SchemaLocator(info=_rows(index[-1:])[0]).SerializePartialToString()
    for start in range(0, len(index), _ROWS_PER_PART):
        rows = _rows(index[start : start + _ROWS_PER_PART])
        yield formats.SchemaLocator(index=rows).SerializePartialToString()


def encode_locator(index: Sequence[IndexEntry]) -> bytes:
    """The value of the topic's node; `index` has at least one version, oldest first."""
    return b"".join(locator_parts(index))


def decode_locator(data: bytes) -> tuple[IndexEntry, ...]:
    """The versions, oldest first: at least one. Raises: DamagedSchema."""
    if not data:
        raise DamagedSchema("the list of versions is empty")
    try:
        locator = formats.SchemaLocator.FromString(data)
    except DecodeError:
        raise DamagedSchema("the list of versions is not a SchemaLocator") from None
    index = tuple(
        IndexEntry(row.version, row.position.ledgerId, row.position.entryId, row.hash)
        for row in locator.index
    )
    versions = [each.version for each in index]
    in_order = versions == sorted(set(versions))
    if not index or not in_order or versions[-1] != locator.info.version:
        raise DamagedSchema("the list of versions contradicts itself")
    if any(min(each.version, each.ledger_id, each.entry_id) < 0 for each in index):
        raise DamagedSchema("the list of versions names a ledger that cannot be")
    return index


def entry_parts(before: Sequence[IndexEntry], record: bytes, digest: bytes) -> Iterator[bytes]:
    """The parts that `encode_entry` joins; each part takes about a millisecond."""
    listed = before or (IndexEntry(0, _NOWHERE, _NOWHERE, digest),)
    yield formats.SchemaEntry(schema_data=record).SerializePartialToString()
    for start in range(0, len(listed), _ROWS_PER_PART):
        rows = _rows(listed[start : start + _ROWS_PER_PART])
        yield formats.SchemaEntry(index=rows).SerializePartialToString()


def encode_entry(before: Sequence[IndexEntry], record: bytes, digest: bytes) -> bytes:
    """The entry of a new version; `before` lists those so far."""
    return b"".join(entry_parts(before, record, digest))


def decode_entry(data: bytes) -> bytes:
    """The record in an entry. Raises: DamagedSchema."""
    try:
        return formats.SchemaEntry.FromString(data).schema_data
    except DecodeError:
        raise DamagedSchema("the entry is not a SchemaEntry") from None


def digest_of(schema: SchemaInfo | None) -> bytes:
    """The hash of a version in the index."""
    return DELETION_HASH if schema is None else hashlib.sha256(schema.data).digest()


def encode_record(schema_id: str, schema: SchemaInfo | None, timestamp_ms: int) -> bytes:
    """The record of one version; None is a deletion."""
    kept = schema or SchemaInfo("NONE", b"")
    record = formats.SchemaInfo(
        schema_id=schema_id,
        user="",
        type=kept.type_name,
        schema=kept.data,
        timestamp=timestamp_ms,
        deleted=schema is None,
    )
    for key, value in kept.properties.items():
        record.props.add(key=key, value=value)
    return record.SerializeToString()


def decode_record(version: int, data: bytes) -> StoredSchema:
    """The inverse. An empty record is a deletion by an old Pulsar. Raises: DamagedSchema."""
    if not data:
        return StoredSchema(version, None, 0)
    try:
        record = formats.SchemaInfo.FromString(data)
    except DecodeError:
        raise DamagedSchema("the record is not a SchemaInfo, or of an unknown type") from None
    if record.deleted:
        return StoredSchema(version, None, record.timestamp)
    type_name = formats.SchemaInfo.SchemaType.Name(record.type)
    properties = {each.key: each.value for each in record.props}
    return StoredSchema(version, SchemaInfo(type_name, record.schema, properties), record.timestamp)


def ledger_custom_metadata(schema_id: str) -> dict[str, bytes]:
    """The owner of a ledger, as real Pulsar marks its own."""
    return dict([_APPLICATION, _COMPONENT]) | {_SCHEMA_ID: schema_id.encode()}


def schema_id_of_ledger(custom: Mapping[str, bytes]) -> str | None:
    """The schema that a ledger is marked as belonging to; None: it is no ledger of a schema."""
    if any(custom.get(key) != value for key, value in (_APPLICATION, _COMPONENT)):
        return None
    try:
        schema_id = custom[_SCHEMA_ID].decode()
    except (KeyError, UnicodeDecodeError):
        return None
    return schema_id if all(schema_id.split("/")) else None


def _rows(index: Iterable[IndexEntry]) -> list[formats.IndexEntry]:
    return [
        formats.IndexEntry(
            version=each.version,
            position=formats.PositionInfo(ledgerId=each.ledger_id, entryId=each.entry_id),
            hash=each.digest,
        )
        for each in index
    ]
