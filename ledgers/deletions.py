"""Deletes the records of ledgers, and tries again while the metadata store does not answer.

A ledger is taken off its list before it is deleted, so nothing refers to it any more. If the
deletion were given up, the ledger and its entries on the bookies would stay for ever. Ids are not
used twice, so a deletion is right however late it comes. A process that ends forgets what it still
has to delete.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import structlog
import trio

from metadata.store import MetadataFailed, MetadataUnavailable, NodeNotFound
from protocol.bookkeeper.paths import ledger_path

if TYPE_CHECKING:
    from collections.abc import Callable

    from metadata.store import MetadataStore

_log = structlog.get_logger()

WAITING_MAX: Final = 100_000
"""Beyond this number the caller gets an error."""
_PAUSE_SECONDS_MIN: Final = 1.0
_PAUSE_SECONDS_MAX: Final = 60.0


@final
class Deletions:
    """See the module docstring."""

    def __init__(self, store: MetadataStore, spawn: Callable[..., object]) -> None:
        """`spawn` starts a task that may outlive its caller."""
        self._store = store
        self._spawn = spawn
        self._waiting: dict[int, None] = {}
        self._is_running = False

    async def delete(self, ledger_id: int) -> None:
        """The record is deleted, or will be when the store answers.

        Raises: MetadataUnavailable: too many wait. MetadataFailed: the store takes no more writes.
        """
        try:
            await self._delete(ledger_id)
        except MetadataFailed:
            raise
        except MetadataUnavailable as error:
            if len(self._waiting) >= WAITING_MAX:
                raise
            self._waiting[ledger_id] = None
            if not self._is_running:
                self._is_running = True
                _log.warning("ledger_deleted_later", ledger_id=ledger_id, reason=str(error))
                self._spawn(self._run)

    async def _delete(self, ledger_id: int) -> None:
        try:
            await self._store.delete(ledger_path(ledger_id))
        except NodeNotFound:
            return

    async def _run(self) -> None:
        pause_seconds = _PAUSE_SECONDS_MIN
        try:
            while self._waiting:
                await trio.sleep(pause_seconds)
                try:
                    await self._delete_waiting()
                except MetadataFailed as error:
                    count = len(self._waiting)
                    _log.warning("ledgers_not_deleted", count=count, reason=str(error))
                    return
                except MetadataUnavailable:
                    pause_seconds = min(2 * pause_seconds, _PAUSE_SECONDS_MAX)
        finally:
            self._is_running = False

    async def _delete_waiting(self) -> None:
        while self._waiting:
            ledger_id = next(iter(self._waiting))
            await self._delete(ledger_id)
            del self._waiting[ledger_id]
