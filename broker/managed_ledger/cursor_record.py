"""The stored form of a cursor, in a cursor ledger (PositionInfo) or inline in the metadata store
(ManagedCursorInfo).

Pure codec. Individual acks are written as ranges, which every Pulsar reads. Above `max_ranges` they
are written as bit words per ledger (individualDeletedMessageRanges, which Pulsar writes with
managedLedgerPersistIndividualAckAsLongArray). Bit words take 8 bytes per 64 entries however many
holes there are. If even those exceed the entry size limit, the position is spread over several
entries: first parts with bit words, then the rest, with the number of parts in the position
property `vela.ack-parts`. Real Pulsar reads the last entry alone. It therefore only loses acks
(redelivery) and never invents any.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, final

from google.protobuf.message import DecodeError
from pyroaring import BitMap

from broker.managed_ledger.bit_words import bitmap_words, words_bitmap
from broker.managed_ledger.ledger_record import damaged, parse_record
from protocol import ml_formats_pb2 as formats
from protocol.ack_set import from_words, to_words

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from google.protobuf.internal.containers import RepeatedCompositeFieldContainer

    from broker.managed_ledger.ack_state import AckedRange, AckState
    from protocol.position import Position

INLINE: Final = -1
"""As cursor ledger id: the position is in the metadata store."""
PARTS_PROPERTY: Final = "vela.ack-parts"
IS_PART: Final = -1
"""As number of parts: the entry is itself a part of the position in a later entry."""

INTERNAL_PREFIX: Final = "vela.internal."
"""Prefix of cursor properties that belong to the broker. Requests cannot set them."""
ATTACHED_LEDGER_PROPERTY: Final = INTERNAL_PREFIX + "ledger"
"""Names a ledger that holds more about the cursor and is deleted with it."""

BATCH_WORDS_MAX: Final = 180_000
"""Bit words of partly acked batches in one entry, about 2 MB: a client says how many each has."""
BATCH_WORDS_MAX_INLINE: Final = 32_000
"""The same in the metadata store."""

_WORD_SIZE_BYTES_MAX: Final = 11


@final
@dataclass(slots=True)
class CursorPosition:
    """A position as stored: the mark-delete position and all acks after it."""

    mark_delete: Position
    ranges: list[AckedRange] = field(default_factory=list)
    bitmaps: list[tuple[int, BitMap]] = field(default_factory=list)
    batches: list[tuple[Position, int]] = field(default_factory=list)
    properties: dict[str, int] = field(default_factory=dict)

    def all_bitmaps(self) -> list[tuple[int, BitMap]]:
        """Individual acks of both forms, one bitmap per ledger."""
        merged: dict[int, BitMap] = {}
        for (low_ledger, low_entry), (high_ledger, high_entry) in self.ranges:
            first = low_entry + 1 if low_ledger == high_ledger else 0
            if 0 <= first <= high_entry:
                merged.setdefault(high_ledger, BitMap()).add_range(first, high_entry + 1)
        for ledger_id, bitmap in self.bitmaps:
            merged[ledger_id] = merged[ledger_id] | bitmap if ledger_id in merged else bitmap
        return sorted(merged.items())


@final
@dataclass(slots=True)
class CursorRecord:
    """The record in the metadata store. `position` is None only if it is in a cursor ledger."""

    cursor_ledger_id: int
    position: CursorPosition | None
    properties: dict[str, str]


def attached_ledger(properties: Mapping[str, str]) -> int | None:
    """The ledger that belongs to a cursor with these properties."""
    text = properties.get(ATTACHED_LEDGER_PROPERTY)
    return int(text) if text is not None else None


def encode_positions(
    state: AckState,
    properties: dict[str, int],
    ranges_max: int,
    batches_max: int,
    size_bytes_max: int,
) -> list[bytes]:
    """The entries to append to a cursor ledger; the last one holds the mark-delete position."""
    info = formats.PositionInfo(ledgerId=state.mark_delete[0], entryId=state.mark_delete[1])
    parts: list[bytes] = []
    if state.acked_count and state.range_count() > ranges_max:
        parts = _fill_words(info, state, size_bytes_max)
    else:
        _fill_ranges(info.individualDeletedMessages, state.acked_ranges())
    _fill_batches(info, state.batches()[:batches_max], BATCH_WORDS_MAX)
    for name, value in properties.items():
        info.properties.add(name=name, value=value)
    if parts:
        info.properties.add(name=PARTS_PROPERTY, value=len(parts))
    return [*parts, info.SerializeToString()]


def decode_position(data: bytes) -> tuple[CursorPosition, int]:
    """The position in an entry of a cursor ledger, and how many entries before it belong to it.
    Raises: DecodeError."""
    info = formats.PositionInfo()
    info.ParseFromString(data)
    if not info.IsInitialized():  # the parser does not look
        raise DecodeError("a position lacks a field that it needs")
    properties = {one.name: one.value for one in info.properties}
    parts = properties.pop(PARTS_PROPERTY, 0)
    position = CursorPosition(
        (info.ledgerId, info.entryId),
        _ranges(info.individualDeletedMessages),
        _bitmaps(info.individualDeletedMessageRanges),
        _batches(info.batchedEntryDeletionIndexInfo),
        properties,
    )
    return position, parts


def encode_inline_record(
    state: AckState,
    position_properties: dict[str, int],
    cursor_properties: dict[str, str],
    ranges_max: int,
    batches_max: int,
) -> bytes:
    """The record in the metadata store with the position inline, up to this many ranges."""
    info = _cursor_info(INLINE, state.mark_delete, cursor_properties)
    _fill_ranges(info.individualDeletedMessages, state.acked_ranges(ranges_max))
    _fill_batches(info, state.batches()[:batches_max], BATCH_WORDS_MAX_INLINE)
    for name, value in position_properties.items():
        info.properties.add(name=name, value=value)
    return info.SerializeToString()


def encode_pointer_record(
    cursor_ledger_id: int, mark_delete: Position, cursor_properties: dict[str, str]
) -> bytes:
    """The record in the metadata store when the position is in a cursor ledger. It repeats the
    mark-delete position in case the ledger is lost."""
    return _cursor_info(cursor_ledger_id, mark_delete, cursor_properties).SerializeToString()


def _cursor_info(
    cursor_ledger_id: int, mark_delete: Position, cursor_properties: dict[str, str]
) -> formats.ManagedCursorInfo:
    info = formats.ManagedCursorInfo(
        cursorsLedgerId=cursor_ledger_id,
        markDeleteLedgerId=mark_delete[0],
        markDeleteEntryId=mark_delete[1],
    )
    for key, text in cursor_properties.items():
        info.cursorProperties.add(name=key, value=text)
    return info


def decode_cursor_record(data: bytes, path: str) -> CursorRecord:
    """Decode the record at this path of the metadata store. Raises: MetadataError."""
    info = formats.ManagedCursorInfo()
    parse_record(info, data, path)
    position: CursorPosition | None = None
    has_position = info.HasField("markDeleteLedgerId")
    if has_position is not info.HasField("markDeleteEntryId") or (
        not has_position and info.cursorsLedgerId == INLINE
    ):
        raise damaged(path, "it has no position")
    if info.cursorsLedgerId < INLINE:
        raise damaged(path, f"the cursor's ledger is {info.cursorsLedgerId}")
    if has_position:
        position = CursorPosition(
            (info.markDeleteLedgerId, info.markDeleteEntryId),
            _ranges(info.individualDeletedMessages),
            [],
            _batches(info.batchedEntryDeletionIndexInfo),
            {one.name: one.value for one in info.properties},
        )
    properties = {one.name: one.value for one in info.cursorProperties}
    attached = properties.get(ATTACHED_LEDGER_PROPERTY)
    if attached is not None and not (attached.isascii() and attached.isdecimal()):
        raise damaged(path, f"{ATTACHED_LEDGER_PROPERTY} is {attached}")
    return CursorRecord(info.cursorsLedgerId, position, properties)


def _fill_words(info: formats.PositionInfo, state: AckState, size_bytes_max: int) -> list[bytes]:
    """Bit words per ledger. Those that do not fit into the entry are returned as serialised
    parts."""
    parts: list[formats.PositionInfo] = []
    target = info
    room = size_bytes_max // 2
    for ledger_id in sorted(state.acked_bitmaps()):
        words = bitmap_words(state.acked_bitmaps()[ledger_id])
        size = len(words) * _WORD_SIZE_BYTES_MAX
        if size > room:
            target = formats.PositionInfo(ledgerId=info.ledgerId, entryId=info.entryId)
            target.properties.add(name=PARTS_PROPERTY, value=IS_PART)
            parts.append(target)
            room = size_bytes_max
        target.individualDeletedMessageRanges.add(key=ledger_id, values=words)
        room -= size
    return [part.SerializeToString() for part in parts]


def _fill_ranges(
    target: RepeatedCompositeFieldContainer[formats.MessageRange], ranges: Iterable[AckedRange]
) -> None:
    for lower, upper in ranges:
        one = target.add()
        one.lowerEndpoint.ledgerId, one.lowerEndpoint.entryId = lower
        one.upperEndpoint.ledgerId, one.upperEndpoint.entryId = upper


def _fill_batches(
    target: formats.PositionInfo | formats.ManagedCursorInfo,
    batches: Iterable[tuple[Position, int]],
    words_max: int,
) -> None:
    """Batches without room are left out: their messages are delivered again."""
    for (ledger_id, entry_id), remaining in batches:
        words = to_words(remaining)
        words_max -= len(words)
        if words_max < 0:
            return
        one = target.batchedEntryDeletionIndexInfo.add()
        one.position.ledgerId = ledger_id
        one.position.entryId = entry_id
        one.deleteSet.extend(words)


def _ranges(source: RepeatedCompositeFieldContainer[formats.MessageRange]) -> list[AckedRange]:
    return [
        (
            (one.lowerEndpoint.ledgerId, one.lowerEndpoint.entryId),
            (one.upperEndpoint.ledgerId, one.upperEndpoint.entryId),
        )
        for one in source
    ]


def _bitmaps(source: Iterable[formats.LongListMap]) -> list[tuple[int, BitMap]]:
    return [(one.key, words_bitmap(one.values)) for one in source]


def _batches(
    source: RepeatedCompositeFieldContainer[formats.BatchedEntryDeletionIndexInfo],
) -> list[tuple[Position, int]]:
    return [
        ((one.position.ledgerId, one.position.entryId), from_words(one.deleteSet)) for one in source
    ]
