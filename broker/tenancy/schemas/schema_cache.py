"""The schemas that a broker has read, kept until a watch reports a change of a topic's list.

After a change only the list and the new versions are read: versions never change. Requests that
need the same topic share one reading, unless the list changed after that began. Writers of one
topic take turns, so that a hundred producers that open at once with the same new schema make one
ledger.
"""

from __future__ import annotations

from collections import OrderedDict
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Final, final

import trio

from broker.tenancy.namespaces.names import SCHEMAS_PATH
from broker.tenancy.schemas.schema_format import DELETION_HASH, IndexEntry, StoredSchema
from broker.tenancy.schemas.schema_ledgers import (
    WAIT_SECONDS_MAX,
    Locator,
    SchemaLedgers,
    SchemaLost,
)
from protocol.errors import BrokerError, PersistenceError
from runtime.locks import KeyedLocks

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from broker.tenancy.schemas.schema_info import SchemaInfo
    from metadata.store import MetadataStore

_TOPICS_MAX: Final = 10_000
_BYTES_MAX: Final = 64 * 1024 * 1024
_BYTES_PER_VERSION: Final = 500
"""Beside what the client sent."""
_VERDICTS_MAX: Final = 16
"""Per topic."""


@final
class LoadedSchemas:
    """The versions of one topic since its last deletion, oldest first, and recent results for other
    schemas."""

    __slots__ = ("is_current", "locator", "size_bytes", "verdicts", "versions")

    def __init__(self, locator: Locator, versions: list[StoredSchema]) -> None:
        self.locator = locator
        self.versions = versions
        """As `since_deletion` of the locator's index."""
        self.size_bytes = _BYTES_PER_VERSION * (1 + len(locator.index)) + sum(
            each.schema.size_bytes for each in versions if each.schema is not None
        )
        self.verdicts: dict[tuple[object, ...], object] = {}
        self.is_current = False
        """No change of the list has been reported since it was read."""

    def live(self) -> list[StoredSchema]:
        """Every version since the last deletion."""
        live: list[StoredSchema] = []
        for each in self.versions:
            if each.schema is None:
                live = []
            else:
                live.append(each)
        return live

    def schemas(self) -> list[SchemaInfo]:
        """The schemas of the live versions."""
        return [each.schema for each in self.live() if each.schema is not None]

    def remember(self, key: tuple[object, ...], result: object) -> None:
        """Keep a result, with the last few others."""
        if len(self.verdicts) >= _VERDICTS_MAX:
            self.verdicts.pop(next(iter(self.verdicts)))
        self.verdicts[key] = result


def since_deletion(index: tuple[IndexEntry, ...]) -> tuple[IndexEntry, ...]:
    """The versions after the last deletion; the deletion itself when there are none."""
    start = 0
    for place, each in enumerate(index):
        if each.digest == DELETION_HASH:
            start = place + 1
    return index[start:] or index[-1:]


@final
class _Reading:
    """One reading under way, which others may wait for."""

    __slots__ = ("done", "error", "is_outdated", "result")

    def __init__(self) -> None:
        self.done = trio.Event()
        self.result: LoadedSchemas | None = None
        self.error: BrokerError | None = None
        self.is_outdated = False
        """The list changed after it began."""


