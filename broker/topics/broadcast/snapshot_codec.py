"""The stored form of virtual cursors: chunks of slots, each with its names and its positions.

Pure codec. Slots are stored by chunks of `CHUNK_SLOTS`. A chunk has two parts that change at
different times: names (with the time until which a cursor is kept) and positions. An entry of the
snapshot ledger is one of

    part    "VBC1" "D" <bytes of a compressed blob>
    commit  "VBC1" "C" <u32 number> ( <u8 kind> <u32 chunk> <u64 first entry> <u32 parts> )*

all little endian. A blob is cut into parts below the entry size limit, consecutive in the ledger. A
commit lists the place of the newest blob of every chunk; entries after the last commit do not
count.

Blobs (zlib; a position is <i64 ledger> <i64 entry>):

    names      <u32 n> slots; per slot <u32 size of the name>, NOBODY if none; per slot <u64 wall
               time in seconds until which it is kept>, 0: was connected; the names, UTF-8
    positions  <u32 n> slots; <u32 n> n positions, ascending; per slot <u32 index into them>,
               NOBODY if none;
               <u32 consumers that acknowledged out of order> and for each: <u32 slot in chunk>
               <u32 n> n ranges of acknowledged entries (first and last position)
               <u32 n> n times: position, <u32 size> and bits left of the batch

Positions are written as ledger and entry, never as ordinals, which mean nothing after a restart.
"""

from __future__ import annotations

import zlib
from array import array
from dataclasses import dataclass, field
from struct import Struct
from typing import TYPE_CHECKING, Final, final

from broker.topics.broadcast.virtual_cursors import CHUNK_SHIFT, CHUNK_SLOTS, NEVER, Ragged

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyroaring import BitMap64

    from broker.topics.broadcast.virtual_cursors import VirtualCursors
    from protocol.position import Position

NAMES: Final = 1
POSITIONS: Final = 2
ChunkKey = tuple[int, int]
"""(NAMES or POSITIONS, number of the chunk)."""
ChunkPlace = tuple[int, int]
"""(entry id of the first part, number of parts)."""

NOBODY: Final = 2**32 - 1
RANGES_MAX: Final = 1_000
"""Ranges stored of one consumer. Those after them are delivered again after a restart."""
_MAGIC: Final = b"VBC1"
_PART: Final = _MAGIC + b"D"
_COMMIT: Final = _MAGIC + b"C"
_U32: Final = Struct("<I")
_POSITION: Final = Struct("<qq")
_PLACE: Final = Struct("<BIQI")


class SnapshotDamaged(Exception):
    """The data read is not a snapshot."""


@final
@dataclass(slots=True)
class StoredNames:
    """(name, deadline as wall seconds or 0) by slot in the chunk; None: the slot is free."""

    rows: list[tuple[str, int] | None] = field(default_factory=list)


@final
@dataclass(slots=True)
class StoredPositions:
    """By slot in the chunk."""

    rows: list[Position | None] = field(default_factory=list)
    ranges: dict[int, list[tuple[Position, Position]]] = field(default_factory=dict)
    batches: dict[int, list[tuple[Position, int]]] = field(default_factory=dict)


# ---- Entries -------------------------------------------------------------------------------------


def cut(blob: bytes, size_bytes_max: int) -> list[bytes]:
    """The entries that hold a blob."""
    step = size_bytes_max - len(_PART)
    return [_PART + blob[start : start + step] for start in range(0, max(1, len(blob)), step)]


def join_parts(entries: list[bytes]) -> bytes:
    """The blob in the entries. Raises: SnapshotDamaged."""
    if not all(entry.startswith(_PART) for entry in entries):
        raise SnapshotDamaged("an entry that should be part of a chunk is not")
    return b"".join(entry[len(_PART) :] for entry in entries)


def encode_commit(places: Mapping[ChunkKey, ChunkPlace]) -> bytes:
    """The entry that makes all entries before it count."""
    rows = [
        _PLACE.pack(kind, chunk, first, parts) for (kind, chunk), (first, parts) in places.items()
    ]
    return b"".join((_COMMIT, _U32.pack(len(rows)), *rows))


def decode_commit(entry: bytes) -> dict[ChunkKey, ChunkPlace] | None:
    """The places of the chunks; None when the entry is not a commit."""
    if not entry.startswith(_COMMIT):
        return None
    offset = len(_COMMIT) + _U32.size
    places = {}
    for _ in range(_U32.unpack_from(entry, len(_COMMIT))[0]):
        kind, chunk, first, parts = _PLACE.unpack_from(entry, offset)
        places[kind, chunk] = (first, parts)
        offset += _PLACE.size
    return places


# ---- Names ---------------------------------------------------------------------------------------


def encode_names(cursors: VirtualCursors, chunk: int, now: float, wall_ms: int) -> bytes:
    """The names of a chunk, without those that end with their connection."""
    first = chunk << CHUNK_SHIFT
    last = first + CHUNK_SLOTS
    encoded = [
        name.encode("utf-8", "surrogatepass") if name is not None and durable else None
        for name, durable in zip(
            cursors.names[first:last], cursors.durable[first:last], strict=True
        )
    ]
    sizes = array("I", [NOBODY if name is None else len(name) for name in encoded])
    kept = array("Q", bytes(8 * len(encoded)))
    for slot, deadline in cursors.deadlines_between(first, last):
        if deadline != NEVER:
            kept[slot - first] = max(1, int(wall_ms / 1000 + deadline - now))
    names = b"".join([name for name in encoded if name is not None])
    return zlib.compress(
        b"".join((_U32.pack(len(encoded)), sizes.tobytes(), kept.tobytes(), names)), 1
    )


