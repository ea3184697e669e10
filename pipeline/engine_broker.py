"""Reads slices through the broker: any topic, any entry that a reader may see.

A lost connection is taken up again at the entry that is due, so a restart of the broker costs time,
not rows; a broker that stays away for `pollTimeoutMs` is an error, because it proves nothing about
what it has stored. An entry that a broker does not send for so long, and what was deleted between
planning and reading, is data loss, which `failOnDataLoss` makes an error. Otherwise reading goes on
after it: after twice as many entries each time that brings none, so that damage costs at most as
many whole entries again, and a long gap not a timeout for each. Time in which no rows were asked
for does not count.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, final

import pyarrow

from pipeline.admin import Admin, NotFound
from pipeline.broker_connection import BrokerAway, ConnectionLost, EntryReader
from pipeline.chunks import ChunkBuffer, ChunkStartMissing, Whole
from pipeline.data_loss import report_loss
from pipeline.decode import StoredEntry, is_chunk, parse, rows_of
from pipeline.plan import back_from
from protocol.metadata import message_count

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pipeline.options import SourceOptions
    from pipeline.plan import Slice
    from pipeline.rows import Rows

RECONNECT_SECONDS: Final = 0.2
LOOK_BACK_ENTRIES: Final = (64, 1024, 16384)
"""How far before a slice the first chunk of a message is looked for, step by step."""


def read_slice(options: SourceOptions, part: Slice) -> Iterator[Rows]:
    """The messages of a slice, entry by entry, in order.

    Raises: DataLost, pipeline.decode.Unreadable, pipeline.broker_connection.Refused and BrokerAway.
    """
    yield from _SliceReader(options, part).messages()


@final
class _SliceReader:
    def __init__(self, options: SourceOptions, part: Slice) -> None:
        self._options = options
        self._part = part
        self._next = part.first_entry
        self._to_skip = 1
        self._chunks = ChunkBuffer()
        self._progress_at = time.monotonic()

    def messages(self) -> Iterator[Rows]:
        options = self._options
        while self._next <= self._part.last_entry:
            try:
                yield from self._through_one_connection()
            except ConnectionLost as error:
                if self._is_late():
                    raise BrokerAway(
                        f"{self._part.topic}: no connection in {options.poll_timeout_ms} ms "
                        f"({error}): start the broker, or give it longer with pollTimeoutMs"
                    ) from error
                time.sleep(RECONNECT_SECONDS)

    def _through_one_connection(self) -> Iterator[Rows]:
        part, connection = self._part, self._options.connection
        with EntryReader(connection, part.topic, part.ledger_id, self._next) as reader:
            under_way = self._asked_for(reader, self._next, 0)
            half = self._options.receiver_queue_size // 2
            while self._next <= part.last_entry:
                for entry in reader.entries(self._seconds_left()):
                    if (entry.ledger_id, entry.entry_id) > (part.ledger_id, part.last_entry):
                        self._passed(entry)
                        return
                    if (entry.ledger_id, entry.entry_id) < (part.ledger_id, self._next):
                        continue
                    metadata, payload = parse(entry)
                    under_way -= message_count(metadata)
                    if under_way <= half:
                        # Before the entry counts as read: here, too, the connection may be lost.
                        under_way = self._asked_for(reader, entry.entry_id + 1, under_way)
                    if is_chunk(metadata):
                        rows = self._chunk(entry)
                    else:
                        rows = rows_of(entry, metadata, payload, decompress)
                    self._next = entry.entry_id + 1
                    self._to_skip = 1
                    if rows is not None:
                        yield rows
                    self._progress_at = time.monotonic()
                    if self._next > part.last_entry:
                        return
                if self._is_late():
                    self._skip()
                    return

    def _asked_for(self, reader: EntryReader, first: int, under_way: int) -> int:
        """Ask for more messages, from the entry `first` on, when half of them have come, so that
        these are on their way while others are used; how many are under way then. A batch takes as
        many permits as it has messages, so they may be overdrawn."""
        wanted = min(self._part.last_entry - first + 1, self._options.receiver_queue_size)
        if wanted <= 0 or under_way > wanted // 2:
            return under_way
        reader.flow(wanted - under_way)
        return wanted

    def _passed(self, entry: StoredEntry) -> None:
        """The broker is past the slice already: missing entries cannot be seen, or are gone."""
        part, first_missing = self._part, self._next
        self._next = part.last_entry + 1
        if entry.ledger_id == part.ledger_id:
            return
        try:
            held = {row.ledger_id for row in Admin(self._options.connection).ledgers(part.topic)}
        except NotFound:
            held = set()
        if part.ledger_id not in held:
            report_loss(
                self._options,
                f"{part.topic}: entries {part.ledger_id}:{first_missing} to {part.ledger_id}:"
                f"{part.last_entry} are gone, the first one held is {entry.ledger_id}:"
                f"{entry.entry_id}",
            )

    def _seconds_left(self) -> float:
        passed = time.monotonic() - self._progress_at
        return max(self._options.poll_timeout_ms / 1000 - passed, 0.01)

    def _is_late(self) -> bool:
        passed = time.monotonic() - self._progress_at
        return passed * 1000 >= self._options.poll_timeout_ms

    def _skip(self) -> None:
        """Give up the entry that is due. The next connection begins after it."""
        part, options = self._part, self._options
        last = min(self._next + self._to_skip - 1, part.last_entry)
        name = f"{part.ledger_id}:{self._next}"
        if last > self._next:
            name += f" to {part.ledger_id}:{last}"
        seconds = options.poll_timeout_ms / 1000
        report_loss(options, f"{part.topic}: entry {name} did not arrive in {seconds:g} s")
        self._next = last + 1
        self._to_skip *= 2
        self._progress_at = time.monotonic()

    def _chunk(self, entry: StoredEntry) -> Rows | None:
        metadata, payload = parse(entry)
        try:
            whole = self._chunks.add(metadata, payload, (entry.ledger_id, entry.entry_id))
        except ChunkStartMissing:
            if metadata.chunk_id < metadata.num_chunks_from_msg - 1:
                return None  # Its last chunk decides whether the message is ours.
            whole = self._look_back(entry)
        if whole is None:
            return None
        return rows_of(entry, metadata, whole.payload, decompress, whole.first_chunk)

    def _look_back(self, last: StoredEntry) -> Whole | None:
        """The chunks of a message that began before the slice, maybe in another ledger."""
        wanted, _ = parse(last)
        ledgers = Admin(self._options.connection).ledgers(self._part.topic)
        tried = None
        for distance in LOOK_BACK_ENTRIES:
            first = back_from(last.ledger_id, last.entry_id, distance, ledgers)
            if first == tried:
                break
            tried = first
            buffer = ChunkBuffer()
            try:
                for entry in _raw_entries(self._options, self._part.topic, first, last, distance):
                    metadata, payload = parse(entry)
                    if is_chunk(metadata) and metadata.uuid == wanted.uuid:
                        position = (entry.ledger_id, entry.entry_id)
                        whole = buffer.add(metadata, payload, position)
                        if whole is not None:
                            return whole
            except ChunkStartMissing:
                continue
        report_loss(
            self._options,
            f"{self._part.topic}: the first chunks of message {last.ledger_id}:{last.entry_id} "
            f"are not among the {LOOK_BACK_ENTRIES[-1]} entries before it",
        )
        return None


def _raw_entries(
    options: SourceOptions, topic: str, first: tuple[int, int], last: StoredEntry, distance: int
) -> Iterator[StoredEntry]:
    """The entries from `first` to `last` over one connection, without retrying."""
    end = (last.ledger_id, last.entry_id)
    with EntryReader(options.connection, topic, *first) as reader:
        reader.flow(distance + 1)
        for entry in reader.entries(options.poll_timeout_ms / 1000):
            if (entry.ledger_id, entry.entry_id) > end:
                return
            more = message_count(parse(entry)[0]) - 1
            if more > 0:  # A batch has taken the permits of other entries.
                reader.flow(more)
            yield entry
            if (entry.ledger_id, entry.entry_id) == end:
                return


def decompress(codec: str, payload: bytes | memoryview, size_bytes: int) -> bytes:
    """A payload, by Arrow, which brings the codecs along. `codec` is Arrow's name.

    Raises: OSError, ValueError: the payload is damaged.
    """
    content: bytes = pyarrow.decompress(
        payload, decompressed_size=size_bytes, codec=codec, asbytes=True
    )
    return content
