"""Reads slices straight from the bookies, so that a backfill costs the broker nothing.

Nothing is fenced, and every entry's digest is verified (`pipeline/bookies`). Only where the stored
bytes do not tell what a consumer would see, the rest of the slice is read through the broker:
entries of transactions, chunked messages, ledgers that were offloaded. `readEngine=auto` does so,
too, when the bookies do not answer; an entry without an undamaged copy is an error for any engine.
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
    EntryDamaged,
    EntryMissing,
    LedgerMissing,
)
from pipeline.bookies.layouts import ledger_layouts
from pipeline.bookies.reader import BookieReader, ReaderConfig
from pipeline.data_loss import report_loss
from pipeline.decode import StoredEntry, Unreadable, needs_broker, parse, rows_of
from pipeline.engine_broker import decompress

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pipeline.options import SourceOptions
    from pipeline.plan import Slice
    from pipeline.rows import Rows
    from protocol.bookkeeper.ledger_layout import LedgerLayout

RETRY_SECONDS: Final = 0.5
ANSWER_SECONDS_MAX: Final = 10.0
AUTO_ANSWER_SECONDS_MAX: Final = 3.0
"""With `readEngine=auto` the broker is there, too: no need to wait long."""
_log = logging.getLogger(__name__)


@final
class BookieEngine:
    """The connections and ledger layouts of one task. Use it as a context manager."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._layouts: dict[str, dict[int, LedgerLayout]] = {}
        self._is_auto = options.read_engine == "auto"
        self._are_bookies_away = False
        longest = AUTO_ANSWER_SECONDS_MAX if self._is_auto else ANSWER_SECONDS_MAX
        seconds = min(options.poll_timeout_ms / 1000, longest)
        self._reader = BookieReader(
            ReaderConfig(timeout_seconds=seconds, answer_timeout_seconds=seconds / 2),
            options.bookie_addresses,
        )

    def __enter__(self) -> BookieEngine:
        return self

    def __exit__(self, *_: object) -> None:
        self._reader.close()

    def read_slice(self, part: Slice) -> Iterator[Rows]:
        """The messages of a slice, entry by entry, in order.

        Raises: DataLost, Unreadable, BookiesNotReachable.
        """
        layout = None if self._are_bookies_away else self._layout(part)
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
                        yield from self._through_broker(part, entry.entry_id)
                        return
                    next_entry = entry.entry_id + 1
                    yield rows_of(entry, metadata, payload, decompress)
                    deadline = self._deadline()
            except LedgerMissing as error:
                report_loss(self._options, f"{part.topic}: {error}")
                return
            except EntryMissing as error:
                report_loss(self._options, f"{part.topic}: {error}")
                next_entry = error.entry_id + 1
            except EntryDamaged as error:
                raise Unreadable(f"{part.topic}: {error}") from error
            except BookieUnavailable as error:
                if self._is_auto:
                    _log.warning("%s: %s; reading through the broker", part.topic, error)
                    self._are_bookies_away = True
                    yield from self._through_broker(part, next_entry)
                    return
                if time.monotonic() > deadline:
                    raise Unreadable(
                        f"{part.topic}: {error}; readEngine=broker or auto reads through the broker"
                    ) from error
                _log.warning("%s: %s; trying again", part.topic, error)
                time.sleep(RETRY_SECONDS)

    def _through_broker(self, part: Slice, first_entry: int) -> Iterator[Rows]:
        yield from engine_broker.read_slice(self._options, replace(part, first_entry=first_entry))

    def _deadline(self) -> float:
        return time.monotonic() + self._options.poll_timeout_ms / 1000

    def _entries(self, layout: LedgerLayout, first: int, last: int) -> Iterator[StoredEntry]:
        for run_first, payloads in self._reader.read(layout, first, last):
            for index, data in enumerate(payloads):
                yield StoredEntry(layout.ledger_id, run_first + index, data)

    def _layout(self, part: Slice) -> LedgerLayout | None:
        """None: the ledger is elsewhere (offloaded; with `auto` bookies without addresses), or
        gone; the broker engine finds out which.

        Raises: BookiesNotReachable.
        """
        if part.topic not in self._layouts:
            admin = Admin(self._options.connection)
            try:
                stats = admin.internal_stats(part.topic, metadata=True)
                self._layouts[part.topic] = ledger_layouts(stats, self._options.bookie_addresses)
            except NotFound:
                return None
            except BookiesNotReachable:
                if not self._is_auto:
                    raise
                self._are_bookies_away = True
                return None
        return self._layouts[part.topic].get(part.ledger_id)
