"""Converts schemas as earlier versions of Vela kept them: a node per version, below the topic's.

Each topic is converted by itself: all its versions are written to one ledger, then the topic's node
lists them (which must not exist before), then the old nodes are deleted, oldest first. If the list
exists already, every old version has to be in it before anything is deleted. A crash at any moment
therefore loses nothing and leaves at most a ledger that no list names. When all topics are
converted, a node records this, and later starts skip the conversion.

One broker at a time converts; others wait. A topic with an old version that cannot be converted is
not changed, and requests for its schema are refused with the reason.

While the bookies take no entries, for example because their disks are full, the broker starts
nevertheless, so that messages can be consumed and topics deleted. Requests for schemas that are not
converted yet are refused, clients try again, and the conversion continues when it can.
"""

from __future__ import annotations

import binascii
import json
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Final, final

import structlog
import trio

from broker.tenancy.namespaces.names import SCHEMAS_PATH
from broker.tenancy.schemas.schema_format import (
    IndexEntry,
    StoredSchema,
    digest_of,
    encode_entry,
    encode_record,
)
from broker.tenancy.schemas.schema_info import SchemaInfo
from broker.tenancy.schemas.schema_ledgers import (
    ENTRY_BYTES_MAX,
    SchemaLedgers,
    delete_old_versions,
    locator_path,
)
from metadata.lease import lease
from metadata.store import MetadataUnavailable, VersionConflict
from protocol.errors import PersistenceError

if TYPE_CHECKING:
    from metadata.store import MetadataStore

_log = structlog.get_logger()

DONE_PATH: Final = "/vela/schemas-in-ledgers"
LEASE_PATH: Final = "/vela/schema-conversion"
_AT_ONCE: Final = 32
_WAIT_SECONDS: Final = 0.2
RETRY_SECONDS: Final = 10.0


class _Unreadable(Exception):
    """An old version cannot be converted. The text says which one."""


@final
class SchemaConversion:
    """See the module docstring."""

    def __init__(
        self, store: MetadataStore, ledgers: SchemaLedgers, retry_seconds: float = RETRY_SECONDS
    ) -> None:
        self._store = store
        self._ledgers = ledgers
        self._retry_seconds = retry_seconds
        self._converted = 0

    async def run(self) -> None:
        """Returns when no topic has schemas in the old form, except those in `unconverted`, or when
        the bookies take no entries: then the rest is `postponed`, and left to `finish`.

        Raises: MetadataUnavailable: the rest is converted by the next start.
        """
        try:
            await self._take_turn()
        except PersistenceError as error:
            self._ledgers.postponed = error.message
            _log.error(
                "schemas of an earlier version not converted yet",
                reason=error.message,
                consequence="their producers and consumers are refused until they are",
            )

    async def finish(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Convert what was postponed, as soon as that is possible."""
        task_status.started()
        while self._ledgers.postponed:
            await trio.sleep(self._retry_seconds)
            try:
                await self._take_turn()
            except (PersistenceError, MetadataUnavailable) as error:
                _log.info("schemas not converted yet", reason=error.message)
            else:
                self._ledgers.postponed = ""

    async def _take_turn(self) -> None:
        """Raises: PersistenceError, MetadataUnavailable: the rest is not converted."""
        while not await self._store.exists(DONE_PATH):
            async with AsyncExitStack() as stack:
                try:
                    await stack.enter_async_context(lease(self._store, LEASE_PATH))
                except VersionConflict:
                    await trio.sleep(_WAIT_SECONDS)
                    continue
                await self._convert_all()
                return

    async def _convert_all(self) -> None:
        await self._store.sync()
        slots = trio.Semaphore(_AT_ONCE)
        failures: list[Exception] = []

        async def convert(schema_id: str) -> None:
            try:
                async with self._ledgers.converting(schema_id):
                    await self._convert(schema_id)
            except _Unreadable as error:
                _log.error("schema not converted", schema=schema_id, reason=str(error))
                self._ledgers.unconverted[schema_id] = str(error)
            except Exception as error:
                failures.append(error)
                nursery.cancel_scope.cancel()
            finally:
                slots.release()

        async with trio.open_nursery() as nursery:
            for tenant in await self._store.children(SCHEMAS_PATH):
                for namespace in await self._store.children(f"{SCHEMAS_PATH}/{tenant}"):
                    parent = f"{tenant}/{namespace}"
                    for topic in await self._store.children(f"{SCHEMAS_PATH}/{parent}"):
                        await slots.acquire()
                        nursery.start_soon(convert, f"{parent}/{topic}")
        if failures:
            raise failures[0]
        if self._converted:
            _log.info("schemas converted to ledgers", topics=self._converted)
        if not self._ledgers.unconverted:
            await self._store.put(DONE_PATH, b"1", None)

    async def _convert(self, schema_id: str) -> None:
        """Raises: _Unreadable, PersistenceError, MetadataUnavailable."""
        path = locator_path(schema_id)
        old = await self._old_versions(path)
        if not old:
            return
        locator = await self._ledgers.converted(schema_id)
        if not locator.index:
            await self._write(schema_id, old, locator.node_version)
            locator = await self._ledgers.converted(schema_id)
        listed = {(each.version, each.digest) for each in locator.index}
        for each in old:
            if (each.version, digest_of(each.schema)) not in listed:
                raise _Unreadable(
                    f"{path} lists other schemas than the nodes below it, which earlier versions of"
                    f" Vela wrote: version {each.version}"
                )
        await delete_old_versions(self._store, path)
        self._converted += 1

    async def _write(self, schema_id: str, old: list[StoredSchema], node_version: int) -> None:
        index: list[IndexEntry] = []
        entries = []
        for entry_id, each in enumerate(old):
            digest = digest_of(each.schema)
            record = encode_record(schema_id, each.schema, each.timestamp_ms)
            # The list names all of them, and the ledger has no number yet.
            entries.append(encode_entry((), record, digest))
            if len(entries[-1]) > ENTRY_BYTES_MAX:
                raise _Unreadable(
                    f"version {each.version} takes {len(entries[-1])} bytes with its properties, "
                    f"and {ENTRY_BYTES_MAX} fit in an entry"
                )
            index.append(IndexEntry(each.version, 0, entry_id, digest))
        ledger = await self._ledgers.write_ledger(schema_id, entries)
        listed = tuple(
            IndexEntry(each.version, ledger.ledger_id, each.entry_id, each.digest) for each in index
        )
        await self._ledgers.list_versions(schema_id, listed, node_version, ledger)

    async def _old_versions(self, path: str) -> list[StoredSchema]:
        """The versions below a topic's node, oldest first; [] if there are none in the old form."""
        numbers = sorted(int(name) for name in await self._store.children(path) if name.isdecimal())
        values = [(number, await self._store.get(f"{path}/{number}")) for number in numbers]
        found = [(number, stored[0]) for number, stored in values if stored is not None]
        if not any(value.startswith(b"{") for _, value in found):
            return []  # topics with such names, whose own names have one more part (old Pulsar)
        return [_decoded(path, number, value) for number, value in found]


def _decoded(path: str, version: int, value: bytes) -> StoredSchema:
    try:
        record = json.loads(value)
        timestamp_ms = int(record["timestamp"])
        if record.get("deleted"):
            return StoredSchema(version, None, timestamp_ms)
        schema = SchemaInfo.from_stored(record)
        encode_record("", schema, timestamp_ms)
    except (ValueError, KeyError, TypeError, AttributeError, binascii.Error) as error:
        raise _Unreadable(f"the record at {path}/{version} cannot be read ({error!r})") from None
    return StoredSchema(version, schema, timestamp_ms)
