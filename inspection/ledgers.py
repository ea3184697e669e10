"""Ledgers as the metadata store, the index of a bookie, and the bookies themselves have them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from google.protobuf.message import DecodeError

from inspection.access import access
from inspection.files import NotReadable
from metadata.opening import open_store
from metadata.read_only_tree import RocksTree, Tree
from protocol import ml_formats_pb2 as formats
from protocol.bookkeeper.ledger_metadata import (
    InvalidMetadata,
    LedgerMetadata,
    decode_ledger_metadata,
)
from protocol.bookkeeper.paths import LEDGERS_ROOT, NOT_LEDGERS, ledger_id_of, ledger_path
from protocol.errors import InvalidTopicName
from protocol.topic_name import TopicName

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from inspection.output import Value

MANAGED_LEDGERS_ROOT: Final = "/managed-ledgers"
_COMPRESSED: Final = b"\x47\x78"
SESSION_S: Final = 10.0

_Record = TypeVar(
    "_Record", formats.ManagedLedgerInfo, formats.ManagedCursorInfo, formats.PositionInfo
)


async def open_tree(url: str | None, data_dir: Path | None) -> Tree:
    """The metadata store at a URL, or that of a stopped standalone broker.

    Raises: NotReadable, MetadataUnavailable.
    """
    if data_dir is not None:
        return RocksTree(data_dir / "metadata")
    if url is None:
        raise NotReadable("name a metadata store: --metadata-store zk:host:port, or --data-dir")
    if url.startswith("rocksdb:"):
        return RocksTree(Path(url.removeprefix("rocksdb:").removeprefix("//")))
    return await open_store(url, SESSION_S, access().metadataStoreConfigPath)


async def metadata_of(tree: Tree, ledger_id: int) -> LedgerMetadata:
    """Raises: NotReadable, MetadataUnavailable."""
    path = ledger_path(ledger_id)
    stored = await tree.get(path)
    if stored is None:
        raise NotReadable(f"ledger {ledger_id} does not exist: there is no {path}")
    try:
        return decode_ledger_metadata(stored[0])
    except InvalidMetadata as error:
        raise NotReadable(f"{path}: {error}") from error


async def ledger_ids(tree: Tree) -> AsyncIterator[int]:
    """All ledgers, without keeping them. Raises: MetadataUnavailable."""
    names = [name for name in await tree.children(LEDGERS_ROOT) if name not in NOT_LEDGERS]
    pending = [f"{LEDGERS_ROOT}/{name}" for name in reversed(names)]
    while pending:
        path = pending.pop()
        ledger_id = ledger_id_of(path)
        if ledger_id is not None:
            yield ledger_id
        else:
            below = await tree.children(path)
            pending.extend(f"{path}/{name}" for name in reversed(below))


def metadata_row(ledger_id: int, metadata: LedgerMetadata) -> dict[str, Value]:
    """All but the password."""
    is_closed = metadata.is_closed
    return {
        "ledger": ledger_id,
        "state": metadata.state.name,
        "ensemble": metadata.ensemble_size,
        "writeQuorum": metadata.write_quorum_size,
        "ackQuorum": metadata.ack_quorum_size,
        "lastEntry": metadata.last_entry_id if is_closed else None,
        "length": metadata.length if is_closed else None,
        "digest": metadata.digest_type.name,
        "ctime": metadata.ctime_ms or None,
        "ensembles": {str(first): list(each) for first, each in metadata.ensembles.items()},
        "custom": {
            key: value.decode(errors="backslashreplace")
            for key, value in metadata.custom_metadata.items()
        },
    }


# --- managed ledgers --------------------------------------------------------------------------


def managed_ledger_name(topic: str) -> str:
    """The name of a topic's managed ledger; a name that is one already stays.

    Raises: NotReadable.
    """
    if "://" not in topic:
        return topic
    try:
        return TopicName.parse(topic).managed_ledger_name
    except InvalidTopicName as error:
        raise NotReadable(str(error)) from error


async def managed_ledger_rows(tree: Tree, name: str) -> AsyncIterator[tuple[str, dict[str, Value]]]:
    """(kind, row) of a managed ledger, its ledgers and cursors. Raises: NotReadable,
    MetadataUnavailable."""
    path = f"{MANAGED_LEDGERS_ROOT}/{name}"
    stored = await tree.get(path)
    if stored is None:
        raise NotReadable(f"there is no managed ledger {name}: there is no {path}")
    info = _parsed(path, stored[0], formats.ManagedLedgerInfo())
    terminated = info.terminatedPosition
    yield (
        "managed-ledger",
        {
            "name": name,
            "version": stored[1],
            "ledgers": len(info.ledgerInfo),
            "terminatedAt": (
                f"{terminated.ledgerId}:{terminated.entryId}"
                if info.HasField("terminatedPosition")
                else None
            ),
            "properties": {one.key: one.value for one in info.properties} or None,
        },
    )
    for one in info.ledgerInfo:
        yield (
            "ledger",
            {
                "ledger": one.ledgerId,
                "entries": one.entries if one.HasField("entries") else None,
                "bytes": one.size if one.HasField("size") else None,
                "closedAt": one.timestamp if one.HasField("timestamp") else None,
                "offloaded": True if one.offloadContext.complete else None,
            },
        )
    for cursor in await tree.children(path):
        found = await tree.get(f"{path}/{cursor}")
        if found is not None:
            yield "cursor", _cursor_row(f"{path}/{cursor}", cursor, found)


def _cursor_row(path: str, cursor: str, stored: tuple[bytes, int]) -> dict[str, Value]:
    """The position of a cursor with a ledger of its own is that of the ledger's beginning."""
    info = _parsed(path, stored[0], formats.ManagedCursorInfo())
    return {
        "name": cursor,
        "version": stored[1],
        "cursorLedger": info.cursorsLedgerId,
        "markDelete": (
            f"{info.markDeleteLedgerId}:{info.markDeleteEntryId}"
            if info.HasField("markDeleteLedgerId")
            else None
        ),
        "ackedRanges": len(info.individualDeletedMessages) or None,
        "batches": len(info.batchedEntryDeletionIndexInfo) or None,
        "properties": {one.name: one.value for one in info.cursorProperties} or None,
    }


def position_row(payload: bytes) -> dict[str, Value]:
    """An entry of a cursor ledger. Raises: NotReadable."""
    info = _parsed("the entry", payload, formats.PositionInfo())
    return {
        "markDelete": f"{info.ledgerId}:{info.entryId}",
        "acked": [
            f"({one.lowerEndpoint.ledgerId}:{one.lowerEndpoint.entryId}, "
            f"{one.upperEndpoint.ledgerId}:{one.upperEndpoint.entryId}]"
            for one in info.individualDeletedMessages
        ],
        "ackedWords": {str(one.key): len(one.values) for one in info.individualDeletedMessageRanges}
        or None,
        "batches": [
            f"{one.position.ledgerId}:{one.position.entryId}"
            for one in info.batchedEntryDeletionIndexInfo
        ],
        "properties": {one.name: one.value for one in info.properties} or None,
    }


def _parsed(where: str, data: bytes, record: _Record) -> _Record:
    if data.startswith(_COMPRESSED):
        raise NotReadable(f"{where} is compressed (managedLedgerInfoCompressionType)")
    try:
        record.ParseFromString(data)
    except DecodeError as error:
        raise NotReadable(f"{where}: damaged at offset 0, {len(data)} bytes: {error}") from error
    return record
