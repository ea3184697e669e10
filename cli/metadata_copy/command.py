"""`vela copy-metadata`: from the data directory of `vela standalone` to a new cluster."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from cli.commands import DEFAULT_DATA_DIRECTORY
from cli.metadata_copy.names import NODE_BYTES_MAX
from runtime.command_line import FilePath, first_of, log_to_stderr, refuse

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from broker.cluster.cluster_metadata import Json
    from broker.ground.config import BrokerConfig
    from cli.metadata_copy.source import MovedBookie
    from cli.metadata_copy.survey import Survey
    from metadata.zookeeper_address import ZooKeeperAddress


@click.command("copy-metadata")
@click.option(
    "--data-dir",
    type=FilePath(),
    default=DEFAULT_DATA_DIRECTORY,
    show_default=True,
    help="The data directory of the stopped `vela standalone`. It is not changed.",
)
@click.option(
    "--config",
    "config_files",
    type=FilePath(),
    multiple=True,
    help="The configuration files of `vela standalone`. May be repeated.",
)
@click.option(
    "-md",
    "--metadata-store",
    "metadata_store",
    required=True,
    help="Metadata store of the new cluster, without topics: zk:host:port,host:port/chroot.",
)
@click.option("-c", "--cluster", help="Name of the new cluster [default: the former name].")
@click.option(
    "-uw", "--web-service-url", required=True, help="http://host:port of its future brokers."
)
@click.option("-ub", "--broker-service-url", help="pulsar://host:port of its future brokers.")
@click.option(
    "--node-bytes-max",
    type=click.IntRange(4_096),
    default=NODE_BYTES_MAX,
    show_default=True,
    help="jute.maxbuffer of ZooKeeper.",
)
@click.option(
    "--zookeeper-session-timeout-ms",
    "session_timeout_ms",
    type=click.IntRange(1000),
    default=30_000,
    show_default=True,
    help="Session timeout of this command.",
)
@click.option(
    "--metadata-store-config-path",
    "config_path",
    default="",
    help="A file of ZooKeeper's client: TLS and credentials.",
)
def command(
    data_dir: Path,
    config_files: tuple[Path, ...],
    metadata_store: str,
    cluster: str | None,
    web_service_url: str,
    broker_service_url: str | None,
    node_bytes_max: int,
    session_timeout_ms: int,
    config_path: str,
) -> None:
    """Copy the metadata of a stopped `vela standalone` to the ZooKeeper of a new cluster.

    Its directories are then those of a bookie of that cluster, whose brokers serve its topics. An
    interrupted copy is completed by the same command."""
    import trio

    from bookie.errors import StorageError
    from broker.assembly.parts import StartError
    from broker.cluster.cluster_metadata import WrongCluster
    from broker.configuration.config_file import load_config
    from broker.ground.data_directory import DataDirectoryError
    from cli.metadata_copy.names import NotCopied
    from metadata.store import MetadataUnavailable
    from metadata.zookeeper_access import AccessRefused
    from protocol.errors import MetadataError
    from settings.reading import ConfigError

    log_to_stderr("warning")
    given = {"serviceUrl": web_service_url, "brokerServiceUrl": broker_service_url}
    data = {key: value for key, value in given.items() if value is not None}
    try:
        address = _zookeeper(metadata_store, session_timeout_ms / 1000, config_path)
        config = load_config(config_files, os.environ, {}).config
        trio.run(_copy, data_dir, config, address, cluster, data, node_bytes_max)
    except* (ConfigError, DataDirectoryError, StartError, StorageError, ValueError) as group:
        refusal: BaseExceptionGroup = group
    except* (AccessRefused, NotCopied, WrongCluster, MetadataUnavailable, MetadataError) as group:
        refusal = group
    else:
        return
    refuse(str(first_of(refusal)))


def _zookeeper(url: str, session_timeout_s: float, config_path: str) -> ZooKeeperAddress:
    """Raises: ValueError: it names no ZooKeeper. The text says so. AccessRefused."""
    from metadata.opening import shared_place
    from metadata.zookeeper_access import read_access
    from metadata.zookeeper_address import ZooKeeperAddress, zookeeper_address

    if not isinstance(shared_place(url), ZooKeeperAddress):
        raise ValueError(f"{url} is no ZooKeeper: name it as zk:host:port,host:port/path")
    access = read_access(config_path)
    return zookeeper_address(url.removeprefix("metadata-store:"), session_timeout_s, access)


async def _copy(
    data_dir: Path,
    config: BrokerConfig,
    address: ZooKeeperAddress,
    cluster: str | None,
    data: Json,
    node_bytes_max: int,
) -> None:
    import trio

    from broker.cluster.cluster_metadata import NewCluster
    from cli.metadata_copy.copying import copy_metadata
    from cli.metadata_copy.source import opened_source
    from metadata.zookeeper_store import ZooKeeperStore

    async with opened_source(data_dir, config) as source:
        new = NewCluster(name=cluster or source.cluster, data=data)
        store = await ZooKeeperStore.open(address)
        try:
            copied = await copy_metadata(
                source, store, new, node_bytes_max, lambda line: click.echo(line, err=True)
            )
        finally:
            with trio.CancelScope(shield=True):
                await store.aclose()
        _report(source.cluster, new.name, copied, source.bookies)


def _report(former: str, cluster: str, copied: Survey, bookies: Mapping[str, MovedBookie]) -> None:
    click.echo(
        f"copied {copied.node_count} nodes ({copied.ledger_count} ledgers) of cluster {former} to "
        f"cluster {cluster}. Start `vela bookie` on these directories, with these keys, and do not "
        "start `vela standalone` on them again:"
    )
    for bookie_id, bookie in bookies.items():
        directories = bookie.config
        click.echo(
            f"bookieId={bookie_id}\n"
            f"journalDirectories={','.join(map(os.path.abspath, directories.journalDirectories))}\n"
            f"ledgerDirectories={','.join(map(os.path.abspath, directories.ledgerDirectories))}"
        )