def decode_names(blob: bytes) -> StoredNames:
    """Raises: SnapshotDamaged."""
    data = _Reader(_inflate(blob))
    slots = data.number()
    sizes, kept = array("I"), array("Q")
    sizes.frombytes(data.take(4 * slots))
    kept.frombytes(data.take(8 * slots))
    names = StoredNames()
    try:
        for size, deadline in zip(sizes, kept, strict=True):
            if size == NOBODY:
                names.rows.append(None)
            else:
                name = data.take(size).decode("utf-8", "surrogatepass")
                names.rows.append((name, deadline))
    except UnicodeDecodeError as error:
        raise SnapshotDamaged(f"a name cannot be read: {error}") from error
    return names


# ---- Positions -----------------------------------------------------------------------------------


def encode_positions(
    cursors: VirtualCursors, chunk: int, position_of: Callable[[int], Position]
) -> bytes:
    """The positions of a chunk."""
    first = chunk << CHUNK_SHIFT
    acked = cursors.acked[first : first + CHUNK_SLOTS]
    distinct = sorted(set(acked) - {-1})
    place = {ordinal: at for at, ordinal in enumerate(distinct)}
    place[-1] = NOBODY
    parts = [_U32.pack(len(distinct))]
    parts += [_POSITION.pack(*position_of(ordinal)) for ordinal in distinct]
    parts.append(array("I", [place[ordinal] for ordinal in acked]).tobytes())
    ragged = []
    if cursors.ragged_count:
        for offset in range(len(acked)):
            state = cursors.ragged_of(first + offset)
            if state is not None:
                ragged.append(_encode_ragged(offset, state, position_of))
    parts.append(_U32.pack(len(ragged)))
    return zlib.compress(b"".join((_U32.pack(len(acked)), *parts, *ragged)), 1)


def _encode_ragged(offset: int, state: Ragged, position_of: Callable[[int], Position]) -> bytes:
    ranges = _ranges(state.holes)
    parts = [_U32.pack(offset), _U32.pack(len(ranges))]
    for low, high in ranges:
        parts.append(_POSITION.pack(*position_of(low)) + _POSITION.pack(*position_of(high)))
    batches = sorted(state.batches.items())[:RANGES_MAX]
    parts.append(_U32.pack(len(batches)))
    for ordinal, left in batches:
        bits = left.to_bytes((left.bit_length() + 7) // 8, "little")
        parts += (_POSITION.pack(*position_of(ordinal)), _U32.pack(len(bits)), bits)
    return b"".join(parts)


def _ranges(bits: BitMap64) -> list[tuple[int, int]]:
    """Runs of set bits, the first `RANGES_MAX` of them."""
    ranges: list[tuple[int, int]] = []
    if not bits:
        return ranges
    end = bits.max()
    at: int | None = bits.min()
    while at is not None and len(ranges) < RANGES_MAX:
        last = _last_of_run(bits, at)
        ranges.append((at, last))
        at = bits.next_set_bit(last + 1) if last < end else None
    return ranges


def _last_of_run(bits: BitMap64, first: int) -> int:
    last, step = first, 1
    while bits.contains_range(last + 1, last + step + 1):
        last += step
        step *= 2
    while step > 1:
        step //= 2
        if bits.contains_range(last + 1, last + step + 1):
            last += step
    return last


def decode_positions(blob: bytes) -> StoredPositions:
    """Raises: SnapshotDamaged."""
    data = _Reader(_inflate(blob))
    stored = StoredPositions()
    slots = data.number()
    distinct: list[Position] = [data.position() for _ in range(data.number())]
    indexes = array("I")
    indexes.frombytes(data.take(4 * slots))
    for index in indexes:
        if index != NOBODY and index >= len(distinct):
            raise SnapshotDamaged(f"position {index} of {len(distinct)} is referred to")
        stored.rows.append(None if index == NOBODY else distinct[index])
    for _ in range(data.number()):
        offset = data.number()
        stored.ranges[offset] = [(data.position(), data.position()) for _ in range(data.number())]
        stored.batches[offset] = [
            (data.position(), int.from_bytes(data.take(data.number()), "little"))
            for _ in range(data.number())
        ]
    return stored


def ragged_from(
    ranges: list[tuple[Position, Position]],
    batches: list[tuple[Position, int]],
    ordinal_of: Callable[[Position], int],
) -> Ragged:
    """Decode the state of a consumer that acknowledged out of order."""
    ragged = Ragged()
    for low, high in ranges:
        ragged.holes.add_range(ordinal_of(low), ordinal_of(high) + 1)
    for position, left in batches:
        ragged.batches[ordinal_of(position)] = left
    return ragged


@final
class _Reader:
    """Decodes a blob field by field."""

    __slots__ = ("_data", "_offset")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._offset = 0

    def take(self, size: int) -> bytes:
        start = self._offset
        self._offset = start + size
        if self._offset > len(self._data):
            raise SnapshotDamaged("a chunk is cut off")
        return self._data[start : self._offset]

    def number(self) -> int:
        number: int = _U32.unpack(self.take(4))[0]
        return number

    def position(self) -> Position:
        ledger_id, entry_id = _POSITION.unpack(self.take(16))
        return (ledger_id, entry_id)


def _inflate(blob: bytes) -> bytes:
    try:
        return zlib.decompress(blob)
    except zlib.error as error:
        raise SnapshotDamaged(f"a chunk cannot be decompressed: {error}") from error
