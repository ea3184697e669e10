"""The cursors of a shadow topic: the slowest position of each share, stored and reported.

A cursor is stored below the record of the shadow, like that of any topic, so that the next broker
that serves the shadow continues from it. While positions change, they are reported to the owner of
the source every `REPORT_SECONDS`, and stored every `STORE_SECONDS`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import structlog
import trio

from broker.managed_ledger.cursor import Cursor
from broker.managed_ledger.cursor_record import INTERNAL_PREFIX
from broker.managed_ledger.cursor_store import CursorStore
from broker.managed_ledger.ledger_list import OwnershipLost
from broker.managed_ledger.paths import decode_name, ledger_info_path
from broker.topics.broadcast.selection import PROPERTY
from broker.topics.follow.share import Share
from broker.topics.follow.share_cursor import ShareCursor
from ledgers.errors import LedgerError
from protocol.errors import NotAllowed, ServiceNotReady

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from broker.managed_ledger.context import LedgerContext
    from broker.managed_ledger.ledger_table import LedgerTable
    from broker.topics.follow.link import Link
    from broker.topics.subscription.ports import CursorPort
    from protocol.position import Position
    from protocol.topic_name import TopicName

REPORT_SECONDS: Final = 0.1
STORE_SECONDS: Final = 1.0

log = structlog.get_logger()


@final
class ShareCursors:
    """See the module docstring."""

    def __init__(
        self,
        context: LedgerContext,
        shadow: TopicName,
        source: TopicName,
        table: LedgerTable,
        link: Link,
        check_owner: Callable[[], Awaitable[None]],
        give_up: Callable[[str], None],
    ) -> None:
        self.by_name: dict[str, Cursor] = {}
        """Those that are stored, and those of parts of the topic, without storage."""
        self._shared: dict[str, ShareCursor] = {}
        self._context = context
        self._shadow = shadow
        self._source = source
        self._table = table
        self._link = link
        self._check_owner = check_owner
        self._give_up = give_up
        self._dirty = trio.Event()

    @property
    def _name(self) -> str:
        return self._shadow.managed_ledger_name

    # --- opening ------------------------------------------------------------------------

    async def open(
        self, name: str, initial: Position, properties: Mapping[str, str], *, durable: bool
    ) -> CursorPort:
        """Find the cursor, or create it at this mark-delete position, and a share at the owner with
        it. A share from the first entry on starts where the owner's subscription does.

        Raises: NotAllowed, ServiceNotReady, OwnershipLost.
        """
        known = self._shared.get(name) or self.by_name.get(name)
        if known is not None:
            return known
        mark_delete = min(initial, self._table.last_confirmed)
        if properties.get(PROPERTY) != "true":
            raise NotAllowed(
                f"{self._shadow.full} is a shadow of {self._source.full} and serves broadcast "
                f"subscriptions only: subscribe with the property {PROPERTY}=true"
            )
        first = self._table.first_position
        before_first = (first[0], first[1] - 1)
        is_earliest = mark_delete <= before_first
        share = self._share(name, mark_delete, durable=durable)
        if is_earliest:
            share.next_position = None
        kept = await self._link.add(share)
        if is_earliest:
            mark_delete = min(max(kept, before_first), self._table.last_confirmed)
        own = {key: text for key, text in properties.items() if not key.startswith(INTERNAL_PREFIX)}
        cursor = self._new_cursor(name, mark_delete, own, durable=durable)
        try:
            await cursor.create()
        except BaseException:
            self._link.drop(share)
            raise
        return self._keep(cursor, share)

    def open_part(self, name: str, initial: Position) -> Cursor:
        """Find the cursor of a part of the topic, or make it, without storage."""
        known = self.by_name.get(name)
        if known is None:
            mark_delete = min(initial, self._table.last_confirmed)
            known = self.by_name[name] = self._new_cursor(name, mark_delete, {}, durable=False)
        return known

    async def restore(self) -> None:
        """Load what is stored. Raises: ServiceNotReady, OwnershipLost, NotAllowed."""
        for encoded in await self._context.store.children(ledger_info_path(self._name)):
            await self._restore(decode_name(encoded))

    async def _restore(self, name: str) -> None:
        """One that is no broadcast, from before the topic was a shadow, stays as it is stored."""
        cursor = self._new_cursor(name, self._table.last_confirmed, {}, durable=True)
        try:
            await cursor.restore()
        except LedgerError as error:
            raise ServiceNotReady(
                f"the cursor {name} of {self._shadow.full} cannot be read now, try again: {error}"
            ) from error
        if cursor.properties.get(PROPERTY) != "true":
            log.warning("subscription of a shadow not served", topic=self._name, cursor=name)
            return
        share = self._share(name, cursor.mark_delete, durable=True)
        kept = await self._link.add(share)
        # Reported, and not stored before the former follower ended: see `share_report`.
        cursor.ack_cumulative(min(kept, self._table.last_confirmed))
        self._keep(cursor, share)

    def _share(self, name: str, slowest: Position, *, durable: bool) -> Share:
        return Share(
            name,
            self._shadow,
            self._source,
            self._link.next_consumer_id(),
            durable=durable,
            slowest=lambda: slowest,
            next_position=self._table.next_position,
        )

    def _keep(self, cursor: Cursor, share: Share) -> ShareCursor:
        share.slowest = lambda: cursor.mark_delete
        share.next_position = self._table.next_position
        self.by_name[cursor.name] = cursor
        shared = self._shared[cursor.name] = ShareCursor(cursor, share, self._link)
        self._dirty.set()
        return shared

    def _new_cursor(
        self, name: str, mark_delete: Position, properties: Mapping[str, str], *, durable: bool
    ) -> Cursor:
        store = CursorStore(self._context, self._name, name, self) if durable else None
        ranges_max = self._context.config.max_ranges_in_metadata_store
        return Cursor(name, self._table, mark_delete, properties, store, ranges_max, self)

    async def check_owner(self) -> None:
        """See StoreOwner."""
        await self._check_owner()

    def ownership_lost(self, detail: str) -> None:
        """See StoreOwner."""
        self._give_up(detail)

    def ledger_passed(self) -> None:
        """See CursorOwner. Acknowledged ledgers are deleted by the owner of the source."""

    def cursor_changed(self, cursor: Cursor) -> None:
        """See CursorOwner."""
        del cursor
        self._dirty.set()

    # --- while it is served -------------------------------------------------------------

    async def keep(self, release: Callable[[], None]) -> None:
        """Report and store what changes, until cancelled. `release` is called with each report."""
        clock = self._context.clock
        while True:
            await self._dirty.wait()
            self._dirty = trio.Event()
            store_at = clock.now() + STORE_SECONDS
            # A cursor that is dirty does not report further changes.
            while any(cursor.is_dirty for cursor in self.by_name.values()):
                await trio.sleep(REPORT_SECONDS)
                self._link.report()
                release()
                if clock.now() >= store_at:
                    await self._store()
                    store_at = clock.now() + STORE_SECONDS
            self._link.report()

    async def _store(self) -> None:
        for cursor in list(self.by_name.values()):
            if not cursor.is_dirty or self.by_name.get(cursor.name) is not cursor:
                continue
            try:
                await cursor.flush()
            except OwnershipLost as lost:
                self._give_up(lost.message)
            except Exception as error:  # stored later
                log.warning(
                    "cursor_flush_failed", topic=self._name, cursor=cursor.name, error=str(error)
                )

    async def delete(self, name: str) -> None:
        """Delete the cursor with what is stored of it, then the place of the share at the owner.

        Raises: MetadataUnavailable: the cursor is as before.
        """
        cursor = self.by_name.get(name)
        if cursor is None:
            return
        await cursor.delete()
        self.by_name.pop(name, None)
        shared = self._shared.pop(name, None)
        if shared is not None:
            await self._link.end(shared.share)

    async def end_shares(self) -> None:
        """The owner need not keep anything for this shadow any more."""
        for shared in list(self._shared.values()):
            await self._link.end(shared.share)

    async def close(self) -> None:
        """Store everything. What cannot be stored continues from its last stored position."""
        for cursor in list(self.by_name.values()):
            try:
                await cursor.close()
            except Exception as error:  # the other cursors are still to be stored
                log.warning(
                    "cursor_not_stored", topic=self._name, cursor=cursor.name, error=str(error)
                )

    def forget(self) -> None:
        """Release everything after `close`."""
        self.by_name.clear()
        self._shared.clear()
