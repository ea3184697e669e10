"""`vela autorecovery`: replaces the copies of lost bookies, as BookKeeper's autorecovery does."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

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
    running = use_compiled()
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
    _run(loaded.config, identity, running)


def _run(config: AutorecoveryConfig, identity: Identity, running: str) -> None:
    import trio

    from bookie.errors import StorageError
    from metadata.store import MetadataUnavailable

    try:
        trio.run(_serve, config, identity, running)
    except* (StorageError, MetadataUnavailable) as group:
        refusal = group
    else:
        return
    refuse(str(first_of(refusal)))


async def open_store(config: AutorecoveryConfig) -> MetadataStore:
    """The metadata store that the configuration names.

    Raises: BookieRefusesToStart, MetadataUnavailable.
    """
    from bookie.process.cluster import open_metadata

    return await open_metadata(config)


async def _serve(config: AutorecoveryConfig, identity: Identity, running: str) -> None:
    import structlog
    import trio

    from autorecovery.process import running_autorecovery

    with stop_signals() as signals:
        async with trio.open_nursery() as nursery:
            stop = trio.Event()
            nursery.start_soon(watch_signals, signals, stop)
            with trio.CancelScope() as until_stop:
                nursery.start_soon(_cancel, until_stop, stop)
                async with running_autorecovery(
                    config, identity, lambda: open_store(config)
                ) as recovery:
                    structlog.get_logger().info("running", modules=running)
                    ready = _ready(identity, recovery.http_port)
                    nursery.start_soon(say_ready, f"vela autorecovery ready: {ready}")
                    await trio.sleep_forever()
            nursery.cancel_scope.cancel()


def _ready(identity: Identity, http_port: int) -> str:
    host = f"[{identity.host}]" if ":" in identity.host else identity.host
    return f"{identity.bookie_id} http://{host}:{http_port}" if http_port else identity.bookie_id


async def _cancel(scope: trio.CancelScope, stop: trio.Event) -> None:
    await stop.wait()
    scope.cancel()
