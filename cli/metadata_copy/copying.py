"""Copies metadata into an empty store, and verifies the copy.

Order: a marker with the digest of what is copied -> the nodes of an empty cluster -> all nodes ->
the sequences -> everything is compared -> a node for each bookie that may join -> the record of the
cluster -> the marker is deleted. Bookies and brokers refuse a store with the marker, also one that
was initialized besides, so an interrupted copy has no effect. The next call with the same
metadata completes it, and with other ones it is refused.

A store counts as empty if it has nothing beyond what `vela initialize-cluster-metadata` makes.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final, Protocol, TypeVar, final

import trio

from bookie.process.joining import JOINING_ROOT, METADATA_COPY_PATH, joining_path
from broker.cluster.cluster_metadata import (
    COORDINATOR_NAMESPACE,
    COORDINATOR_TOPIC,
    DEFAULT_NAMESPACES,
    Initialization,
    check_name,
)
from broker.tenancy.namespaces.names import (
    CLUSTERS_PATH,
    partitioned_topics_path,
    policies_path,
    tenant_path,
)
from broker.tenancy.namespaces.tenants import GLOBAL_CLUSTER
from cli.metadata_copy.names import ClusterName, NotCopied
from cli.metadata_copy.survey import copied_nodes, survey
from ledgers.placement import RACKS_PATH
from metadata.store import MUST_NOT_EXIST, MetadataStore, VersionConflict
from protocol.bookkeeper.paths import INSTANCE_ID_PATH, LAYOUT_PATH

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from broker.cluster.cluster_metadata import NewCluster
    from cli.metadata_copy.source import Source
    from cli.metadata_copy.survey import Survey

_REQUESTS_AT_ONCE: Final = 64
_STREAM_STORAGE: Final = ("/stream/", "/pulsar/")
"""Nodes that Pulsar's `initialize-cluster-metadata` makes besides."""

_Item = TypeVar("_Item")


class TargetStore(MetadataStore, Protocol):
    """A store to which metadata can be copied."""

    async def advance_sequence(self, path: str, number: int) -> None:
        """Give no number below `number` from now on. Raises: MetadataUnavailable."""


async def copy_metadata(
    source: Source,
    store: TargetStore,
    new: NewCluster,
    node_bytes_max: int,
    tell: Callable[[str], None],
) -> Survey:
    """Copy, or complete a copy. `tell` gets lines about the progress.

    Raises: NotCopied, WrongCluster, BookieRefusesToStart, MetadataUnavailable; in groups, too.
    """
    name = ClusterName(source.cluster, new.name)
    plan = survey(source, name, node_bytes_max)
    copy = _Copy(source, store, name)
    initialization = Initialization(new)
    check_name(new.name)
    is_begun = await copy.is_begun(plan)
    await initialization.check(store, store)
    if not is_begun:
        await copy.begin(plan)
    tell(f"copying {plan.node_count} nodes, {plan.ledger_count} of them ledgers")
    await initialization.make_ledgers(store)
    await for_each(copied_nodes(source, name), copy.write)
    tell(f"taking ledger ids below {plan.next_ledger_id}")
    for path, number in source.sequences.items():
        await _advance(store, path, number)
    tell("comparing")
    await copy.compare()
    for bookie_id, bookie in source.bookies.items():
        await store.put(joining_path(bookie_id), bookie.joining.encode(), None)
    await initialization.make_local(store)
    await initialization.make_configuration(store)
    await store.delete(METADATA_COPY_PATH)
    return plan


async def for_each(items: Iterable[_Item], work: Callable[[_Item], Awaitable[None]]) -> None:
    """Do some at once, in any order. The first error ends all, as a group."""
    remaining = iter(items)

    async def take() -> None:
        for item in remaining:
            await work(item)

    async with trio.open_nursery() as nursery:
        for _ in range(_REQUESTS_AT_ONCE):
            nursery.start_soon(take)


async def walk(store: MetadataStore, look: Callable[[str, bytes], Awaitable[None]]) -> None:
    """Call `look` with every node that has a value. The store is in use by no one else.

    Raises: MetadataUnavailable and what `look` raises, in a group.
    """
    level = ["/"]
    while level:
        below: list[str] = []

        async def visit(path: str, below: list[str] = below) -> None:
            found = await store.get(path)
            if found is not None and found[0]:
                await look(path, found[0])
            below.extend(f"{path.rstrip('/')}/{name}" for name in await store.children(path))

        await for_each(level, visit)
        level = below


