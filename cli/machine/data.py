"""The data directory of a cluster on one machine: its bookies, and what the parent does for them.

The parent has the metadata and all directories at once, so it knows that they belong together. It
turns an embedded bookie into a bookie of the cluster, and follows directories that were moved. It
refuses to guess: fewer bookies than there are with data, and bookies with data but no metadata, are
errors.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import structlog

from bookie.config import BookieConfig
from bookie.cookie import FILE_NAME as COOKIE
from bookie.cookie import adopt, refuse_other_cluster
from bookie.disk import RealDisk
from bookie.errors import BookieRefusesToStart, CookieDamaged
from bookie.process.cluster import StoredCookies, initialize_ledgers
from broker.assembly.parts import StartError
from broker.ground.data_directory import METADATA
from broker.tenancy.namespaces.json_nodes import create_json
from broker.tenancy.namespaces.names import CLUSTERS_PATH
from cli.machine.plan import BOOKKEEPER, bookie_directory, bookie_name
from metadata.rocks_store import RocksStore
from metadata.store import MetadataUnavailable
from protocol.bookkeeper.paths import INSTANCE_ID_PATH

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from cli.machine.plan import Machine
    from metadata.store import MetadataStore


log = structlog.get_logger()


def bookies_with_data(data_directory: Path) -> list[int]:
    """The numbers of the bookies that have directories of their own here."""
    names = os.listdir(data_directory) if data_directory.exists() else []
    numbers = [
        int(name.removeprefix(BOOKKEEPER) or 1)
        for name in names
        if name.startswith(BOOKKEEPER) and (name.removeprefix(BOOKKEEPER) or "1").isdecimal()
    ]
    return sorted(
        number
        for number in numbers
        if any((data_directory / bookie_directory(number)).glob(f"*/current/{COOKIE}"))
    )


def refuse_fewer_bookies(machine: Machine, data_directory: Path) -> None:
    """Raises: StartError."""
    highest = max(bookies_with_data(data_directory), default=0)
    if highest > machine.bookies:
        raise StartError(
            f"data directory {data_directory} has data of {highest} bookies: start with "
            f"--bookies {highest}"
        )


async def open_metadata(machine: Machine, data_directory: Path) -> RocksStore:
    """The parent's store, with the metadata of a cluster. The caller runs and closes it.

    A bookie whose directories are not in order is left as it is: its own start refuses them, and
    the others start without it.

    Raises: StartError, MetadataUnavailable. BookieRefusesToStart: see `_refuse_moved`.
    """
    config = _bookie_config(machine, data_directory, 1)
    has_data = bool(bookies_with_data(data_directory)) or _has_cookie(config)
    try:
        store = await RocksStore.open(data_directory / METADATA, may_create=not has_data)
    except MetadataUnavailable as error:
        raise StartError(str(error)) from error
    try:
        await _refuse_moved(machine, data_directory, store)
        await initialize_ledgers(store)
        await create_json(store, f"{CLUSTERS_PATH}/{machine.config.clusterName}", {})
        for number in range(1, machine.bookies + 1):
            bookie = _bookie_config(machine, data_directory, number)
            try:
                await adopt(bookie, RealDisk(), StoredCookies(store))
            except BookieRefusesToStart as error:
                log.error(
                    "the directories of a bookie are refused", bookie=number, reason=str(error)
                )
    except BaseException:
        await store.aclose()
        raise
    return store


async def _refuse_moved(machine: Machine, data_directory: Path, store: MetadataStore) -> None:
    """Directories that joined a cluster with other metadata are served by its brokers.

    Raises: BookieRefusesToStart, MetadataUnavailable.
    """
    instance = await store.get(INSTANCE_ID_PATH)
    known = None if instance is None else instance[0].decode(errors="replace")
    for number in range(1, machine.bookies + 1):
        try:
            refuse_other_cluster(_bookie_config(machine, data_directory, number), RealDisk(), known)
        except CookieDamaged:
            continue  # its adoption names it


def _bookie_config(machine: Machine, data_directory: Path, number: int) -> BookieConfig:
    """The part of it that matters here: its name and its directories."""
    # The children are given absolute paths, and cookies are compared with those.
    base = (data_directory / bookie_directory(number)).absolute()
    config = machine.config
    return BookieConfig(
        bookieId=bookie_name(number),
        journalDirectories=config.journalDirectories or (f"{base}/journal",),
        ledgerDirectories=config.ledgerDirectories or (f"{base}/ledgers",),
        allowStorageExpansion=config.allowStorageExpansion,
    )


def _has_cookie(config: BookieConfig) -> bool:
    return any(os.path.exists(f"{name}/current/{COOKIE}") for name in config.ledgerDirectories)


_FIELDS = {
    "http": "serviceUrl",
    "https": "serviceUrlTls",
    "pulsar": "brokerServiceUrl",
    "pulsar+ssl": "brokerServiceUrlTls",
}


async def tell_addresses(store: MetadataStore, cluster: str, urls: Iterable[str]) -> None:
    """Tell administrators where the brokers of the cluster are. Raises: MetadataUnavailable."""
    from broker.tenancy.namespaces.tenants import Clusters

    by_scheme = {url.partition("://")[0]: url for url in urls}
    await Clusters(store).create_or_change(
        cluster, {name: by_scheme[each] for each, name in _FIELDS.items() if each in by_scheme}
    )
