"""Opening the metadata store that a URL names.

    zk:host:port,host:port/chroot     ZooKeeper; `zk://` too, as well as no scheme at all
    unix:/path/of/socket              the store of another process of this machine
    rocksdb:/path/of/directory        a database of this process alone; `rocksdb://` too
    memory:                           kept nowhere; `memory:name` too

These are Pulsar's forms, besides `unix:`. Pulsar's BookKeeper driver puts `metadata-store:` before
them.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import structlog
import trio

from metadata.store import CONNECT_SECONDS_MAX, MetadataUnavailable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from metadata.store import MetadataStore

log = structlog.get_logger()

UNIX: Final = "unix:"
ROCKSDB: Final = "rocksdb:"
MEMORY: Final = "memory:"
ZOOKEEPER: Final = "zk:"
SILENT_SECONDS_MAX: Final = 2.0
"""How long a store may take to answer before a person wants to know."""
_DRIVER: Final = "metadata-store:"
_NOT_SUPPORTED: Final = ("etcd:", "oxia:")


async def open_store(
    url: str, session_timeout_seconds: float, config_path: str = ""
) -> MetadataStore:
    """A store that is another process is waited for, which a line of the log says before.
    `config_path`: the file about TLS and credentials, for ZooKeeper; empty: there are none.

    Raises: MetadataUnavailable: the URL is of no store, or the store cannot be opened.
    """
    rest = url.removeprefix(_DRIVER)
    if config_path and rest.startswith((MEMORY, UNIX, ROCKSDB)):
        raise MetadataUnavailable(f"{url}: metadataStoreConfigPath is for ZooKeeper only")
    if rest.startswith(_NOT_SUPPORTED):
        raise MetadataUnavailable(_not_supported(url, rest))
    if rest.startswith(MEMORY):
        from metadata.memory_store import MemoryStore

        return MemoryStore()
    if rest.startswith(UNIX):
        from metadata.socket_store import SocketStore

        path = _path_in(url, rest, UNIX)
        async with _saying_that_it_waits(url):
            return await SocketStore.open(path, session_timeout_seconds)
    if rest.startswith(ROCKSDB):
        from metadata.rocks_store import RocksStore

        return await RocksStore.open(Path(_path_in(url, rest, ROCKSDB)))
    from metadata.zookeeper_access import AccessRefused, read_access
    from metadata.zookeeper_address import zookeeper_address
    from metadata.zookeeper_store import ZooKeeperStore

    try:
        address = zookeeper_address(rest, session_timeout_seconds, read_access(config_path))
    except (ValueError, AccessRefused) as error:
        raise MetadataUnavailable(str(error)) from error
    async with _saying_that_it_waits(url):
        return await ZooKeeperStore.open(address)


@asynccontextmanager
async def _saying_that_it_waits(url: str) -> AsyncIterator[None]:
    """A line at the beginning, and after a while one that commands show as well."""
    log.info("waiting for the metadata store", url=url, seconds_max=CONNECT_SECONDS_MAX)

    async def warn() -> None:
        await trio.sleep(SILENT_SECONDS_MAX)
        log.warning(
            "the metadata store does not answer yet", url=url, seconds_max=CONNECT_SECONDS_MAX
        )

    failure: Exception | None = None
    async with trio.open_nursery() as nursery:
        nursery.start_soon(warn)
        try:
            yield
        except Exception as error:
            failure = error  # not in a group, which the caller does not expect
        nursery.cancel_scope.cancel()
    if failure is not None:
        raise failure


def shared_place(url: str) -> object:
    """The place of a store that several processes share: equal for URLs of the same place.

    Raises: ValueError: the URL is of no such store. The text says what is wrong.
    """
    rest = url.removeprefix(_DRIVER)
    if rest.startswith(_NOT_SUPPORTED):
        raise ValueError(_not_supported(url, rest))
    if rest.startswith((ROCKSDB, MEMORY)):
        kind = rest.partition(":")[0]
        raise ValueError(f"{url}: processes cannot share a store of the kind {kind!r}")
    try:
        if rest.startswith(UNIX):
            return _path_in(url, rest, UNIX)
    except MetadataUnavailable as error:
        raise ValueError(str(error)) from error
    from metadata.zookeeper_address import zookeeper_address

    return zookeeper_address(rest, 1.0)


def _not_supported(url: str, rest: str) -> str:
    return f"{url}: Vela has no {rest.partition(':')[0]} store. Use ZooKeeper (zk:host:port)"


def _path_in(url: str, rest: str, scheme: str) -> str:
    path = rest.removeprefix(scheme)
    path = path.removeprefix("//") if path.startswith("///") or scheme == ROCKSDB else path
    if not path.startswith("/"):
        raise MetadataUnavailable(f"{url}: an absolute path should follow {scheme}")
    return path