async def _advance(store: TargetStore, path: str, number: int) -> None:
    """Have the sequence go on at `number` or above."""
    await store.advance_sequence(path, number)
    given = await store.peek_sequence(path)
    if given < number:
        raise NotCopied(f"{path} would go on at {given} instead of {number}: copy again")


@final
class _Copy:
    """The nodes of one copy."""

    def __init__(self, source: Source, store: MetadataStore, name: ClusterName) -> None:
        self._source = source
        self._store = store
        self._name = name
        tenants = {tenant_path(each.partition("/")[0]) for each in DEFAULT_NAMESPACES}
        coordinators = partitioned_topics_path(COORDINATOR_NAMESPACE, "persistent")
        self._fresh = tenants | {
            *map(policies_path, DEFAULT_NAMESPACES),
            f"{CLUSTERS_PATH}/{GLOBAL_CLUSTER}",
            f"{CLUSTERS_PATH}/{name.name}",
            f"{coordinators}/{COORDINATOR_TOPIC}",
            INSTANCE_ID_PATH,
            LAYOUT_PATH,
            RACKS_PATH,
        }
        """The nodes that the store may have from its initialization."""

    async def is_begun(self, plan: Survey) -> bool:
        """Whether a former call began this copy.

        Raises: NotCopied: the store is in use, or has a copy of other metadata.
            MetadataUnavailable. In groups, too.
        """
        found = await self._store.get(METADATA_COPY_PATH)
        if found is None:
            await walk(self._store, self._refuse_used)
            return False
        if _digest_of(found[0]) != plan.digest:
            raise NotCopied(
                "the metadata store has an interrupted copy of other metadata (or they changed "
                "since, or --cluster is another): delete its nodes "
                f"({METADATA_COPY_PATH} names the directory that was copied), or name another path "
                "(zk:host:port/path)"
            )
        return True

    async def begin(self, plan: Survey) -> None:
        """Mark the store as one that is copied to. Raises: MetadataUnavailable."""
        marker = {"digest": plan.digest, "from": str(self._source.data_directory)}
        await self._store.put(METADATA_COPY_PATH, json.dumps(marker).encode(), None)

    async def _refuse_used(self, path: str, _value: bytes) -> None:
        if path not in self._fresh and not path.startswith(_STREAM_STORAGE):
            raise NotCopied(
                f"the metadata store is in use: it has {path}. Metadata are copied to an empty "
                "one: name another path (zk:host:port/path)"
            )

    async def write(self, node: tuple[str, bytes]) -> None:
        """Raises: NotCopied: something else writes there. MetadataUnavailable."""
        path, value = node
        try:
            await self._store.put(path, value, MUST_NOT_EXIST)
        except VersionConflict:
            found = await self._store.get(path)
            if found is not None and found[0] == value:
                return
            if path not in self._fresh:
                raise self._changed(path) from None
            await self._store.put(path, value, None)

    async def compare(self) -> None:
        """Every node is there as it was, and there is no other one.

        Raises: NotCopied, MetadataUnavailable, in groups.
        """
        await self._store.sync()
        await for_each(copied_nodes(self._source, self._name), self._compare_one)
        await walk(self._store, self._refuse_other)

    async def _compare_one(self, node: tuple[str, bytes]) -> None:
        path, value = node
        found = await self._store.get(path)
        # A node without a value may count as a parent only.
        if (b"" if found is None else found[0]) != value or not await self._store.exists(path):
            raise self._changed(path)

    async def _refuse_other(self, path: str, _value: bytes) -> None:
        if path in self._fresh or path == METADATA_COPY_PATH or path.startswith(_STREAM_STORAGE):
            return
        if path.startswith(f"{JOINING_ROOT}/"):
            return
        former = self._name.former_path(path)
        if self._name.path(former) is None or await self._source.tree.get(former) is None:
            raise self._changed(path)

    def _changed(self, path: str) -> NotCopied:
        return NotCopied(
            f"{path} is not as it was copied: another process uses this metadata store. Stop it, "
            "and copy to another path (zk:host:port/path)"
        )


def _digest_of(marker: bytes) -> str:
    try:
        return str(json.loads(marker)["digest"])
    except (ValueError, KeyError, TypeError):
        return ""
