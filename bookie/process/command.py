"""`vela bookie`: a bookie that is a process of its own, for BookKeeper's and Pulsar's clients."""

from __future__ import annotations

import os
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Final

import click

from runtime.command_line import (
    configuration_options,
    log_level_option,
    log_of_server,
    refuse,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

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
    modules = use_compiled()
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
    _run(loaded.config, identity, modules)


def _run(config: BookieProcessConfig, identity: Identity, modules: str) -> None:
    from bookie.errors import StorageError
    from metadata.store import MetadataUnavailable
    from runtime.open_files import raise_open_files_limit
    from runtime.process_shell import prepare_process, run_server

    raise_open_files_limit()
    prepare_process(MODULES)
    server = partial(_server, config, identity, modules)
    run_server("vela bookie", server, (StorageError, MetadataUnavailable))


@asynccontextmanager
async def _server(
    config: BookieProcessConfig, identity: Identity, modules: str
) -> AsyncIterator[str]:
    from bookie.process.cluster import open_metadata
    from bookie.process.running import running_bookie
    from runtime.process_shell import settled
    from runtime.watchdog import watching_if

    with watching_if(config.eventLoopWatchdogEnabled):
        async with (
            running_bookie(config, identity, lambda: open_metadata(config)) as bookie,
            settled(modules),
        ):
            yield _ready(identity, bookie)


def _ready(identity: Identity, bookie: RunningBookie) -> str:
    if bookie.socket_path:
        return f"{bookie.bookie_id} bookie+unix://{bookie.socket_path}"
    host = f"[{identity.host}]" if ":" in identity.host else identity.host
    text = f"{bookie.bookie_id} bookie://{host}:{bookie.server.port}"
    return f"{text} http://{host}:{bookie.http_port}" if bookie.http_port else text
