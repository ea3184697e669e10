"""`vela autorecovery`: replaces the copies of lost bookies, as BookKeeper's autorecovery does."""

from __future__ import annotations

import os
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

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

    from autorecovery.config import AutorecoveryConfig
    from bookie.process.identity import Identity
    from metadata.store import MetadataStore


@click.command("autorecovery")
@configuration_options("A bookkeeper.conf")
@log_level_option
@click.pass_context
def command(
    context: click.Context, config_files: tuple[Path, ...], strict_config: bool, log_level: str
) -> None:
    """Replace the copies that lost bookies held, until SIGTERM or SIGINT."""
    use_compiled: Callable[[], str] = context.obj or (lambda: "from the sources")
    modules = use_compiled()
    from autorecovery.config import AUTORECOVERY_KEYS
    from bookie.errors import BookieRefusesToStart
    from bookie.process.identity import identity_of
    from settings.reading import ConfigError, load_config, report_settings

    log_of_server(log_level)
    try:
        loaded = load_config(AUTORECOVERY_KEYS, config_files, os.environ, strict=strict_config)
        identity = identity_of(loaded.config, "autorecovery")
    except (ConfigError, BookieRefusesToStart) as error:
        refuse(str(error))
    report_settings(loaded, ())
    _run(loaded.config, identity, modules)


def _run(config: AutorecoveryConfig, identity: Identity, modules: str) -> None:
    from bookie.errors import StorageError
    from metadata.store import MetadataUnavailable
    from runtime.process_shell import run_server

    server = partial(_server, config, identity, modules)
    run_server("vela autorecovery", server, (StorageError, MetadataUnavailable))


async def open_store(config: AutorecoveryConfig) -> MetadataStore:
    """The metadata store that the configuration names.

    Raises: BookieRefusesToStart, MetadataUnavailable.
    """
    from bookie.process.cluster import open_metadata

    return await open_metadata(config)


@asynccontextmanager
async def _server(
    config: AutorecoveryConfig, identity: Identity, modules: str
) -> AsyncIterator[str]:
    import structlog

    from autorecovery.process import running_autorecovery

    async with running_autorecovery(config, identity, lambda: open_store(config)) as recovery:
        structlog.get_logger().info("running", modules=modules)
        yield _ready(identity, recovery.http_port)


def _ready(identity: Identity, http_port: int) -> str:
    host = f"[{identity.host}]" if ":" in identity.host else identity.host
    return f"{identity.bookie_id} http://{host}:{http_port}" if http_port else identity.bookie_id
