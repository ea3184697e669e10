"""Finds ledgers that no record names, and deletes them.

The ledgers are listed first and the records are read after that, so that a ledger that is recorded
meanwhile is found in its record. Before anything is deleted the records are read once more. A
record that is damaged, or has changed between the two, protects what it may name.

A broker that did not hear of the outcome of a write may still have a ledger in memory that the
record does not name any more, and would write it into the record again. So the record is *claimed*
first: it is written again as it is. A broker that read an older version of it is refused when it
writes, and begins again with the present record. A topic that is in use is therefore opened again
by its broker; its clients reconnect, and nothing is lost. Then the node of the ledger is deleted,
if it still has the version that was judged.

A record that does not exist cannot be claimed, and whoever made the ledger may be about to create
it. How old such a ledger is does not follow from its time: that was written by the clock of another
machine. So these ledgers come last. The records are read once more when AGE_MINUTES_MIN have passed
by this process's own clock.

One process at a time deletes orphans of a store (`OrphanCollector`, too).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

import trio

from broker.ground.slices import for_each
from broker.managed_ledger.orphans import LEASE_PATH
from broker.managed_ledger.paths import MANAGED_LEDGERS_ROOT
from broker.tenancy.namespaces.names import SCHEMAS_PATH
from cli.orphans.references import named_by_cursor, named_by_list, named_by_locator
from cli.orphans.rule import AGE_MINUTES_MIN, References, Standing, Verdict, judged
from inspection.files import NotReadable
from inspection.ledgers import ledger_ids
from metadata.lease import lease
from metadata.store import MetadataUnavailable, NodeNotFound, VersionConflict
from protocol.bookkeeper.ledger_metadata import (
    InvalidMetadata,
    LedgerMetadata,
    decode_ledger_metadata,
)
from protocol.bookkeeper.paths import ledger_path
from protocol.errors import MetadataError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable

    from cli.orphans.rule import Maker
    from metadata.read_only_tree import Tree
    from metadata.store import MetadataStore

_READS_AT_ONCE_MAX: Final = 32
_DOMAIN: Final = "persistent"
_CHANGES: Final = "changes now: try again"


class NotToBeTold(NotReadable):
    """The orphans cannot be determined. The text says why, and what to do."""


@final
@dataclass(frozen=True, slots=True)
class Unnamed:
    """A ledger that no record names. `metadata` None: its own node is damaged."""

    ledger_id: int
    version: int
    metadata: LedgerMetadata | None
    verdict: Verdict


@final
@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome for an orphan. `kept` is empty: it was deleted; else it says why it was not."""

    ledger_id: int
    kept: str


async def unnamed_ledgers(tree: Tree, age_minutes_min: int, now_ms: int) -> list[Unnamed]:
    """All of them, ascending. `now_ms`: wall clock.

    Raises: NotToBeTold, MetadataUnavailable.
    """
    return (await _searched(tree, age_minutes_min, now_ms))[0]


async def _searched(
    tree: Tree, age_minutes_min: int, now_ms: int
) -> tuple[list[Unnamed], References]:
    existing = {each async for each in ledger_ids(tree)}
    references = await read_references(tree)
    found: list[Unnamed] = []

    async def judge(ledger_id: int) -> None:
        stored = await tree.get(ledger_path(ledger_id))
        if stored is None:
            return
        try:
            metadata = decode_ledger_metadata(stored[0])
        except InvalidMetadata as error:
            verdict = Verdict(Standing.UNKNOWN, f"its metadata are damaged: {error}")
            found.append(Unnamed(ledger_id, stored[1], None, verdict))
            return
        judgement = judged(ledger_id, metadata, references, age_minutes_min, now_ms)
        if judgement is not None:
            found.append(Unnamed(ledger_id, stored[1], metadata, judgement))

    await for_each(sorted(existing - references.named), judge, _READS_AT_ONCE_MAX)
    return sorted(found, key=lambda each: each.ledger_id), references


async def delete_orphans(
    store: MetadataStore,
    age_minutes_min: int,
    wall_ms: Callable[[], int],
    report: Callable[[Outcome], None],
    on_wait: Callable[[int], None],
) -> None:
    """Delete the orphans; `report` hears of each that was deleted, or was kept after all, and
    `on_wait` of the number of those that are left for AGE_MINUTES_MIN.

    Raises: NotToBeTold: nothing was deleted. MetadataUnavailable: the rest was not looked at.
    """
    try:
        async with lease(store, LEASE_PATH):
            await _delete_all(store, age_minutes_min, wall_ms, report, on_wait)
    except VersionConflict:
        raise NotToBeTold(
            f"another process deletes orphans now ({LEASE_PATH}): try again when it has ended"
        ) from None


async def _delete_all(
    store: MetadataStore,
    age_minutes_min: int,
    wall_ms: Callable[[], int],
    report: Callable[[Outcome], None],
    on_wait: Callable[[int], None],
) -> None:
    await store.sync()
    found, before = await _searched(store, age_minutes_min, wall_ms())
    searched_at = trio.current_time()
    orphans = [each for each in found if each.verdict.standing is Standing.ORPHAN]
    recorded = [each for each in orphans if _has_record(each, before)]
    if recorded:
        await _delete_those(recorded, store, age_minutes_min, wall_ms, report, before)
    unrecorded = [each for each in orphans if not _has_record(each, before)]
    if unrecorded:
        on_wait(len(unrecorded))
        await trio.sleep_until(searched_at + AGE_MINUTES_MIN * 60)
        await _delete_those(unrecorded, store, age_minutes_min, wall_ms, report, before)


