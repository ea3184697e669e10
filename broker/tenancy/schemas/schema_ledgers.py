"""The stored schemas of topics: a ledger per version, and a locator that lists them.

A version is first written to a ledger of its own and then listed, by compare-and-set of the
locator: two brokers that add at once cannot lose a version, because one of them is refused and
reads again. A deletion with all history removes the locator first and then the ledgers. A crash
therefore may leave surplus ledgers, which `SchemaLedgerOwner` finds, but never loses one.

Entries never change, so a reader that knows the locator may keep them for ever.

A version that cannot be read is an error that clients retry, never "no schema".
"""

from __future__ import annotations

from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

import structlog
import trio

from broker.ground.slices import for_each, taken_in_slices
from broker.tenancy.namespaces.names import SCHEMAS_PATH
from broker.tenancy.schemas.schema_format import (
    DamagedSchema,
    IndexEntry,
    StoredSchema,
    decode_entry,
    decode_locator,
    decode_record,
    digest_of,
    encode_record,
    entry_parts,
    ledger_custom_metadata,
    locator_parts,
)
from ledgers.awaited_ledger import AwaitedLedger
from ledgers.errors import EntryAbsent, LedgerDamaged, LedgerError, LedgerNotFound
from metadata.store import MUST_NOT_EXIST, MetadataUnavailable, NodeNotFound, VersionConflict
from protocol.errors import IncompatibleSchema, PersistenceError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence

    from broker.tenancy.schemas.schema_info import SchemaInfo
    from ledgers.client import LedgerClient
    from ledgers.entry_writer import EntryWriter, WriterListener
    from metadata.store import MetadataStore
    from runtime.clock import Clock

_log = structlog.get_logger()

WAIT_SECONDS_MAX: Final = 30.0
"""For one entry to be written or read."""
LISTED_SECONDS_MAX: Final = 600.0
"""A ledger is listed so soon after it was made, or given up: what is older and not listed is an
orphan."""
VERSIONS_MAX: Final = 10_000
"""The number of versions of a topic since its last forced deletion. Their list is written with each
new one, and ZooKeeper takes nodes of less than 1 MB."""
ENTRY_BYTES_MAX: Final = 5 * 1024 * 1024
"""As for messages: bookies end the connection of a client that sends more."""
_READS_AT_ONCE_MAX: Final = 32
_DELETIONS_AT_ONCE_MAX: Final = 32
_PASSWORD: Final = b""
"""Real Pulsar opens the ledgers of schemas without one, whatever `managedLedgerPassword` says."""
CANNOT_READ: Final = "of the schema cannot be read now; try again"


@final
@dataclass(frozen=True, slots=True)
class Locator:
    """The versions of a topic as listed, and the version of the node."""

    index: tuple[IndexEntry, ...]
    node_version: int


NO_LOCATOR: Final = Locator((), MUST_NOT_EXIST)


class SchemaLost(PersistenceError):
    """It is proved that a listed version is not there, or it is damaged."""


def locator_path(schema_id: str) -> str:
    """The node of a topic's locator."""
    return f"{SCHEMAS_PATH}/{schema_id}"


async def has_old_versions(store: MetadataStore, path: str) -> bool:
    """Whether versions of a topic are where earlier versions of Vela kept them. Raises:
    MetadataUnavailable."""
    for name in await store.children(path):
        stored = await store.get(f"{path}/{name}") if name.isdecimal() else None
        if stored is not None and stored[0].startswith(b"{"):
            return True
    return False


async def delete_old_versions(store: MetadataStore, path: str) -> None:
    """Delete the nodes of versions below a topic's node, where earlier versions of Vela kept them,
    oldest first. Raises: MetadataUnavailable."""
    for number in sorted(int(name) for name in await store.children(path) if name.isdecimal()):
        try:
            await store.delete(f"{path}/{number}")
        except NodeNotFound:
            continue


