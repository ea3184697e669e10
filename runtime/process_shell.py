"""The shell of a process that serves until a signal: the same for every command that runs a server.

A server is a context manager: it is ready when its block begins, yields what the ready line says
of it, and ends in good order with the block. A stop signal ends the block. Before the server is
ready the signal cancels its start, which may wait for long: for a metadata store, or for the end of
a former session.
"""

from __future__ import annotations

import gc
from contextlib import asynccontextmanager
from importlib import import_module
from typing import TYPE_CHECKING

import structlog
import trio

from runtime.command_line import first_of, refuse, say_ready, stop_signals, watch_signals
from runtime.free_memory import return_free_memory, tune_allocator
from runtime.tuning import keep_for_good, tune_process

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence
    from contextlib import AbstractAsyncContextManager

    Server = Callable[[], AbstractAsyncContextManager[str]]

log = structlog.get_logger()


def prepare_process(modules: Sequence[str] = ()) -> None:
    """Settings of a process that stores messages. `modules` are loaded before the event loop runs,
    with all that they need."""
    tune_allocator()
    for module in modules:
        import_module(module)
    tune_process()


def run_server(command: str, server: Server, refusals: tuple[type[Exception], ...]) -> None:
    """Serve until SIGTERM, SIGINT or SIGHUP. An error that is one of `refusals` ends the process
    with one line. From here on garbage is collected."""
    gc.enable()
    try:
        trio.run(_serve, command, server)
    except* refusals as group:
        refusal = group
    else:
        return
    refuse(str(first_of(refusal)))


async def _serve(command: str, server: Server) -> None:
    with stop_signals() as signals:
        async with trio.open_nursery() as nursery:
            stop, ready = trio.Event(), trio.Event()
            nursery.start_soon(watch_signals, signals, stop)
            with trio.CancelScope() as starting:
                nursery.start_soon(_cancel_start, starting, stop, ready)
                async with server() as names:
                    ready.set()
                    if not stop.is_set():
                        nursery.start_soon(say_ready, f"{command} ready: {names}")
                    await stop.wait()
            nursery.cancel_scope.cancel()


async def _cancel_start(starting: trio.CancelScope, stop: trio.Event, ready: trio.Event) -> None:
    await stop.wait()
    if not ready.is_set():
        starting.cancel()


@asynccontextmanager
async def settled(modules: str) -> AsyncIterator[None]:
    """For the block of a server that is ready and stores messages: what its start has made is kept,
    and the memory that it has left is returned. `modules` is for the log."""
    keep_for_good()
    log.info("running", modules=modules)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(return_free_memory)
        try:
            yield
        finally:
            nursery.cancel_scope.cancel()
