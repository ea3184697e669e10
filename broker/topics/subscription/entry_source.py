"""The source of a dispatcher's entries: forward reading, and single replays.

Both answer from memory or report that a read is needed. `fill` then performs that read, once. The
first holds at most one read's worth of entries. The second holds as much again of what it found in
memory while it has to wait for the rest, so that each entry is asked for, and counted, once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from broker.ground.entry import Entry
    from broker.topics.subscription.ports import LedgerPort
    from protocol.position import Position

GAP_ENTRIES_MAX: Final = 64
"""Entries between two that are read together. To read one alone costs about as much as to read a
hundred more with it."""
SPAN_ENTRIES_MAX: Final = 5_000
"""Of such a read."""


@final
class EntrySource:
    """New entries in order, each once, from `position` on."""

    __slots__ = ("_buffer", "_generation", "_ledger", "_wanted", "position")

    def __init__(self, ledger: LedgerPort, position: Position) -> None:
        self._ledger = ledger
        self._buffer: list[Entry] = []
        self._generation = 0
        self._wanted = (1, 1)
        self.position = position
        """The next entry to be taken is the first one at or after it."""

    def take(self, count_max: int, bytes_max: int) -> list[Entry] | None:
        """Up to `count_max` entries; [] at the tail; None: call `fill`, then ask again."""
        entries: list[Entry] | None
        if self._buffer:
            entries = self._buffer[:count_max]
            self._buffer = self._buffer[count_max:]
        else:
            entries = self._ledger.read_nowait(self.position, count_max, bytes_max)
            if not entries:
                if entries is None:
                    self._wanted = (count_max, bytes_max)
                return entries
        ledger_id, entry_id = entries[-1].position
        self.position = (ledger_id, entry_id + 1)
        return entries

    def give_back(self, entries: list[Entry]) -> None:
        """Return the last entries taken, in order. They come first next time."""
        if entries:
            self._buffer = entries + self._buffer
            self.position = entries[0].position

    def skip_to(self, position: Position) -> None:
        """Skip entries before the position."""
        if position > self.position:
            self.rewind(position)

    def rewind(self, position: Position) -> None:
        """Continue from another position and discard a read in progress."""
        self._generation += 1
        self._buffer = []
        self.position = position

    async def fill(self) -> None:
        """Read the entries that the last `take` did not find in memory.

        Raises: BrokerError: storage cannot give it now.
        """
        generation = self._generation
        count_max, bytes_max = self._wanted
        entries = await self._ledger.read(self.position, count_max, bytes_max)
        if generation == self._generation and not self._buffer:
            self._buffer = entries


@final
class ReplaySource:
    """Entries by position, for redelivery."""

    __slots__ = ("_bytes_max", "_filled", "_ledger", "_read", "_wanted")

    def __init__(self, ledger: LedgerPort, bytes_max: int) -> None:
        self._ledger = ledger
        self._bytes_max = bytes_max
        self._read: dict[Position, Entry | None] = {}
        self._wanted: list[tuple[Position, int]] = []
        self._filled = False

    def get(self, positions: Sequence[Position]) -> list[Entry | None] | None:
        """The entries of ascending positions, None for one that no longer exists.

        After a `fill` the list may be shorter (never empty): the rest did not fit into one read.
        None: call `fill`, then ask again.
        """
        result: list[Entry | None] = []
        wanted: list[tuple[Position, int]] = []
        known = self._read
        kept: dict[Position, Entry | None] = {}
        room_bytes = self._bytes_max
        for first, count in runs(positions, known):
            ledger_id, entry_id = first
            if first in known:
                picked = [known[first]]
            else:
                got = self._ledger.read_nowait(first, count, self._bytes_max)
                picked = [] if got is None else _pick_covered(got, first, count)
            if not wanted:
                result.extend(picked)
            for at, entry in enumerate(picked):
                if room_bytes > 0:
                    kept[(ledger_id, entry_id + at)] = entry
                    room_bytes -= 0 if entry is None else len(entry.data)
            if len(picked) < count:
                wanted.append(((ledger_id, entry_id + len(picked)), count - len(picked)))
        if wanted and not (self._filled and result):
            self._wanted = wanted
            self._read = kept
            self._filled = False
            return None
        self._filled = False
        return result

    def clear(self) -> None:
        """Drop entries read ahead."""
        self._read = {}
        self._filled = False

    async def fill(self) -> None:
        """Read the entries that the last `get` did not find, up to the size of one read. Those
        that lie close together are read at once.

        Raises: BrokerError: storage cannot give it now.
        """
        found = self._read
        left = self._bytes_max
        wanted = self._wanted
        may_span = True
        for at, ((ledger_id, entry_id), count) in enumerate(wanted):
            end = entry_id + count
            if (ledger_id, end - 1) in found:
                continue
            while entry_id < end and left > 0:
                first = (ledger_id, entry_id)
                span = (_end_of_span(wanted, at) if may_span else end) - entry_id
                entries = await self._ledger.read(first, span, left)
                left_of_run = end - entry_id
                for entry in _pick_covered(entries[:left_of_run], first, left_of_run):
                    found[(ledger_id, entry_id)] = entry
                    entry_id += 1
                    left -= 0 if entry is None else len(entry.data)
                if span > left_of_run:
                    others = _take_others(entries, wanted, at + 1, found)
                    may_span = others > 0  # else the entries in between are large
                    left -= others
        self._read = found
        self._filled = True


def runs(
    positions: Sequence[Position], apart: dict[Position, Entry | None]
) -> list[tuple[Position, int]]:
    """Ascending positions as (first, count) of consecutive ones. Positions in `apart` stand
    alone."""
    result: list[tuple[Position, int]] = []
    first: Position | None = None
    count = 0
    for position in positions:
        alone = position in apart
        if first is not None and not alone and position == (first[0], first[1] + count):
            count += 1
            continue
        if first is not None:
            result.append((first, count))
        first, count = position, 1
        if alone:
            result.append((position, 1))
            first = None
    if first is not None:
        result.append((first, count))
    return result


def _end_of_span(wanted: list[tuple[Position, int]], at: int) -> int:
    """The end of what is read together with a run: the runs that lie close after it."""
    (ledger_id, entry_id), count = wanted[at]
    end = entry_id + count
    most = entry_id + SPAN_ENTRIES_MAX
    for (other_id, other), others in wanted[at + 1 :]:
        if other_id != ledger_id or other - end > GAP_ENTRIES_MAX or other + others > most:
            break
        end = other + others
    return end


def _take_others(
    entries: list[Entry],
    wanted: list[tuple[Position, int]],
    at: int,
    found: dict[Position, Entry | None],
) -> int:
    """Put the whole runs from `at` on that a read contains. Returns their bytes."""
    size_bytes = 0
    first_id = entries[0].position[1] if entries else 0
    for (ledger_id, entry_id), count in wanted[at:]:
        offset = entry_id - first_id
        if offset < 0 or offset + count > len(entries):
            break
        run = entries[offset : offset + count]
        if run[0].position != (ledger_id, entry_id) or run[-1].position[1] != entry_id + count - 1:
            break
        for entry in run:
            found[entry.position] = entry
            size_bytes += len(entry.data)
    return size_bytes


def _covers(entries: list[Entry], first: Position, count: int) -> bool:
    """Whether a read reached the end of the run, so that missing entries do not exist."""
    return not entries or entries[-1].position >= (first[0], first[1] + count - 1)


def _pick_covered(entries: list[Entry], first: Position, count: int) -> list[Entry | None]:
    """`_pick`, up to where the read got."""
    if len(entries) < count and not _covers(entries, first, count):
        count = entries[-1].position[1] - first[1] + 1
    return _pick(entries, first, count)


def _pick(entries: list[Entry], first: Position, count: int) -> list[Entry | None]:
    """The entries of the run, None where one is missing."""
    by_position = {entry.position: entry for entry in entries}
    return [by_position.get((first[0], first[1] + offset)) for offset in range(count)]
