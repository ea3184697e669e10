"""Bookies on simulated machines behind the real TCP server, which fail on demand.

A node keeps its port over restarts. It can be killed (what was not synced is lost), be paused
(takes requests, answers nothing), lose its connections, refuse adds, and answer late.
"""

from __future__ import annotations

import random
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

import trio

from bookie.api import Status
from bookie.net.server import BookieServer, BookieServerConfig
from bookie.tests.conftest import Machine

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from bookie.api import AddSink, EntryBody
    from bookie.bookie import Bookie


class _LateSink:
    """Keeps the answers of a bookie until they are let go."""

    def __init__(self, gate: Gate, sink: AddSink) -> None:
        self._gate = gate
        self._sink = sink

    def on_add_replies(self, *reply: int) -> None:
        if self._gate.answers_late:
            self._gate.late.append((self._sink, reply))
        else:
            self._sink.on_add_replies(*reply)

    def on_replies_end(self) -> None:
        if not self._gate.answers_late:
            self._sink.on_replies_end()


class Gate:
    """Stands before a bookie. What it does not name passes through."""

    def __init__(self) -> None:
        self.bookie: Bookie | None = None
        self.add_status: Callable[[int, int], Status] = lambda ledger_id, entry_id: Status.OK
        self.answers_late = False
        self.late: list[tuple[AddSink, tuple[int, ...]]] = []
        self.adds = 0
        self._open = trio.Event()
        self._open.set()
        self._held: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.bookie, name)

    def pause(self) -> None:
        if self._open.is_set():
            self._open = trio.Event()

    def resume(self) -> None:
        held, self._held = self._held, []
        self._open.set()
        for add in held:
            self.add_entries(*add)

    def drop_held(self) -> None:
        self._held = []
        self.late = []
        self._open.set()

    def let_answers_go(self) -> None:
        self.answers_late = False
        late, self.late = self.late, []
        for sink, reply in late:
            sink.on_add_replies(*reply)
            sink.on_replies_end()

    def add_entries(
        self,
        ledger_id: int,
        first: int,
        bodies: list[EntryBody],
        key: bytes,
        flags: int,
        sink: AddSink,
    ) -> None:
        if not self._open.is_set():
            self._held.append((ledger_id, first, bodies, key, flags, sink))
            return
        assert self.bookie is not None
        late = _LateSink(self, sink)
        for entry_id, body in enumerate(bodies, first):
            self.adds += 1
            status = self.add_status(ledger_id, entry_id)
            if status == Status.OK:
                self.bookie.add_entry(ledger_id, entry_id, body, key, flags, late)
            else:
                token = trio.lowlevel.current_trio_token()
                token.run_sync_soon(self._refuse, late, status, ledger_id, entry_id)

    def _refuse(self, sink: _LateSink, *refusal: int) -> None:
        sink.on_add_replies(*refusal, 1)
        sink.on_replies_end()

    def read_nowait(self, ledger_id: int, entry_id: int) -> bytes | None:
        if not self._open.is_set():
            return None
        assert self.bookie is not None
        return self.bookie.read_nowait(ledger_id, entry_id)

    async def read_entry(self, *arguments: Any, **more: Any) -> bytes:
        await self._open.wait()
        assert self.bookie is not None
        return await self.bookie.read_entry(*arguments, **more)

    async def read_batch(self, *arguments: Any) -> list[bytes]:
        await self._open.wait()
        assert self.bookie is not None
        return await self.bookie.read_batch(*arguments)

    async def fence_ledger(self, *arguments: Any) -> None:
        await self._open.wait()
        assert self.bookie is not None
        await self.bookie.fence_ledger(*arguments)


class Node:
    """See the module docstring."""

    def __init__(self, nursery: trio.Nursery, seed: int) -> None:
        self.gate = Gate()
        self.machine = Machine()
        self.port = 0
        self._nursery = nursery
        self._rng = random.Random(seed)
        self._server_scope = trio.CancelScope()
        self._bookie_scope = trio.CancelScope()
        self._server_ended = trio.Event()
        self._bookie_ended = trio.Event()

    @property
    def bookie_id(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def start(self) -> None:
        await self._nursery.start(self._run_bookie)
        await self.connect()

    async def connect(self) -> None:
        await self._nursery.start(self._run_server)

    async def disconnect(self) -> None:
        self._server_scope.cancel()
        await self._server_ended.wait()

    async def cut(self) -> None:
        """Every connection ends; new ones are taken."""
        await self.disconnect()
        await self.connect()

    async def kill(self) -> None:
        await self.disconnect()
        self.machine.crash(self._rng)
        self._bookie_scope.cancel()
        await self._bookie_ended.wait()
        self.gate.drop_held()

    async def _run_bookie(self, task_status: trio.TaskStatus[None]) -> None:
        self._bookie_ended = trio.Event()
        with trio.CancelScope() as self._bookie_scope:
            try:
                async with AsyncExitStack() as stack:
                    self.gate.bookie = await stack.enter_async_context(self.machine.running())
                    task_status.started()
                    await trio.sleep_forever()
            finally:
                self._bookie_ended.set()

    async def _run_server(self, task_status: trio.TaskStatus[None]) -> None:
        self._server_ended = trio.Event()
        with trio.CancelScope() as self._server_scope:
            server = BookieServer(self.gate, BookieServerConfig())
            try:
                await server.bind("127.0.0.1", self.port)
                self.port = server.port
                async with trio.open_nursery() as nursery:
                    await nursery.start(server.run)
                    task_status.started()
            finally:
                self._server_ended.set()


@asynccontextmanager
async def running_nodes(count: int) -> AsyncIterator[list[Node]]:
    """Started nodes."""
    async with trio.open_nursery() as nursery:
        nodes = [Node(nursery, seed) for seed in range(count)]
        for node in nodes:
            await node.start()
        yield nodes
        nursery.cancel_scope.cancel()
