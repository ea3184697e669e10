"""`vela bookie`: a bookie that is a process of its own, for BookKeeper's and Pulsar's clients."""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Final

import click

from runtime.command_line import (
    configuration_options,
    first_of,
    log_level_option,
    log_of_server,
    refuse,
    say_ready,
    stop_signals,
    watch_signals,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import trio

    from bookie.process.config import BookieProcessConfig
    from bookie.process.identity import Identity
    from bookie.process.running import RunningBookie


MODULES: Final = ("bookie.process.cluster", "bookie.process.running")
"""Loaded before the event loop runs, with all that they need."""


@click.group(invoke_without_command=True)
@configuration_options("A bookkeeper.conf")
@log_level_option
@click.pass_context
def bookie(
    context: click.Context, config_files: tuple[Path, ...], strict_config: bool, log_level: str
) -> None:
    """Run a bookie until SIGTERM or SIGINT; or, with a command, work on the files of a stopped
    one."""
    if context.invoked_subcommand is not None:
        if config_files:
            raise click.UsageError("--config belongs after the command")
        return
    # The program that offers this command may have compiled modules to use, before any import.
    use_compiled: Callable[[], str] = context.obj or (lambda: "from the sources")
    running = use_compiled()
    from bookie.errors import BookieRefusesToStart
    from bookie.process.config import BOOKIE_KEYS, start_notices
    from bookie.process.identity import identity_of
    from settings.reading import ConfigError, load_config, report_settings

    log_of_server(log_level)
    try:
        loaded = load_config(BOOKIE_KEYS, config_files, os.environ, strict=strict_config)
        identity = identity_of(loaded.config)
    except (ConfigError, BookieRefusesToStart) as error:
        refuse(str(error))
    report_settings(loaded, start_notices(loaded.config, identity.bind_host))
    _run(loaded.config, identity, running)


def _run(config: BookieProcessConfig, identity: Identity, running: str) -> None:
    import trio

    from bookie.errors import StorageError
    from metadata.store import MetadataUnavailable
    from runtime.free_memory import tune_allocator
    from runtime.open_files import raise_open_files_limit
    from runtime.tuning import tune_process

    tune_allocator()
    raise_open_files_limit()
    for module in MODULES:
        import_module(module)
    tune_process()
    try:
        trio.run(_serve, config, identity, running)
    except* (StorageError, MetadataUnavailable) as group:
        refusal = group
    else:
        return
    refuse(str(first_of(refusal)))


async def _serve(config: BookieProcessConfig, identity: Identity, running: str) -> None:
    import structlog
    import trio

    from bookie.process.cluster import open_metadata
    from bookie.process.running import running_bookie
    from runtime.free_memory import return_free_memory
    from runtime.tuning import keep_for_good
    from runtime.watchdog import watching_if

    log = structlog.get_logger()
    with (
        watching_if(config.eventLoopWatchdogEnabled),
        stop_signals() as signals,
    ):
        async with trio.open_nursery() as nursery:
            stop = trio.Event()
            nursery.start_soon(watch_signals, signals, stop)
            with trio.CancelScope() as until_stop:
                nursery.start_soon(_cancel, until_stop, stop)
                async with running_bookie(
                    config, identity, lambda: open_metadata(config)
                ) as bookie:
                    keep_for_good()
                    nursery.start_soon(return_free_memory)
                    log.info("running", modules=running)
                    ready = _ready(identity, bookie)
                    nursery.start_soon(say_ready, f"vela bookie ready: {ready}")
                    await trio.sleep_forever()
            nursery.cancel_scope.cancel()


async def _cancel(scope: trio.CancelScope, stop: trio.Event) -> None:
    """A start may wait for long: for ZooKeeper, or for the end of a former session."""
    await stop.wait()
    scope.cancel()


def _ready(identity: Identity, bookie: RunningBookie) -> str:
    if bookie.socket_path:
        return f"{bookie.bookie_id} bookie+unix://{bookie.socket_path}"
    host = f"[{identity.host}]" if ":" in identity.host else identity.host
    text = f"{bookie.bookie_id} bookie://{host}:{bookie.server.port}"
    return f"{text} http://{host}:{bookie.http_port}" if bookie.http_port else text
