"""Ledger layouts from the admin API: the same answer of real Pulsar and of Vela serves. Pure.

`GET /admin/v2/persistent/{tenant}/{namespace}/{topic}/internalStats?metadata=true` has a row per
ledger with the text of its metadata.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pipeline.bookies.addresses import BY_ID
from pipeline.bookies.errors import BookiesNotReachable
from protocol.bookkeeper.ledger_layout import LedgerLayout
from protocol.bookkeeper.ledger_metadata import InvalidMetadata
from protocol.bookkeeper.ledger_metadata_text import parse_ledger_metadata_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pipeline.bookies.addresses import BookieAddresses


def ledger_layouts(
    internal_stats: Mapping[str, Any], addresses: BookieAddresses = BY_ID
) -> dict[int, LedgerLayout]:
    """The layout of each ledger of a topic that is not offloaded, by ledger id. One that was made
    while the server collected its answer may be without metadata, and is left out.

    Raises: BookiesNotReachable: no metadata was asked for, or `addresses` lacks one of the bookies.
        InvalidMetadata: a text that is not understood.
    """
    layouts: dict[int, LedgerLayout] = {}
    rows = [row for row in internal_stats["ledgers"] if not row.get("offloaded")]
    if rows and not any(row.get("metadata") for row in rows):
        raise BookiesNotReachable("the answer holds no ledger metadata: ask for metadata=true")
    for row in rows:
        text = row.get("metadata")
        if not text:
            continue
        ledger_id = int(row["ledgerId"])
        try:
            layout = LedgerLayout.of(ledger_id, parse_ledger_metadata_text(text))
        except ValueError as error:
            raise InvalidMetadata(str(error)) from error
        for bookie_id in layout.bookie_ids:
            addresses.of(bookie_id)
        layouts[ledger_id] = layout
    return layouts
