"""A bookie in memory that behaves by the interface and misbehaves on demand.

Replies come from the event loop, as from the real one; with `is_holding` they wait for `release`.
`after_crash` is what a restart finds: durable entries and fences, nothing that was waiting.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from bookie.api import (
    FLAG_FENCING,
    FLAG_RECOVERY_ADD,
    LAST_ENTRY,
    AddSink,
    BookieError,
    EntryBody,
    Status,
)

if TYPE_CHECKING:
    from collections.abc import Callable


class FakeBookie:
    def __init__(self) -> None:
        self.ledgers: dict[int, dict[int, bytes]] = {}
        self.keys: dict[int, bytes] = {}
        self.fenced: set[int] = set()
        self.is_holding = False
        self.add_status: Callable[[int, int], Status] = lambda ledger_id, entry_id: Status.OK
        self.read_status: Callable[[int, int], Status] = lambda ledger_id, entry_id: Status.OK
        self.lac_status: Callable[[], Status] = lambda: Status.OK
        self.explicit_lacs: list[tuple[float, int, bytes]] = []
        """(time, ledger, body)"""
        self.adds = 0
        self.batch_reads = 0
        self._waiting: list[tuple[int, int, EntryBody, int, AddSink]] = []
        self._is_scheduled = False

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def after_crash(self) -> FakeBookie:
        other = FakeBookie()
        other.ledgers = {ledger_id: dict(entries) for ledger_id, entries in self.ledgers.items()}
        other.fenced = set(self.fenced)
        other.keys = dict(self.keys)
        return other

    def add_entry(self, ledger_id, entry_id, body, master_key, flags, sink):
        assert self.keys.setdefault(ledger_id, master_key) == master_key
        self.adds += 1
        self._waiting.append((ledger_id, entry_id, body, flags, sink))
        self._schedule()

    def add_entries(self, ledger_id, first_entry_id, bodies, master_key, flags, sink):
        for entry_id, body in enumerate(bodies, first_entry_id):
            self.add_entry(ledger_id, entry_id, body, master_key, flags, sink)

    def kick(self):
        self._schedule()

    def _schedule(self):
        if not self.is_holding and not self._is_scheduled:
            self._is_scheduled = True
            trio.lowlevel.current_trio_token().run_sync_soon(self._deliver_scheduled)

    def _deliver_scheduled(self):
        self._is_scheduled = False
        if not self.is_holding:
            self.release()

    def release(self, count: int | None = None) -> None:
        """Make the oldest waiting adds durable and answer them."""
        group = self._waiting[:count]
        del self._waiting[: len(group)]
        sinks: dict[int, AddSink] = {}
        runs: list[tuple[AddSink, Status, int, int, int]] = []
        for ledger_id, entry_id, body, flags, sink in group:
            status = self.add_status(ledger_id, entry_id)
            if ledger_id in self.fenced and not flags & FLAG_RECOVERY_ADD:
                status = Status.FENCED
            if status == Status.OK:
                self.ledgers.setdefault(ledger_id, {})[entry_id] = b"".join(body)
            sinks[id(sink)] = sink
            last = runs[-1] if runs else (None, status, -1, 0, 0)
            if last[:3] == (sink, status, ledger_id) and last[3] + last[4] == entry_id:
                runs[-1] = (sink, status, ledger_id, last[3], last[4] + 1)
            else:
                runs.append((sink, status, ledger_id, entry_id, 1))
        for sink, status, ledger_id, first, size in runs:
            sink.on_add_replies(status, ledger_id, first, size)
        for sink in sinks.values():
            sink.on_replies_end()

    def time_out(self) -> None:
        """No answer came in time. They come later all the same."""
        for ledger_id, entry_id, _, _, sink in self._waiting:
            sink.on_add_replies(Status.TIMED_OUT, ledger_id, entry_id, 1)
        for sink in {id(add[4]): add[4] for add in self._waiting}.values():
            sink.on_replies_end()

    def lose(self, stored: int) -> None:
        """The connection ends: the oldest `stored` adds were made durable, none gets its answer."""
        group, self._waiting = self._waiting, []
        for ledger_id, entry_id, body, flags, _ in group[:stored]:
            if ledger_id not in self.fenced or flags & FLAG_RECOVERY_ADD:
                self.ledgers.setdefault(ledger_id, {})[entry_id] = b"".join(body)
        for ledger_id, entry_id, _, _, sink in group:
            sink.on_add_replies(Status.UNREACHABLE, ledger_id, entry_id, 1)
        for sink in {id(add[4]): add[4] for add in group}.values():
            sink.on_replies_end()

    def read_cached(self, ledger_id, entry_id):
        return None

    async def read_entry(self, ledger_id, entry_id, *, flags=0, master_key=b""):
        await trio.lowlevel.checkpoint()
        if flags & FLAG_FENCING:
            await self.fence_ledger(ledger_id, master_key)
        return self._read(ledger_id, entry_id)

    def _read(self, ledger_id, entry_id):
        entries = self.ledgers.get(ledger_id)
        if entry_id == LAST_ENTRY and entries:
            entry_id = max(entries)
        status = self.read_status(ledger_id, entry_id)
        if status != Status.OK:
            raise BookieError(status, f"injected for {ledger_id}:{entry_id}")
        if entries is None:
            raise BookieError(Status.NO_LEDGER, f"{ledger_id}")
        if entry_id not in entries:
            raise BookieError(Status.NO_ENTRY, f"{ledger_id}:{entry_id}")
        return entries[entry_id]

    async def read_batch(self, ledger_id, first_entry_id, count_max, size_bytes_max):
        await trio.lowlevel.checkpoint()
        self.batch_reads += 1
        bodies = [self._read(ledger_id, first_entry_id)]
        size = len(bodies[0])
        while len(bodies) < count_max:
            try:
                body = self._read(ledger_id, first_entry_id + len(bodies))
            except BookieError:
                break
            size += len(body)
            if size > size_bytes_max:
                break
            bodies.append(body)
        return bodies

    async def fence_ledger(self, ledger_id, master_key):
        await trio.lowlevel.checkpoint()
        assert self.keys.setdefault(ledger_id, master_key) == master_key
        self.fenced.add(ledger_id)

    async def force_ledger(self, ledger_id):
        await trio.lowlevel.checkpoint()

    async def write_explicit_lac(self, ledger_id, body, master_key):
        await trio.lowlevel.checkpoint()
        assert self.keys.setdefault(ledger_id, master_key) == master_key
        status = self.lac_status()
        if status != Status.OK:
            raise BookieError(status, f"injected for ledger {ledger_id}")
        self.explicit_lacs.append((trio.current_time(), ledger_id, body))
