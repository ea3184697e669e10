"""All ledgers of a metadata store, for collectors that delete ledgers outside this list."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio

from protocol.bookkeeper.paths import LEDGERS_ROOT, NOT_LEDGERS, ledger_id_of

if TYPE_CHECKING:
    from metadata.store import MetadataStore

LEDGERS_PER_SLICE: Final = 500
"""Names that are read before others have a turn: a millisecond."""


async def live_ledgers(store: MetadataStore) -> set[int]:
    """Every ledger that had a record when this was called and still has one at the end.

    A ledger that is made meanwhile may be missing: take the list of what might be deleted before.

    Raises: MetadataUnavailable: there is no list then, because a part of one is of no use.
    """
    await store.sync()
    ledger_ids: set[int] = set()
    pending = [
        f"{LEDGERS_ROOT}/{name}"
        for name in await store.children(LEDGERS_ROOT)
        if name not in NOT_LEDGERS
    ]
    while pending:
        path = pending.pop()
        ledger_id = ledger_id_of(path)
        if ledger_id is not None:
            ledger_ids.add(ledger_id)
            if len(ledger_ids) % LEDGERS_PER_SLICE == 0:
                await trio.lowlevel.checkpoint()
        else:
            pending.extend(f"{path}/{name}" for name in await store.children(path))
    return ledger_ids
