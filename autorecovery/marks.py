"""Marks: the ledgers that lack copies, as nodes in the metadata store, and the locks on them.

A mark names bookies whose copies may be gone. It is a hint: the worker that repairs the ledger
looks for itself. A second node beside the mark names copies that may be damaged, and entries that
readers met there. These entries are read first and alone, and then the copies as a whole: a bookie
asks its index for the place of the entry at which a read begins, and finds its neighbours without
it. The node is written before the mark and deleted after it, so that no such word about a marked
ledger is missed. The worker with the lock, an ephemeral node, repairs; two at once would do no
harm, because compare-and-set decides on the ledger's metadata. A mark is deleted in the version
that was read before the work, so that a later word about the ledger is not lost.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from autorecovery import records
from metadata.store import (
    MUST_NOT_EXIST,
    MetadataUnavailable,
    NodeNotFound,
    VersionConflict,
)
from protocol.bookkeeper.paths import (
    underreplicated_ledger_id_of,
    underreplicated_path,
    underreplication_lock_path,
)

if TYPE_CHECKING:
    import random
    from collections.abc import AsyncGenerator, Callable, Iterable, Sequence

    from metadata.store import MetadataStore

_CONTENTION_MAX = 100
"""Attempts to change a mark that others change at the same time."""
_LEVELS = 4
"""The levels of the tree of marks above its leaves."""
_LEDGER_ID: Final = re.compile(r"0|[1-9][0-9]{0,18}")


class WrongLayout(Exception):
    """The marks are laid out in a way that is not known here."""


@final
@dataclass(frozen=True, slots=True)
class Mark:
    """A mark as it was read."""

    ledger_id: int
    replicas: tuple[str, ...]
    version: int
    damaged: frozenset[str] = frozenset()
    """Bookies whose copies are said to be damaged somewhere."""
    met: frozenset[tuple[str, int]] = frozenset()
    """Of these: entries that a bookie did not give."""
    damage_version: int | None = None
    """The version of the node that says so; None: there is none."""


@final
class Marks:
    """See the module docstring. Every method may raise MetadataUnavailable."""

    def __init__(self, store: MetadataStore, holder: str) -> None:
        """`holder`: the name in this process's locks."""
        self._store = store
        self._holder = holder
        self._in_doubt: set[int] = set()
        """Ledgers whose lock this session has, or may have: its request was not answered."""

    async def prepare(self) -> None:
        """Make the layout if need be. Raises: WrongLayout."""
        try:
            await self._store.put(records.LAYOUT_PATH, records.encode_layout(), MUST_NOT_EXIST)
        except VersionConflict:
            found = await self._store.get(records.LAYOUT_PATH)
            if found is not None and not records.is_known_layout(found[0]):
                raise WrongLayout(
                    f"{records.LAYOUT_PATH} is not of type {records.LAYOUT_TYPE} and version "
                    f"{records.LAYOUT_VERSION}: another program keeps its marks of ledgers there"
                ) from None

    async def is_disabled(self) -> bool:
        """Whether replication is switched off (`bookkeeper shell autorecovery -disable`)."""
        return await self._store.exists(records.DISABLE_PATH)

    async def delay_s(self) -> int | None:
        """lostBookieRecoveryDelay; None: it is not set."""
        found = await self._store.get(records.DELAY_PATH)
        return None if found is None else records.delay_seconds(found[0])

    async def add(self, ledger_id: int, replicas: Iterable[str], now_ms: int) -> None:
        """Mark the ledger, or add these bookies to its mark."""
        await self._name(underreplicated_path(ledger_id), tuple(replicas), now_ms)

    async def add_damaged(
        self, ledger_id: int, replicas: Iterable[str], now_ms: int, met: int | None = None
    ) -> None:
        """The same for registered bookies whose copies are damaged somewhere: the worker that
        repairs the ledger reads these copies whole. `met`: an entry that they did not give to a
        reader."""
        damaged = tuple(replicas)
        names = [records.damaged_copy(each, met) for each in damaged]
        await self._name(records.damage_path(ledger_id), names, now_ms)
        await self.add(ledger_id, damaged, now_ms)

    async def _name(self, path: str, lacking: Sequence[str], now_ms: int) -> None:
        """Add bookies to a node that has the form of a mark."""
        for _attempt in range(_CONTENTION_MAX):
            found = await self._store.get(path)
            if found is None:
                record, version = records.encode_mark(lacking, now_ms), MUST_NOT_EXIST
            else:
                # Written even if it names them already: a worker that looked before these bookies
                # were lost again must not delete it.
                record = records.merged_mark(found[0], lacking, now_ms) or found[0]
                version = found[1]
            try:
                await self._store.put(path, record, version)
            except VersionConflict:
                continue
            return
        raise MetadataUnavailable(f"{path} is changed by others all the time, try again")

    async def get(self, ledger_id: int) -> Mark | None:
        """The mark of a ledger."""
        found = await self._store.get(underreplicated_path(ledger_id))
        if found is None:
            return None
        damage = await self._store.get(records.damage_path(ledger_id))
        record, damage_version = damage if damage is not None else (b"", None)
        damaged = [records.bookie_and_entry_of(each) for each in records.replicas_of_mark(record)]
        return Mark(
            ledger_id,
            records.replicas_of_mark(found[0]),
            found[1],
            frozenset(bookie_id for bookie_id, _entry_id in damaged),
            frozenset((each, entry_id) for each, entry_id in damaged if entry_id is not None),
            damage_version,
        )

    async def mark_damaged_again(self, now_ms: int) -> int:
        """Mark ledgers again of which only the node about damage is left: the process that wrote it
        ended before it wrote the mark, or the one that deleted the mark ended, or does not know
        that node. Returns how many. A worker then deletes both."""
        count = 0
        for name in await self._store.children(records.DAMAGE_ROOT):
            ledger_id = int(name) if _LEDGER_ID.fullmatch(name) else None
            if ledger_id is None or await self._store.exists(underreplicated_path(ledger_id)):
                continue
            found = await self._store.get(records.damage_path(ledger_id))
            if found is not None:
                names = map(records.bookie_and_entry_of, records.replicas_of_mark(found[0]))
                await self.add(ledger_id, dict.fromkeys(each for each, _ in names), now_ms)
                count += 1
        return count

    async def ledger_ids(self, order: random.Random | None = None) -> AsyncGenerator[int]:
        """All marked ledgers; shuffled, so that several workers begin with different ones."""
        pending = [(records.MARKS_ROOT, 0)]
        while pending:
            path, level = pending.pop()
            names = await self._store.children(path)
            if order is not None:
                order.shuffle(names)
            if level < _LEVELS:
                pending.extend((f"{path}/{name}", level + 1) for name in names)
                continue
            for name in names:
                ledger_id = underreplicated_ledger_id_of(f"{path}/{name}")
                if ledger_id is not None:
                    yield ledger_id

    async def lock_one(
        self, is_waiting: Callable[[int], bool], order: random.Random
    ) -> Mark | None:
        """Take the lock of a marked ledger; None: there is none that is free and not waiting."""
        await self.unlock_all()
        locked = set(await self._store.children(records.LOCKS_ROOT))
        ids = self.ledger_ids(order)
        try:
            async for ledger_id in ids:
                name = underreplication_lock_path(ledger_id).rpartition("/")[2]
                if is_waiting(ledger_id) or name in locked or not await self.lock(ledger_id):
                    continue
                mark = await self.get(ledger_id)
                if mark is not None:
                    return mark
                await self.unlock(ledger_id)
        finally:
            await ids.aclose()
        return None

    async def unlock_all(self) -> None:
        """Give back every lock that this object took, or may have taken."""
        for ledger_id in tuple(self._in_doubt):
            await self.unlock(ledger_id)

    async def lock(self, ledger_id: int) -> bool:
        """Take the lock of one ledger. False: another worker has it."""
        path = underreplication_lock_path(ledger_id)
        self._in_doubt.add(ledger_id)
        try:
            await self._store.put_ephemeral(path, records.encode_lock(self._holder))
        except VersionConflict:
            self._in_doubt.discard(ledger_id)
            return False
        return True

    async def unlock(self, ledger_id: int) -> None:
        """Give the lock back. If that is not answered it is tried again before the next lock is
        taken: a lock that is left lasts as long as the session."""
        path = underreplication_lock_path(ledger_id)
        found = await self._store.get(path)
        if found is not None and found[0] == records.encode_lock(self._holder):
            try:
                await self._store.delete(path)
            except NodeNotFound:
                pass
        self._in_doubt.discard(ledger_id)

    async def remove(self, mark: Mark) -> bool:
        """The ledger has all its copies. False: it was marked again since `mark` was read."""
        path = underreplicated_path(mark.ledger_id)
        try:
            await self._store.delete(path, mark.version)
        except VersionConflict:
            return False
        except NodeNotFound:
            await self._remove_damage(mark)
            return True
        await self._remove_damage(mark)
        for _level in range(_LEVELS):
            path = path.rpartition("/")[0]
            try:
                await self._store.delete(path)
            except (NodeNotFound, VersionConflict):
                break  # it has other marks below it, or is no node of its own
        return True

    async def _remove_damage(self, mark: Mark) -> None:
        if mark.damage_version is None:
            return
        try:
            await self._store.delete(records.damage_path(mark.ledger_id), mark.damage_version)
        except (NodeNotFound, VersionConflict):
            pass  # a later word: the mark that follows it will be worked on
