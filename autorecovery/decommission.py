"""Decommission: a bookie leaves the cluster for good.

The bookie is stopped. The auditor is asked for an audit, workers copy what it had, and when no
ledger names it any more its cookie is deleted. Until then nothing is changed but marks, so the
command can be ended and run again, and the bookie can come back instead.

Whether a ledger names the bookie is read from all ledgers, after its registration was seen to be
gone: it can get no new ledgers then. This is looked at once more before the cookie is deleted.

Source: `bookkeeper shell decommissionbookie`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

import trio

from autorecovery import records
from autorecovery.auditor import registered_bookies, writable_bookies
from autorecovery.election import current_auditor
from autorecovery.fragments import bookies_of, fragments_of
from autorecovery.sweep import for_each_ledger
from metadata.store import NodeNotFound, VersionConflict
from protocol.bookkeeper.paths import cookie_path

if TYPE_CHECKING:
    from collections.abc import Callable
    from collections.abc import Set as AbstractSet

    from autorecovery.marks import Marks
    from metadata.store import MetadataStore
    from protocol.bookkeeper.ledger_metadata import LedgerMetadata

LOOK_AGAIN_S: Final = 2.0
ASK_AGAIN_S: Final = 300.0
"""For an audit, while ledgers name the bookie."""
NAMED_MAX: Final = 5
"""Ledgers named in a text."""


class NotDecommissioned(Exception):
    """The bookie cannot leave now. The text says why and what to do."""


@final
@dataclass(frozen=True, slots=True)
class Held:
    """Ledgers that name a bookie."""

    count: int
    some: tuple[int, ...]
    without_other_copy: tuple[int, ...]
    """Some of them of which the bookie has the only copy of an entry."""
    without_place: tuple[int, ...]
    """Some of them that have copies on all bookies that take entries."""
    damaged: int
    """Ledgers whose metadata cannot be read: they may name it, too."""


async def ledgers_of(store: MetadataStore, bookie_id: str) -> Held:
    """The ledgers that name the bookie. Raises: MetadataUnavailable."""
    count = 0
    some: list[int] = []
    only: list[int] = []
    crowded: list[int] = []
    writable = await writable_bookies(store) - {bookie_id}

    async def look(ledger_id: int, metadata: LedgerMetadata) -> None:
        nonlocal count
        if bookie_id not in bookies_of(metadata):
            return
        count += 1
        if len(some) < NAMED_MAX:
            some.append(ledger_id)
        if len(only) < NAMED_MAX and has_only_copy(metadata, bookie_id):
            only.append(ledger_id)
        if len(crowded) < NAMED_MAX and not has_place(metadata, bookie_id, writable):
            crowded.append(ledger_id)

    damaged = await for_each_ledger(store, look)
    first, second, third = (tuple(sorted(each)) for each in (some, only, crowded))
    return Held(count, first, second, third, damaged)


def has_place(metadata: LedgerMetadata, bookie_id: str, writable: AbstractSet[str]) -> bool:
    """Whether another bookie could take the place of this one in every fragment."""
    return all(
        bookie_id not in ensemble or writable - set(ensemble)
        for ensemble in metadata.ensembles.values()
    )


def has_only_copy(metadata: LedgerMetadata, bookie_id: str) -> bool:
    """Whether the bookie may have entries that no other bookie has."""
    if metadata.write_quorum_size > 1:
        return False
    return any(
        bookie_id in fragment.ensemble
        and (
            fragment.last is None or fragment.boundary_at(fragment.ensemble.index(bookie_id)) != ()
        )
        for fragment in fragments_of(metadata)
    )


async def decommission(
    store: MetadataStore,
    marks: Marks,
    bookie_id: str,
    wait_s: float,
    tell: Callable[[str], None],
) -> None:
    """Return when the bookie has left. `wait_s`: how long copies are waited for.

    Raises: NotDecommissioned, MetadataUnavailable.
    """
    stored = await store.get(cookie_path(bookie_id))
    await _require_stopped(store, bookie_id)
    held = await ledgers_of(store, bookie_id)
    if stored is None and not held.count:
        raise NotDecommissioned(
            f"there is no bookie {bookie_id!r}: it has no cookie, and no ledger names it"
        )
    deadline = trio.current_time() + wait_s
    asked_at = -ASK_AGAIN_S
    while held.count or held.damaged:
        _require_hope(bookie_id, held)
        now = trio.current_time()
        if now >= deadline:
            raise NotDecommissioned(
                f"{held.count} ledgers still name bookie {bookie_id!r} ({_named(held.some)}): "
                "without it they lack copies. Nothing was deleted; run this again, or start the "
                "bookie again"
            )
        if now - asked_at >= ASK_AGAIN_S:
            await _ask_for_audit(store, marks)
            asked_at = now
        tell(f"{held.count} ledgers still name {bookie_id}")
        await trio.sleep(min(LOOK_AGAIN_S, deadline - now))
        await _require_stopped(store, bookie_id)
        held = await ledgers_of(store, bookie_id)
    if stored is not None:
        await _delete_cookie(store, bookie_id, stored[1])


async def _delete_cookie(store: MetadataStore, bookie_id: str, version: int) -> None:
    await _require_stopped(store, bookie_id)
    try:
        await store.delete(cookie_path(bookie_id), version)
    except NodeNotFound:
        return
    except VersionConflict as conflict:
        raise NotDecommissioned(
            f"the cookie of bookie {bookie_id!r} was written meanwhile: it was started again"
        ) from conflict


async def _require_stopped(store: MetadataStore, bookie_id: str) -> None:
    """Raises: NotDecommissioned, MetadataUnavailable."""
    if bookie_id in await registered_bookies(store):
        raise NotDecommissioned(
            f"bookie {bookie_id!r} is running: stop it first. If it was killed, its registration "
            "ends with its session"
        )


def _require_hope(bookie_id: str, held: Held) -> None:
    """Raises: NotDecommissioned."""
    if held.without_other_copy:
        raise NotDecommissioned(
            f"bookie {bookie_id!r} has the only copy of entries of ledgers "
            f"{_named(held.without_other_copy)} (write quorum 1): they would be lost. Start it "
            "again, and read or delete what is in those ledgers first"
        )
    if held.without_place:
        raise NotDecommissioned(
            f"ledgers {_named(held.without_place)} have a copy on every other bookie that takes "
            f"entries: without {bookie_id!r} they would lack one. Add a bookie first"
        )
    if held.damaged:
        raise NotDecommissioned(
            f"the metadata of {held.damaged} ledgers is damaged: whether they name bookie "
            f"{bookie_id!r} is not known. Mend or delete them first (vela ledger metadata)"
        )


def _named(ledger_ids: tuple[int, ...]) -> str:
    return ", ".join(map(str, ledger_ids))


async def _ask_for_audit(store: MetadataStore, marks: Marks) -> None:
    """Raises: NotDecommissioned: no process would copy anything. MetadataUnavailable."""
    if await marks.is_disabled():
        raise NotDecommissioned(
            "replication is switched off: switch it on (bookkeeper shell autorecovery -enable)"
        )
    if not await current_auditor(store):
        raise NotDecommissioned(
            "there is no auditor: run `vela autorecovery`, or BookKeeper's autorecovery"
        )
    delay = await marks.delay_s() or 0
    await store.put(records.DELAY_PATH, str(delay).encode(), None)