@final
class SchemaLedgers:
    """See the module docstring."""

    def __init__(self, store: MetadataStore, client: LedgerClient, clock: Clock) -> None:
        self._store = store
        self._client = client
        self._clock = clock
        self._reads = trio.Semaphore(_READS_AT_ONCE_MAX)
        self.unconverted: dict[str, str] = {}
        """Topics whose schemas are still in the form of earlier versions, because these cannot be
        read, and why (`SchemaConversion`)."""
        self.postponed = ""
        """Why any other topic may have schemas in that form. Empty: none has."""
        self._converting: dict[str, trio.Event] = {}

    async def locator(self, schema_id: str) -> Locator:
        """The versions so far.

        Raises: SchemaLost: the record is damaged; MetadataUnavailable.
        """
        if schema_id in self.unconverted:
            raise _lost(schema_id, self.unconverted[schema_id])
        path = locator_path(schema_id)
        if self.postponed and await has_old_versions(self._store, path):
            raise PersistenceError(f"the versions {CANNOT_READ} ({self.postponed})")
        return await self._locator(schema_id, path)

    async def converted(self, schema_id: str) -> Locator:
        """The same for the conversion: the versions in ledgers. Raises: as `locator`."""
        return await self._locator(schema_id, locator_path(schema_id))

    async def _locator(self, schema_id: str, path: str) -> Locator:
        stored = await self._store.get(path)
        if stored is None:
            return NO_LOCATOR
        data, node_version = stored
        if not data and await self._store.children(path):
            # The parent of others: old versions of Vela, or topics of old Pulsar, whose names had
            # one more part. A list is never empty, also after a deletion.
            return Locator((), node_version)
        try:
            return Locator(decode_locator(data), node_version)
        except DamagedSchema as error:
            raise _lost(schema_id, f"{path}: {error}") from error

    async def is_listed(self, schema_id: str, locator: Locator) -> bool:
        """Whether these are still the versions, whatever broker changes them. Raises: as
        `locator`."""
        await self._store.sync()
        return await self.locator(schema_id) == locator

    async def read(self, schema_id: str, wanted: Sequence[IndexEntry]) -> list[StoredSchema]:
        """These versions.

        Raises: SchemaLost; PersistenceError: not now; MetadataUnavailable.
        """
        found: dict[int, StoredSchema] = {}
        failures: list[PersistenceError | MetadataUnavailable] = []

        async def read_one(each: IndexEntry) -> None:
            if failures:
                return
            try:
                async with self._reads:
                    found[each.version] = await self._read_one(schema_id, each)
            except (PersistenceError, MetadataUnavailable) as error:
                failures.append(error)

        await for_each(wanted, read_one, min(len(wanted), _READS_AT_ONCE_MAX))
        if failures:
            raise failures[0]
        return [found[each.version] for each in wanted]

    async def _read_one(self, schema_id: str, each: IndexEntry) -> StoredSchema:
        what = f"version {each.version}"
        try:
            with _in_time(f"{what} {CANNOT_READ}"):
                # Listed, so confirmed: the ledger needs no recovery to be read.
                reader = await self._client.reader(each.ledger_id)
                data = (await reader.read(each.entry_id, each.entry_id))[0]
            return decode_record(each.version, decode_entry(data))
        except (LedgerNotFound, EntryAbsent, DamagedSchema, LedgerDamaged) as error:
            raise _lost(schema_id, f"{what}: {error}") from error
        except LedgerError as error:
            raise PersistenceError(f"{what} {CANNOT_READ} ({error})") from error

    async def add(
        self, schema_id: str, before: Locator, schema: SchemaInfo | None
    ) -> tuple[Locator, StoredSchema] | None:
        """Add a version to those that `before` lists; `schema` None is a deletion. None: another
        broker has changed the list meanwhile, and nothing was added.

        Raises: PersistenceError: not stored; MetadataUnavailable: it may have been stored or not;
        IncompatibleSchema: too large, or one too many.
        """
        if len(before.index) >= VERSIONS_MAX:
            raise IncompatibleSchema(
                f"the topic has {len(before.index)} versions of its schema, deletions included, and"
                f" {VERSIONS_MAX} are allowed: delete the schema with force=true to begin again"
            )
        version = before.index[-1].version + 1 if before.index else 0
        timestamp_ms = self._clock.wall_ms()
        digest = digest_of(schema)
        record = encode_record(schema_id, schema, timestamp_ms)
        entry = await _joined(entry_parts(before.index, record, digest))
        if len(entry) > ENTRY_BYTES_MAX:
            raise IncompatibleSchema(
                f"the schema with its properties takes {len(entry)} bytes, and {ENTRY_BYTES_MAX}"
                " are allowed"
            )
        begun = self._clock.now()
        ledger = await self.write_ledger(schema_id, [entry])
        index = (*before.index, IndexEntry(version, ledger.ledger_id, 0, digest))
        if self._clock.now() - begun > LISTED_SECONDS_MAX:
            await self._delete_unlisted([ledger.ledger_id])
            raise PersistenceError("the schema was not stored in time; try again")
        if await self.locator(schema_id) != before:
            # Versions of nodes begin again after a deletion, so that the next write might not
            # notice that another broker has deleted the list and made a new one.
            await self._delete_unlisted([ledger.ledger_id])
            return None
        node_version = await self.list_versions(schema_id, index, before.node_version, ledger)
        if node_version is None:
            return None
        return Locator(index, node_version), StoredSchema(version, schema, timestamp_ms)

    async def list_versions(
        self,
        schema_id: str,
        index: tuple[IndexEntry, ...],
        node_version: int,
        ledger: AwaitedLedger,
    ) -> int | None:
        """Write the locator, and end the new ledger that it refers to. Returns the version of the
        node; None: another broker has written it, and the ledger is deleted.

        Raises: MetadataUnavailable: it may have been written or not.
        """
        outcome: int | Exception
        locator = await _joined(locator_parts(index))
        # At once, because a store syncs both as one group. A ledger that stays open is closed by
        # whoever needs that.
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_close, ledger)
            try:
                outcome = await self._store.put(locator_path(schema_id), locator, node_version)
            except (VersionConflict, MetadataUnavailable) as error:
                outcome = error
        if isinstance(outcome, VersionConflict):
            await self._delete_unlisted([ledger.ledger_id])
            await self._store.sync()
            return None
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    async def write_ledger(self, schema_id: str, entries: list[bytes]) -> AwaitedLedger:
        """A ledger of this schema with these entries, in no list yet. Raises: PersistenceError."""
        ledger: AwaitedLedger | None = None
        try:
            with _in_time("the schema cannot be stored now; try again"):
                ledger = await AwaitedLedger.create(
                    self, ledger_custom_metadata(schema_id), "schema ledger"
                )
                await ledger.append(entries)
        except LedgerError as error:
            raise PersistenceError(
                f"the schema cannot be stored now; try again ({error})"
            ) from error
        finally:
            if ledger is not None and ledger.confirmed + 1 < len(entries):
                ledger.give_up()
                await self._delete_unlisted([ledger.ledger_id])
        return ledger

    async def create_ledger(
        self, custom_metadata: Mapping[str, bytes], listener: WriterListener
    ) -> EntryWriter:
        """LedgerMaker."""
        return await self._client.create_ledger(custom_metadata, listener, password=_PASSWORD)

    @asynccontextmanager
    async def converting(self, schema_id: str) -> AsyncIterator[None]:
        """The turn to convert the topic, or to delete what would be converted."""
        while schema_id in self._converting:
            await self._converting[schema_id].wait()
        ended = self._converting[schema_id] = trio.Event()
        try:
            yield
        finally:
            del self._converting[schema_id]
            ended.set()

    async def delete(self, schema_id: str) -> None:
        """Delete all versions, also of a damaged list. Raises: MetadataUnavailable."""
        path = locator_path(schema_id)
        if self.postponed or schema_id in self.unconverted:
            # While one is left the conversion finds a topic, so it must not begin in between.
            async with self.converting(schema_id):
                await delete_old_versions(self._store, path)
            self.unconverted.pop(schema_id, None)
        while True:
            stored = await self._store.get(path)
            if stored is None:
                return
            data, node_version = stored
            try:
                await self._store.delete(path, node_version)
            except NodeNotFound:
                return
            except VersionConflict:
                await self._store.sync()
                continue
            try:
                index = decode_locator(data)
            except DamagedSchema as error:
                _log.warning(
                    "ledgers of a deleted schema left to the next start",
                    schema=schema_id,
                    reason=str(error),
                )
                return
            await self._delete_unlisted({each.ledger_id for each in index})
            return

    async def _delete_unlisted(self, ledger_ids: Iterable[int]) -> None:
        """Delete ledgers in no list. What cannot be deleted is an orphan for the next start."""
        left = set(ledger_ids)

        async def delete(ledger_id: int) -> None:
            async with slots:
                try:
                    await self._client.delete(ledger_id)
                except MetadataUnavailable as error:
                    _log.info("ledger not deleted", ledger_id=ledger_id, reason=str(error))
                else:
                    left.discard(ledger_id)

        slots = trio.Semaphore(_DELETIONS_AT_ONCE_MAX)
        with trio.move_on_after(WAIT_SECONDS_MAX, shield=True):
            async with trio.open_nursery() as nursery:
                for ledger_id in sorted(left):
                    nursery.start_soon(delete, ledger_id)
        if left:
            _log.warning("ledgers of schemas left to the next start", count=len(left))


async def _joined(parts: Iterator[bytes]) -> bytes:
    """A long record, encoded in slices."""
    return b"".join(await taken_in_slices(parts, 1))


async def _close(ledger: AwaitedLedger) -> None:
    try:
        await ledger.writer.close()
    except (LedgerError, MetadataUnavailable) as error:
        _log.info("schema ledger stays open", ledger_id=ledger.ledger_id, reason=str(error))


@contextmanager
def _in_time(text: str) -> Iterator[None]:
    """Raises: PersistenceError with the text: it took too long."""
    try:
        with trio.fail_after(WAIT_SECONDS_MAX):
            yield
    except trio.TooSlowError:
        raise PersistenceError(f"{text} (no answer in {WAIT_SECONDS_MAX:.0f} s)") from None


def _lost(schema_id: str, detail: str) -> SchemaLost:
    return SchemaLost(
        f"the schema of {schema_id} is damaged: {detail}. Restore the bookies' directories and the"
        " metadata from one backup, or delete the schema with force=true and add it again"
    )
