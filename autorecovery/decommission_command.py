"""`vela bookie-decommission`: a stopped bookie leaves the cluster for good."""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING

import click

from runtime.command_line import FilePath, log_to_stderr, refuse

if TYPE_CHECKING:
    from pathlib import Path

    from autorecovery.config import AutorecoveryConfig


@click.command("bookie-decommission")
@click.option(
    "--config",
    "config_files",
    type=FilePath(),
    multiple=True,
    help="The bookkeeper.conf of the bookie, or of any other one with --bookie-id.",
)
@click.option("--bookie-id", help="The bookie that leaves [default: that of the configuration].")
@click.option(
    "--wait-seconds",
    type=click.FloatRange(0),
    help="Give up when its ledgers are not copied by then; 0: only say whether they are.",
)
def command(
    config_files: tuple[Path, ...], bookie_id: str | None, wait_seconds: float | None
) -> None:
    """Retire a stopped bookie: have its ledgers copied to others, then delete its cookie.

    Needs a running autorecovery, of Vela or of BookKeeper. Refuses while data would be lost."""
    import trio

    from autorecovery.config import AUTORECOVERY_KEYS, AutorecoveryConfig
    from autorecovery.decommission import NotDecommissioned
    from bookie.errors import BookieRefusesToStart
    from bookie.process.identity import identity_of
    from metadata.store import MetadataUnavailable
    from settings.reading import ConfigError, load_config

    log_to_stderr("warning")
    try:
        config = load_config(AUTORECOVERY_KEYS, config_files, os.environ).config
        if not bookie_id and config == AutorecoveryConfig():
            raise ConfigError(
                "which bookie leaves, and of which cluster? Name its bookkeeper.conf with --config,"
                " or its id with --bookie-id and the metadata store as PULSAR_PREFIX_zkServers or "
                "PULSAR_PREFIX_metadataServiceUri"
            )
        leaving = bookie_id or identity_of(config).bookie_id
        wait_s = math.inf if wait_seconds is None else wait_seconds
        trio.run(_decommission, config, leaving, wait_s)
    except (ConfigError, BookieRefusesToStart, NotDecommissioned, MetadataUnavailable) as error:
        refuse(str(error))
    click.echo(f"bookie {leaving} has left: no ledger names it, and its cookie is deleted")


async def _decommission(config: AutorecoveryConfig, bookie_id: str, wait_s: float) -> None:
    """Raises: NotDecommissioned, MetadataUnavailable, BookieRefusesToStart."""
    from autorecovery.command import open_store
    from autorecovery.decommission import decommission
    from autorecovery.marks import Marks
    from bookie.process.cluster import require_cluster

    told: list[str] = []

    def tell(line: str) -> None:
        if line not in told[-1:]:
            told.append(line)
            click.echo(line, err=True)

    store = await open_store(config)
    try:
        await require_cluster(store)
        await decommission(store, Marks(store, bookie_id), bookie_id, wait_s, tell)
    finally:
        await store.aclose()
