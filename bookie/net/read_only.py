"""The embedded bookie as its TCP port serves it: everything can be read, nothing can be changed.

The ledgers of an embedded bookie have one writer, the broker in the same process, and the port does
not authenticate its clients (decision 0013).

- Adds, explicit last-add-confirmed records and forces are answered with READ_ONLY, as by a bookie
  whose disk is full: a client then writes to another bookie.
- A fence is answered with UNAUTHORIZED. It would take the ledger, and with it the topic, from its
  broker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

import structlog
import trio

from bookie.api import FLAG_FENCING, BookieError, Status

if TYPE_CHECKING:
    from bookie.api import AddSink, EntryBody
    from bookie.net.requests import ServedBookie


log = structlog.get_logger()


@final
class ReadOnlyBookie:
    """A `ServedBookie` that refuses changes of another one."""

    def __init__(self, bookie: ServedBookie) -> None:
        self._bookie = bookie
        self._token = trio.lowlevel.current_trio_token()
        self._has_warned = False
        self.read_nowait = bookie.read_nowait
        self.read_batch = bookie.read_batch
        self.last_entry_id = bookie.last_entry_id
        self.list_entry_ids = bookie.list_entry_ids
        self.explicit_lac = bookie.explicit_lac
        self.progress_of = bookie.progress_of
        self.free_and_total_bytes = bookie.free_and_total_bytes

    async def read_entry(
        self, ledger_id: int, entry_id: int, *, flags: int = 0, master_key: bytes = b""
    ) -> bytes:
        """See BookieApi."""
        if flags & FLAG_FENCING:
            await self.fence_ledger(ledger_id, master_key)
        return await self._bookie.read_entry(ledger_id, entry_id)

    def add_entries(
        self,
        ledger_id: int,
        first_entry_id: int,
        bodies: list[EntryBody],
        master_key: bytes,
        flags: int,
        sink: AddSink,
    ) -> None:
        """Refuse, soon."""
        del master_key, flags
        self._token.run_sync_soon(_refuse, ledger_id, first_entry_id, len(bodies), sink)

    async def fence_ledger(self, ledger_id: int, master_key: bytes) -> None:
        """Raises: BookieError: always."""
        del master_key
        await trio.lowlevel.checkpoint()
        if not self._has_warned:
            self._has_warned = True
            log.warning(
                "a fence was refused: the broker here owns the ledgers", ledger_id=ledger_id
            )
        raise BookieError(Status.UNAUTHORIZED, f"ledger {ledger_id} belongs to the broker here")

    async def force_ledger(self, ledger_id: int) -> None:
        """Raises: BookieError: always."""
        await trio.lowlevel.checkpoint()
        raise BookieError(Status.READ_ONLY, f"ledger {ledger_id} belongs to the broker here")

    async def write_explicit_lac(self, ledger_id: int, body: bytes, master_key: bytes) -> None:
        """Raises: BookieError: always."""
        del body, master_key
        await self.force_ledger(ledger_id)


def _refuse(ledger_id: int, first_entry_id: int, count: int, sink: AddSink) -> None:
    sink.on_add_replies(Status.READ_ONLY, ledger_id, first_entry_id, count)
    sink.on_replies_end()
