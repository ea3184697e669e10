"""Opens managed ledgers for topics: those of shadows follow their sources, all others are ordinary.

A broker has this in the place of its `ManagedLedgerFactory`, which it uses. The record of a topic
decides its kind. The record of a shadow may list the ledgers of its source (Pulsar's brokers write
it so). Opening it as an ordinary topic would fence the source, and deleting it would delete the
messages of the source: this factory does neither.

A broker by itself serves no shadows, but its data directory may be that of a cluster on one
machine, and hold some. It refuses to open them. Any broker deletes them, and makes ordinary topics
of them again.

The property that makes a shadow may have been written by somebody who may not read the source. Its
right is therefore asked about whenever a shadow is opened (`ShadowRights`), and once more after
its ledger is in `followed`: a right that is revoked after that closes the shadow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, final

import structlog
import trio

from broker.ground.operations import Operations
from broker.managed_ledger.attached_ledger import delete_attached
from broker.managed_ledger.context import LedgerContext
from broker.managed_ledger.cursor_record import INLINE, attached_ledger, decode_cursor_record
from broker.managed_ledger.ledger_list import OwnershipLost
from broker.managed_ledger.ledger_record import (
    LedgerRecord,
    decode_ledger_record,
    encode_ledger_record,
)
from broker.managed_ledger.owner_of_ledger import managed_ledger_of
from broker.managed_ledger.paths import decode_name, ledger_info_path
from broker.managed_ledger.roll_pace import RollPace
from broker.managed_ledger.tenure import Tenure
from broker.topics.broadcast.selection import PROPERTY
from broker.topics.follow.followed_ledger import FollowedLedger
from broker.topics.follow.shadow import SHADOW_SOURCE, is_shadow, source_of
from ledgers.errors import LedgerError, LedgerNotFound
from metadata.store import MUST_NOT_EXIST, NodeNotFound, VersionConflict
from protocol.errors import BrokerError, NotAllowed, ServiceNotReady, TopicNotFound
from protocol.topic_name import TopicName

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from broker.managed_ledger.config import LedgerPolicies, ManagedLedgerConfig
    from broker.managed_ledger.factory import ManagedLedgerFactory
    from broker.peers.owner_search import OwnerSearch
    from broker.topics.follow.records_read import RecordsRead
    from broker.topics.topic.topic_ledger import TopicLedger
    from ledgers.client import LedgerClient
    from metadata.store import MetadataStore
    from runtime.clock import Clock

log = structlog.get_logger()


class ShadowRights(Protocol):
    """The rights to read."""

    async def check_shadow(self, shadow: TopicName, source: TopicName) -> None:
        """Raises: AuthorizationError: no role that administers the shadow may consume from the
        source."""


@final
class FollowingFactory:
    """See the module docstring. `await nursery.start(following.run)` before opening anything."""

    def __init__(
        self,
        store: MetadataStore,
        client: LedgerClient,
        config: ManagedLedgerConfig,
        clock: Clock,
        ordinary: ManagedLedgerFactory,
        records: RecordsRead,
        no_shadows: str = "",
    ) -> None:
        """`records`: the store that `ordinary` uses. `no_shadows`: why this broker serves none, and
        what to do about it; empty: it serves them."""
        self._store = store
        self._client = client
        self._config = config
        self._ordinary = ordinary
        self._records = records
        self.refusal = no_shadows
        """Why this broker serves no shadows; empty: it serves them."""
        self._nursery: trio.Nursery | None = None
        self._search: OwnerSearch | None = None
        self._unload: Callable[[TopicName], Awaitable[None]] | None = None
        self._rights: ShadowRights | None = None
        self._operations = Operations(self._running_in)
        self._context = LedgerContext(
            store,
            client,
            config,
            clock,
            ordinary.cache,
            self._spawn,
            RollPace(config),
            ordinary.readers,
            Tenure(store),
        )
        self.followed: dict[str, FollowedLedger] = {}
        """Open shadows by the names of their managed ledgers."""
        self.cache = ordinary.cache

    @property
    def open_count(self) -> int:
        """See `ManagedLedgerFactory.open_count`."""
        return self._ordinary.open_count + len(self.followed)

    def begin(
        self,
        search: OwnerSearch,
        unload: Callable[[TopicName], Awaitable[None]],
        rights: ShadowRights,
    ) -> None:
        """The owners of topics can be asked for from now on. `unload` closes a topic that cannot be
        served any more."""
        self._search = search
        self._unload = unload
        self._rights = rights

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            task_status.started()
            await trio.sleep_forever()

    def _running_in(self) -> trio.Nursery:
        assert self._nursery is not None, "the factory's run has not been started"
        return self._nursery

    def _spawn(self, task: Callable[..., Awaitable[None]], *arguments: object) -> None:
        self._running_in().start_soon(task, *arguments)

    # --- opening ------------------------------------------------------------------------

    async def open(self, name: str, policies: LedgerPolicies | None = None) -> TopicLedger:
        """See `ManagedLedgerFactory.open`. Raises also: NotAllowed, TopicNotFound: a shadow has no
        source that can be followed."""
        known = self.followed.get(name)
        if known is not None and not known.fenced:
            return known
        path = ledger_info_path(name)
        stored = await self._store.get(path)
        if stored is not None:
            record = decode_ledger_record(stored[0], path)
            source = source_of(record.properties)
            if source is not None:
                if self.refusal:
                    shadow = TopicName.from_managed_ledger_name(name)
                    raise NotAllowed(f"{shadow.full} is a shadow of {source.full}: {self.refusal}")
                given = policies or self._config.policies
                return await self._operations.run(
                    name, lambda: self._follow(name, source, record, stored[1], given)
                )
        with self._records.handing_on(path, stored):
            return await self._ordinary.open(name, policies)

    async def create(self, shadow: TopicName, properties: Mapping[str, str]) -> None:
        """Make a topic that is a shadow from the beginning.

        Raises: as `check`. ServiceNotReady: another request makes a topic of this name.
        """
        await self.check(shadow, properties)
        record = encode_ledger_record(LedgerRecord((), None, dict(properties)))
        try:
            path = ledger_info_path(shadow.managed_ledger_name)
            await self._store.put(path, record, MUST_NOT_EXIST)
        except VersionConflict:
            raise ServiceNotReady(f"{shadow.full} is being created: try again") from None

    async def check(self, shadow: TopicName, properties: Mapping[str, str]) -> None:
        """Whether these properties may make a shadow of the topic.

        Raises: TopicNotFound, NotAllowed, InvalidTopicName: of the source that they name.
            AuthorizationError: see ShadowRights.
        """
        source = source_of(properties)
        if source is None or source == shadow or not shadow.persistent:
            raise NotAllowed(f"{shadow.full} cannot be a shadow topic of what its properties name")
        await self._may_follow(shadow, source)
        source_path = ledger_info_path(source.managed_ledger_name)
        stored = await self._store.get(source_path)
        if stored is None:
            raise TopicNotFound(f"{source.full}, the source of a shadow, does not exist")
        if source_of(decode_ledger_record(stored[0], source_path).properties) is not None:
            raise NotAllowed(f"{source.full} is a shadow itself, and has none")

    async def _may_follow(self, shadow: TopicName, source: TopicName) -> None:
        """Raises: AuthorizationError. ServiceNotReady: it cannot be decided yet."""
        if self._rights is None:
            raise ServiceNotReady("this broker is starting: try again")
        await self._rights.check_shadow(shadow, source)

    async def _follow(
        self,
        name: str,
        source: TopicName,
        record: LedgerRecord,
        version: int,
        policies: LedgerPolicies,
    ) -> FollowedLedger:
        known = self.followed.get(name)
        if known is not None and not known.fenced:
            return known
        if self._search is None:
            raise ServiceNotReady("this broker is starting: try again")
        if known is not None:
            await known.close()
        shadow = TopicName.from_managed_ledger_name(name)
        await self._may_follow(shadow, source)
        ledger = FollowedLedger(
            self._context, shadow, source, record, version, policies, self._search, self._failed
        )
        await self._running_in().start(ledger.run)
        try:
            await ledger.open()
            self.followed[name] = ledger
            await self._may_follow(shadow, source)  # it may be revoked by now
        except BaseException:
            if self.followed.get(name) is ledger:
                del self.followed[name]
            ledger.abandon()
            raise
        return ledger

    def _failed(self, ledger: FollowedLedger) -> None:
        if self.followed.get(ledger.name) is ledger:
            self._spawn(self._unload_failed, ledger)

    async def _unload_failed(self, ledger: FollowedLedger) -> None:
        assert self._unload is not None
        try:
            await self._unload(ledger.shadow)
        except (BrokerError, LedgerError) as error:
            log.error("cannot unload a shadow", topic=ledger.shadow.full, reason=str(error))
        except Exception as error:
            log.error("cannot unload a shadow", topic=ledger.shadow.full, exc_info=error)

    # --- closing and deleting -----------------------------------------------------------

    async def close(self, name: str) -> None:
        """Close the ledger if it is open."""
        ledger = self.followed.pop(name, None)
        if ledger is None:
            await self._ordinary.close(name)
        else:
            await ledger.close()

    async def delete(self, name: str) -> None:
        """Delete everything that belongs to the topic. The messages of a shadow belong to its
        source.

        Raises: BrokerError TopicNotFound.
        """
        found = await self._stored_shadow(name)
        if found is None:
            await self._ordinary.delete(name)
            return
        record, _version = found
        ledger = self.followed.get(name)
        if ledger is not None:
            await ledger.end_shares()
        await self.close(name)
        await self._delete_shadow(name, record)

    async def is_shadow(self, name: str) -> bool:
        """Whether the record makes the topic a shadow, even one that cannot be opened. Raises:
        MetadataError, MetadataUnavailable."""
        return await self._stored_shadow(name) is not None

    async def _stored_shadow(self, name: str) -> tuple[LedgerRecord, int] | None:
        """The record of a shadow and its version; None: it is no shadow, or does not exist."""
        path = ledger_info_path(name)
        stored = await self._store.get(path)
        record = None if stored is None else decode_ledger_record(stored[0], path)
        if stored is None or record is None or not is_shadow(record.properties):
            return None
        return record, stored[1]

    async def end(self, name: str, close: Callable[[], Awaitable[None]]) -> bool:
        """Make the shadow an ordinary topic again, with the messages that it has of its own. Its
        broadcast subscriptions, whose positions are in the source, end. `close` closes the topic;
        it is not opened before this returns. Returns whether it was a shadow.

        Raises: BrokerError; OwnershipLost: another broker opens it.
        """
        found = await self._stored_shadow(name)
        if found is None:
            return False
        followed = self.followed.get(name)
        if followed is not None:
            await followed.end_shares()
        await close()
        await self.close(name)
        found = await self._stored_shadow(name)
        if found is None:
            return True
        record, version = found
        path = ledger_info_path(name)
        foreign = await self._ledgers_of_source(record)
        rows = [row for row in record.rows if await self._is_own(row.ledger_id, name, foreign)]
        own = {row.ledger_id for row in rows}
        for encoded in await self._store.children(path):
            if await self._is_of_source(f"{path}/{encoded}", own):
                await self._delete_cursor(name, f"{path}/{encoded}")
        kept = {key: text for key, text in record.properties.items() if key != SHADOW_SOURCE}
        data = encode_ledger_record(LedgerRecord(rows, record.terminated_position, kept))
        try:
            await self._store.put(path, data, version)
        except VersionConflict:
            raise OwnershipLost(name) from None
        return True

    async def _is_of_source(self, path: str, own: set[int]) -> bool:
        """Whether a cursor is at a message of the source."""
        stored = await self._store.get(path)
        if stored is None:
            return False
        record = decode_cursor_record(stored[0], path)
        if record.properties.get(PROPERTY) != "true":
            return False
        return record.position is None or record.position.mark_delete[0] not in own

    async def _delete_shadow(self, name: str, record: LedgerRecord) -> None:
        """Cursors first, then the record, then ledgers, as everywhere."""
        path = ledger_info_path(name)
        for encoded in await self._store.children(path):
            await self._delete_cursor(name, f"{path}/{encoded}")
        await self._store.delete(path)
        for row in record.rows:
            if await self._is_own(row.ledger_id, name):
                await self._client.delete(row.ledger_id)

    async def _ledgers_of_source(self, record: LedgerRecord) -> set[int]:
        """Empty: there is no such source."""
        try:
            source = source_of(record.properties)
        except BrokerError:
            return set()
        path = "" if source is None else ledger_info_path(source.managed_ledger_name)
        stored = await self._store.get(path) if path else None
        rows = () if stored is None else decode_ledger_record(stored[0], path).rows
        return {row.ledger_id for row in rows}

    async def _is_own(self, ledger_id: int, name: str, foreign: set[int] | None = None) -> bool:
        """Whether a listed ledger is the shadow's, from before it was one, and not its source's.
        Some ledgers do not say whose they are: `foreign` names those of the source; None: one that
        does not say it is not the shadow's."""
        try:
            metadata = await self._client.metadata_of(ledger_id)
        except LedgerNotFound:
            return False
        owner = managed_ledger_of(metadata.custom_metadata)
        if owner is None and foreign is not None:
            return ledger_id not in foreign
        return owner == name

    async def _delete_cursor(self, name: str, path: str) -> None:
        stored = await self._store.get(path)
        if stored is None:
            return
        record = decode_cursor_record(stored[0], path)
        try:
            await self._store.delete(path)
        except NodeNotFound:
            return
        cursor_name = decode_name(path.rpartition("/")[2])
        await delete_attached(self._client, attached_ledger(record.properties), name, cursor_name)
        if record.cursor_ledger_id != INLINE:
            await self._client.delete(record.cursor_ledger_id)