def _has_record(orphan: Unnamed, references: References) -> bool:
    maker = orphan.verdict.maker
    return maker is not None and references.version(maker.record) is not None


async def _delete_those(
    orphans: list[Unnamed],
    store: MetadataStore,
    age_minutes_min: int,
    wall_ms: Callable[[], int],
    report: Callable[[Outcome], None],
    before: References,
) -> None:
    """`before`: what the records named when the ledgers were found to be orphans."""
    await store.sync()
    now = await read_references(store)
    claims = _Claims(store)
    for orphan in orphans:
        maker, metadata = orphan.verdict.maker, orphan.metadata
        assert maker is not None
        assert metadata is not None
        again = judged(orphan.ledger_id, metadata, now, age_minutes_min, wall_ms())
        paths = (maker.record, *maker.cursors)
        if again is None or again.standing is not Standing.ORPHAN:
            kept = "a record names it now, or may do so"
        elif any(before.version(path) != now.version(path) for path in paths):
            kept = f"{maker.record} or its cursor {_CHANGES}"
        else:
            kept = await claims.refusal(maker, now) or await _delete(store, orphan)
        report(Outcome(orphan.ledger_id, kept))


async def _delete(store: MetadataStore, orphan: Unnamed) -> str:
    """Why it was kept; empty: it is deleted."""
    try:
        await store.delete(ledger_path(orphan.ledger_id), orphan.version)
    except NodeNotFound:
        return ""
    except VersionConflict:
        return "its metadata have changed: it is in use, or being recovered"
    return ""


@final
class _Claims:
    """See the module docstring. A record is claimed once: whoever read it after that has no other
    ledgers in memory than it names."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store
        self._refusals: dict[str, str] = {}
        """Path of a record -> why it could not be claimed, or an empty text."""

    async def refusal(self, maker: Maker, references: References) -> str:
        """Why a ledger of this maker is kept; empty: nothing can name it any more. The list is
        claimed first: the owner of a topic looks at it before it writes a cursor's record.

        Raises: MetadataUnavailable.
        """
        for path in (maker.record, *maker.cursors):
            if path not in self._refusals:
                self._refusals[path] = await self._claim(path, references.version(path))
            if self._refusals[path]:
                return self._refusals[path]
        return ""

    async def _claim(self, path: str, version: int | None) -> str:
        """The record is as it was when it was judged, or it is not claimed."""
        stored = await self._store.get(path)
        if stored is None or version is None or stored[1] != version:
            is_same = (None if stored is None else stored[1]) == version
            return "" if is_same else f"{path} {_CHANGES}"
        try:
            await self._store.put(path, stored[0], version)
        except VersionConflict:
            return f"{path} {_CHANGES}"
        return ""


# --- the records ------------------------------------------------------------------------------


async def read_references(tree: Tree) -> References:
    """The ledgers that all records name. Raises: NotToBeTold: one is damaged, or there are none.
    MetadataUnavailable.
    """
    references = References()
    topics = [path async for path in _topics(tree)]
    schemas = [path async for path in _schemas(tree)]
    if not topics:
        raise NotToBeTold(
            f"there is no topic below {MANAGED_LEDGERS_ROOT}: this is not the metadata store of a "
            "cluster of brokers, or it is empty, and what its ledgers belong to is not known"
        )

    async def read_topic(path: str) -> None:
        await _read(tree, references, path, named_by_list)
        for cursor in await tree.children(path):
            await _read(tree, references, f"{path}/{cursor}", named_by_cursor)

    async def read_schema(path: str) -> None:
        await _read(tree, references, path, named_by_locator)

    await for_each(topics, read_topic, _READS_AT_ONCE_MAX)
    await for_each(schemas, read_schema, _READS_AT_ONCE_MAX)
    if references.damaged:
        more = len(references.damaged) - 1
        raise NotToBeTold(
            f"{min(references.damaged)}"
            + (f"; {more} more records are damaged" if more else "")
            + ". They may name any ledger, so that it is not known which ledgers are orphans"
        )
    return references


async def _read(
    tree: Tree, references: References, path: str, named_by: Callable[[bytes, str], Iterable[int]]
) -> None:
    stored = await tree.get(path)
    if stored is None:
        return
    try:
        named = frozenset(named_by(stored[0], path))
    except MetadataUnavailable:
        raise
    except MetadataError as error:
        references.damaged.append(str(error))
        return
    references.records[path] = named, stored[1]
    references.named |= named


async def _topics(tree: Tree) -> AsyncIterator[str]:
    """Paths of managed ledgers, also of topics whose names have a cluster, as in old Pulsar."""
    async for parent in _namespaces(tree, MANAGED_LEDGERS_ROOT):
        for name in await tree.children(parent):
            below = f"{parent}/{name}"
            if name != _DOMAIN:
                below = f"{below}/{_DOMAIN}"
            for topic in await tree.children(below):
                yield f"{below}/{topic}"


async def _schemas(tree: Tree) -> AsyncIterator[str]:
    """Paths of lists of schemas, also of topics whose names have a cluster. Numbers below a list
    are schemas in the form of earlier versions of Vela, and name no ledger."""
    async for parent in _namespaces(tree, SCHEMAS_PATH):
        for name in await tree.children(parent):
            yield f"{parent}/{name}"
            for below in await tree.children(f"{parent}/{name}"):
                if not below.isdecimal():
                    yield f"{parent}/{name}/{below}"


async def _namespaces(tree: Tree, root: str) -> AsyncIterator[str]:
    for tenant in await tree.children(root):
        for namespace in await tree.children(f"{root}/{tenant}"):
            yield f"{root}/{tenant}/{namespace}"
