"""The boundaries of each namespace's bundles: `/admin/local-policies/<tenant>/<namespace>`.

The node is made from the namespace's policies when its bundles are first needed, and changed by
compare-and-set when a bundle is split. Copies in memory are dropped when the node changes. Fields
that are not known here are kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple, final

from broker.cluster.bundles import Boundaries
from broker.cluster.heartbeat import heartbeat_broker
from broker.cluster.records import decode, encode
from broker.peers.ownership import NoBundles
from broker.tenancy.namespaces.names import (
    LOCAL_POLICIES_PATH,
    local_policies_path,
    namespace_below,
)
from metadata.store import MUST_NOT_EXIST, MetadataUnavailable, VersionConflict
from protocol.errors import MetadataError, TopicNotFound

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.tenancy.namespaces.namespaces import Namespaces
    from metadata.store import MetadataStore

Json = dict[str, Any]
ANTI_AFFINITY_FIELD: Final = "namespaceAntiAffinityGroup"
_REMEMBERED_MAX: Final = 100_000
"""Namespaces in memory. Beyond, all are read again."""
_CONTENTION_MAX: Final = 100
"""Attempts to make a node that others change at the same time."""


class StoredBoundaries(NamedTuple):
    """One state of the node."""

    boundaries: Boundaries
    version: int
    record: Json

    @property
    def anti_affinity_group(self) -> str:
        """Without regard to case, as in Pulsar; empty: none."""
        group = self.record.get(ANTI_AFFINITY_FIELD)
        return group.strip().lower() if isinstance(group, str) else ""


class _Known(NamedTuple):
    """The remembered content of a node."""

    boundaries: Boundaries
    anti_affinity_group: str


@final
class NamespaceBundles:
    """See the module docstring."""

    def __init__(
        self,
        store: MetadataStore,
        namespaces: Namespaces,
        on_change: Callable[[str], None] = lambda _namespace_name: None,
    ) -> None:
        """`on_change` gets the name of a namespace whose bundles may have changed; empty: any."""
        self._store = store
        self._namespaces = namespaces
        self._on_change = on_change
        self._known: dict[str, _Known] = {}
        self._changes = 0
        """The number of changes of any namespace. A record read before a change is not
        remembered."""
        self._end = store.watch(LOCAL_POLICIES_PATH, self._changed)

    def close(self) -> None:
        """Follow the store no more."""
        self._end()

    def _changed(self, path: str) -> None:
        self._changes += 1
        namespace_name, rest = namespace_below(LOCAL_POLICIES_PATH, path)
        if rest:
            return
        if namespace_name:
            self._known.pop(namespace_name, None)
        else:
            self._known.clear()
        self._on_change(namespace_name)

    def in_memory(self, namespace_name: str) -> Boundaries | None:
        """The boundaries, if they are known without reading."""
        known = self._known.get(namespace_name)
        return None if known is None else known.boundaries

    async def of(self, namespace_name: str) -> Boundaries:
        """The boundaries of an existing namespace. No await when in memory.

        Raises: BrokerError: TopicNotFound, MetadataError.
        """
        known = self._known.get(namespace_name)
        return known.boundaries if known else (await self.read(namespace_name)).boundaries

    async def anti_affinity_group_of(self, namespace_name: str) -> str:
        """The group of an existing namespace, in lower case; empty: none. No await when in memory.

        Raises: BrokerError: TopicNotFound, MetadataError.
        """
        known = self._known.get(namespace_name)
        return (
            known.anti_affinity_group
            if known
            else (await self.read(namespace_name)).anti_affinity_group
        )

    async def read(self, namespace_name: str) -> StoredBoundaries:
        """The same, read now. A heartbeat namespace is one bundle, which is not stored.

        Raises: as `of`.
        """
        if heartbeat_broker(namespace_name):
            return StoredBoundaries(Boundaries.whole(namespace_name), MUST_NOT_EXIST, {})
        path = local_policies_path(namespace_name)
        for _attempt in range(_CONTENTION_MAX):
            changes = self._changes
            found = await self._store.get(path)
            if found is not None and (stored := _parse(namespace_name, *found)) is not None:
                if changes == self._changes:
                    if len(self._known) >= _REMEMBERED_MAX:
                        self._known.clear()
                    self._known[namespace_name] = _Known(
                        stored.boundaries, stored.anti_affinity_group
                    )
                return stored
            await self._create(namespace_name, found)
        raise MetadataUnavailable(f"{path} is changed by others all the time, try again")

    async def _create(self, namespace_name: str, found: tuple[bytes, int] | None) -> None:
        """Write the boundaries of the policies to a node without any.

        Raises: TopicNotFound, NoBundles: they are no boundaries.
        """
        namespace = await self._namespaces.find(namespace_name)
        if namespace is None:
            raise TopicNotFound("Namespace not found")
        given = namespace.bundles_given
        try:
            boundaries = Boundaries.parse(namespace_name, given.get("boundaries") or ())
        except ValueError as error:
            raise NoBundles(str(error)) from None
        record = {} if found is None else decode(found[0]) or {}
        version = MUST_NOT_EXIST if found is None else found[1]
        try:
            await self._put(namespace_name, boundaries, {"migrated": False, **record}, version)
        except VersionConflict:
            return  # another broker did

    async def replace(self, old: StoredBoundaries, boundaries: Boundaries) -> None:
        """Store other boundaries of the same namespace.

        Raises: VersionConflict: they are not `old` any more. MetadataUnavailable: the outcome is
            unknown.
        """
        await self._put(boundaries.namespace_name, boundaries, old.record, old.version)

    async def _put(
        self, namespace_name: str, boundaries: Boundaries, record: Json, version: int
    ) -> None:
        bundles = {"boundaries": boundaries.texts, "numBundles": len(boundaries.points) - 1}
        value = encode({**record, "bundles": bundles})
        await self._store.put(local_policies_path(namespace_name), value, version)


def _parse(namespace_name: str, data: bytes, version: int) -> StoredBoundaries | None:
    """None: the record has no boundaries. Raises: MetadataError: it is damaged."""
    record = decode(data)
    bundles = {} if record is None else record.get("bundles")
    if record is not None and bundles is None:
        return None
    try:
        texts = bundles.get("boundaries") if isinstance(bundles, dict) else None
        if record is None or not isinstance(texts, list):
            raise ValueError(f"{namespace_name}: no boundaries")
        return StoredBoundaries(Boundaries.parse(namespace_name, texts), version, record)
    except ValueError as error:
        raise MetadataError(
            f"The record at {local_policies_path(namespace_name)} is damaged: {error}"
        ) from None