@final
class SchemaCache:
    """See the module docstring."""

    def __init__(self, store: MetadataStore, ledgers: SchemaLedgers) -> None:
        self._ledgers = ledgers
        self._kept: OrderedDict[str, LoadedSchemas] = OrderedDict()
        self._kept_bytes = 0
        self._reading: dict[str, _Reading] = {}
        self._writers: KeyedLocks[str] = KeyedLocks()
        store.watch(SCHEMAS_PATH, self._changed)

    def _changed(self, path: str) -> None:
        """OnChange. The watched path itself means that anything may have changed."""
        schema_id = path.removeprefix(SCHEMAS_PATH).removeprefix("/")
        if schema_id:
            self._outdate(schema_id)
            return
        for each in self._kept.values():
            each.is_current = False
        for reading in self._reading.values():
            reading.is_outdated = True
        self._reading.clear()

    def _outdate(self, schema_id: str) -> None:
        kept = self._kept.get(schema_id)
        if kept is not None:
            kept.is_current = False
        reading = self._reading.pop(schema_id, None)
        if reading is not None:
            reading.is_outdated = True

    # --- reading ------------------------------------------------------------------------

    async def load(self, schema_id: str) -> LoadedSchemas:
        """The versions of a topic, as they were at some time during the call.

        Raises: SchemaLost; PersistenceError, MetadataUnavailable: not now.
        """
        while True:
            kept = self._kept.get(schema_id)
            if kept is not None and kept.is_current:
                self._kept.move_to_end(schema_id)
                return kept
            reading = self._reading.get(schema_id)
            if reading is None:
                return await self._read(schema_id, kept)
            await reading.done.wait()
            if reading.is_outdated:
                continue
            if reading.result is not None:
                return reading.result
            if reading.error is not None:
                raise type(reading.error)(*reading.error.args)

    async def _read(self, schema_id: str, kept: LoadedSchemas | None) -> LoadedSchemas:
        reading = self._reading[schema_id] = _Reading()
        try:
            reading.result = loaded = await self._read_stored(schema_id, kept)
            self._keep(schema_id, loaded, is_current=not reading.is_outdated)
            return loaded
        except BrokerError as error:
            reading.error = type(error)(*error.args)
            raise
        finally:
            if self._reading.get(schema_id) is reading:
                del self._reading[schema_id]
            reading.done.set()

    async def _read_stored(self, schema_id: str, kept: LoadedSchemas | None) -> LoadedSchemas:
        known: dict[IndexEntry, StoredSchema] = {}
        if kept is not None:
            known = dict(zip(since_deletion(kept.locator.index), kept.versions, strict=True))
        while True:
            locator = await self._ledgers.locator(schema_id)
            if kept is not None and kept.locator == locator:
                return kept
            wanted = since_deletion(locator.index)
            new = [each for each in wanted if each not in known]
            try:
                found = dict(zip(new, await self._ledgers.read(schema_id, new), strict=True))
            except SchemaLost:
                if await self._ledgers.is_listed(schema_id, locator):
                    raise
                continue  # it was deleted meanwhile
            versions = [found[each] if each in found else known[each] for each in wanted]
            return LoadedSchemas(locator, versions)

    def _keep(self, schema_id: str, loaded: LoadedSchemas, *, is_current: bool) -> None:
        loaded.is_current = is_current
        self._drop(schema_id)
        self._kept[schema_id] = loaded
        self._kept_bytes += loaded.size_bytes
        while self._kept and (len(self._kept) > _TOPICS_MAX or self._kept_bytes > _BYTES_MAX):
            self._drop(next(iter(self._kept)))

    def _drop(self, schema_id: str) -> None:
        before = self._kept.pop(schema_id, None)
        if before is not None:
            self._kept_bytes -= before.size_bytes

    # --- writing ------------------------------------------------------------------------

    async def add(self, schema_id: str, before: LoadedSchemas, schema: SchemaInfo) -> int | None:
        """Add a version to those that were loaded. Returns its number; None: the list is not the
        same any more.

        Raises: PersistenceError: not stored; MetadataUnavailable: it may have been stored or not.
        """
        async with self._writer(schema_id):
            if (await self.load(schema_id)).locator != before.locator:
                return None
            try:
                added = await self._ledgers.add(schema_id, before.locator, schema)
            finally:
                self._outdate(schema_id)
            if added is None:
                return None
            locator, stored = added
            versions = [*before.live(), stored]
            self._keep(schema_id, LoadedSchemas(locator, versions), is_current=False)
            return stored.version

    async def add_deletion(self, schema_id: str) -> int:
        """Add the deletion of all versions so far. Returns its number. Raises: as `add`."""
        async with self._writer(schema_id):
            while True:
                try:
                    locator = await self._ledgers.locator(schema_id)
                    added = await self._ledgers.add(schema_id, locator, None)
                finally:
                    self._outdate(schema_id)
                if added is not None:
                    return added[1].version

    async def delete(self, schema_id: str) -> None:
        """Delete all versions with their history. Raises: PersistenceError, MetadataUnavailable."""
        async with self._writer(schema_id):
            try:
                await self._ledgers.delete(schema_id)
            finally:
                self._outdate(schema_id)
                self._drop(schema_id)

    @asynccontextmanager
    async def _writer(self, schema_id: str) -> AsyncIterator[None]:
        """The turn to write. Raises: PersistenceError: others take too long."""
        async with AsyncExitStack() as held:
            try:
                await held.enter_async_context(self._writers.hold(schema_id, WAIT_SECONDS_MAX))
            except trio.TooSlowError:
                raise PersistenceError(
                    "other changes of the schema are still under way; try again"
                    f" (no turn in {WAIT_SECONDS_MAX:.0f} s)"
                ) from None
            yield
