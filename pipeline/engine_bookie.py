"""Reads slices straight from the bookies, so that a backfill costs the broker nothing.

Nothing is fenced, and every entry's digest is verified (`pipeline/bookies`). Only where the stored
bytes do not tell what a consumer would see, the rest of the slice is read through the broker:
entries of transactions, chunked messages, ledgers that were offloaded.
"""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Final, final

from pipeline import engine_broker
from pipeline.admin import Admin, NotFound
from pipeline.bookies.errors import (
    BookiesNotReachable,
    BookieUnavailable,
    EntryMissing,
    LedgerMissing,
)
from pipeline.bookies.layouts import ledger_layouts
from pipeline.bookies.reader import BookieReader, ReaderConfig
from pipeline.compression import decompress
from pipeline.data_loss import report_loss
from pipeline.decode import StoredEntry, messages_of, needs_broker, parse

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pipeline.decode import Message
    from pipeline.options import SourceOptions
    from pipeline.plan import Slice
    from protocol.bookkeeper.ledger_layout import LedgerLayout

RETRY_SECONDS: Final = 0.5
ANSWER_SECONDS_MAX: Final = 10.0
_log = logging.getLogger(__name__)


@final
class BookieEngine:
    """The connections and ledger layouts of one task. Use it as a context manager."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._layouts: dict[str, dict[int, LedgerLayout]] = {}
        seconds = min(options.poll_timeout_ms / 1000, ANSWER_SECONDS_MAX)
        self._reader = BookieReader(
            ReaderConfig(timeout_seconds=seconds, answer_timeout_seconds=seconds / 2)
        )

    def __enter__(self) -> BookieEngine:
        return self

    def __exit__(self, *_: object) -> None:
        self._reader.close()

    def read_slice(self, part: Slice) -> Iterator[list[Message]]:
        """The messages of a slice, entry by entry, in order.

        Raises: DataLost, Unreadable, pipeline.bookies.errors.BookieReadError, BookiesNotReachable.
        """
        try:
            layout = self._layout(part)
        except BookiesNotReachable:
            if self._options.read_engine == "bookie":
                raise
            layout = None
        if layout is None:
            yield from engine_broker.read_slice(self._options, part)
            return
        next_entry = part.first_entry
        deadline = self._deadline()
        while next_entry <= part.last_entry:
            try:
                for entry in self._entries(layout, next_entry, part.last_entry):
                    metadata, payload = parse(entry)
                    if needs_broker(metadata):
                        rest = replace(part, first_entry=entry.entry_id)
                        yield from engine_broker.read_slice(self._options, rest)
                        return
                    next_entry = entry.entry_id + 1
                    deadline = self._deadline()
                    yield messages_of(entry, metadata, payload, decompress)
            except (LedgerMissing, EntryMissing) as error:
                report_loss(self._options, f"{part.topic}: {error}")
                return
            except BookieUnavailable as error:
                if time.monotonic() > deadline:
                    raise
                _log.warning("%s: %s; trying again", part.topic, error)
                time.sleep(RETRY_SECONDS)

    def _deadline(self) -> float:
        return time.monotonic() + self._options.poll_timeout_ms / 1000

    def _entries(self, layout: LedgerLayout, first: int, last: int) -> Iterator[StoredEntry]:
        for run_first, payloads in self._reader.read(layout, first, last):
            for index, data in enumerate(payloads):
                yield StoredEntry(layout.ledger_id, run_first + index, data)

    def _layout(self, part: Slice) -> LedgerLayout | None:
        """None: the ledger is elsewhere (offloaded), or gone; the broker engine finds out which.

        Raises: BookiesNotReachable.
        """
        if part.topic not in self._layouts:
            admin = Admin(self._options.connection)
            try:
                stats = admin.internal_stats(part.topic, metadata=True)
            except NotFound:
                return None
            self._layouts[part.topic] = ledger_layouts(stats)
        return self._layouts[part.topic].get(part.ledger_id)
