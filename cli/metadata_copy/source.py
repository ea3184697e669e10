"""The metadata that are copied: those of a stopped `vela standalone`, with its bookies.

The data directory is locked meanwhile. Nothing in it is changed. The database is checked as before
a start (`rocks/check.py`), because a ledger that is missing in the copy would be deleted from the
bookie. It need not have been closed: whatever was acknowledged is in it, and in the journals, which
the bookies replay.
"""

from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

import trio

from bookie.config import BookieConfig
from bookie.cookie import refuse_other_cluster
from bookie.disk import RealDisk
from bookie.process.joining import Joining
from broker.assembly.embedded import bookie_config
from broker.ground.data_directory import METADATA, DataDirectory
from broker.tenancy.namespaces.names import CLUSTERS_PATH
from broker.tenancy.namespaces.tenants import GLOBAL_CLUSTER
from cli.machine.data import bookies_with_data
from cli.machine.plan import bookie_directory, bookie_name
from cli.metadata_copy.names import NotCopied
from metadata.read_only_tree import RocksTree
from protocol.bookkeeper.paths import INSTANCE_ID_PATH

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from pathlib import Path

    from broker.ground.config import BrokerConfig

_REMEDY: Final = "Start `vela standalone` on it, which says what to do"


@final
@dataclass(frozen=True, slots=True)
class MovedBookie:
    """A bookie with data, which is to serve it in the new cluster."""

    config: BookieConfig
    joining: Joining


@final
@dataclass(frozen=True, slots=True)
class Source:
    """Open and locked."""

    data_directory: Path
    tree: RocksTree
    sequences: Mapping[str, int]
    bookies: Mapping[str, MovedBookie]
    """By id."""
    cluster: str
    """The name of the cluster."""


@asynccontextmanager
async def opened_source(data_directory: Path, config: BrokerConfig) -> AsyncIterator[Source]:
    """`config`: as the standalone broker was started with, for directories elsewhere.

    Raises: NotCopied, DataDirectoryError, MetadataUnavailable, bookie.errors.StorageError,
        broker.assembly.parts.StartError.
    """
    if not (data_directory / METADATA).is_dir():
        raise NotCopied(
            f"{data_directory / METADATA} is not there: name the --data-dir of a `vela standalone`"
        )
    async with AsyncExitStack() as stack:
        stack.enter_context(DataDirectory(data_directory))
        tree = RocksTree(data_directory / METADATA, remedy=_REMEDY)
        stack.push_async_callback(_shielded_close, tree)
        instance = await tree.get(INSTANCE_ID_PATH)
        former_id = None if instance is None else instance[0].decode(errors="replace")
        yield Source(
            data_directory,
            tree,
            tree.sequences(),
            _bookies(data_directory, config, former_id),
            await _cluster_of(tree, config.clusterName),
        )


def _bookies(
    data_directory: Path, config: BrokerConfig, former_id: str | None
) -> dict[str, MovedBookie]:
    """Raises: StorageError: one was moved before, or its directories are not right. StartError."""
    first = bookie_config(config, data_directory)
    configs = [first]
    for number in bookies_with_data(data_directory):
        if number > 1:
            base = data_directory / bookie_directory(number)
            configs.append(
                BookieConfig(
                    bookieId=bookie_name(number),
                    journalDirectories=(f"{base}/journal",),
                    ledgerDirectories=(f"{base}/ledgers",),
                )
            )
    found: dict[str, MovedBookie] = {}
    for each in configs:
        joining = Joining.of(each, former_id)
        if joining is not None:
            refuse_other_cluster(each, RealDisk(), former_id)
            found[each.bookieId] = MovedBookie(each, joining)
    return found


async def _cluster_of(tree: RocksTree, configured: str) -> str:
    """Raises: NotCopied: it is not clear which one. MetadataUnavailable."""
    names = [name for name in await tree.children(CLUSTERS_PATH) if name != GLOBAL_CLUSTER]
    if configured in names:
        return configured
    if len(names) == 1:
        return names[0]
    raise NotCopied(
        f"the metadata are of the clusters {', '.join(names) or '(none)'}: name the file with the "
        "clusterName of `vela standalone` (--config)"
    )


async def _shielded_close(tree: RocksTree) -> None:
    with trio.CancelScope(shield=True):
        await tree.aclose()
