"""The isolation policies and failure domains of a cluster, in memory and in the store.

Paths and records are Pulsar's: `/admin/clusters/<cluster>/namespaceIsolationPolicies` has all
policies by name, `/admin/clusters/<cluster>/failureDomain/<domain>` the brokers of a domain. Copies
in memory are dropped when a node changes. A record that is damaged decides nothing: bundles without
an owner are not placed until it has been written again.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, final

import structlog

from broker.cluster.isolation import NO_POLICIES, BadPolicy, IsolationPolicies
from broker.cluster.records import decode, encode
from broker.tenancy.namespaces.names import CLUSTERS_PATH
from metadata.store import MUST_NOT_EXIST, NodeNotFound, VersionConflict
from protocol.errors import MetadataError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from metadata.store import MetadataStore

log = structlog.get_logger()

Json = dict[str, Any]
POLICIES_NODE: Final = "namespaceIsolationPolicies"
DOMAINS_NODE: Final = "failureDomain"


def policies_path(cluster: str) -> str:
    """All isolation policies of a cluster."""
    return f"{CLUSTERS_PATH}/{cluster}/{POLICIES_NODE}"


def domains_path(cluster: str) -> str:
    """The parent of its failure domains."""
    return f"{CLUSTERS_PATH}/{cluster}/{DOMAINS_NODE}"


async def read_policies(store: MetadataStore, cluster: str) -> IsolationPolicies | None:
    """None: none were ever set. Raises: MetadataError."""
    found = await store.get(policies_path(cluster))
    return None if found is None else _parsed(cluster, found[0])


async def change_policies(
    store: MetadataStore, cluster: str, change: Callable[[IsolationPolicies], IsolationPolicies]
) -> IsolationPolicies:
    """Replace the policies by `change(policies)`, again if another session wrote in between.
    Returns what they were before. Raises: MetadataError."""
    while True:
        found = await store.get(policies_path(cluster))
        old = NO_POLICIES if found is None else _parsed(cluster, found[0])
        version = MUST_NOT_EXIST if found is None else found[1]
        try:
            await store.put(policies_path(cluster), change(old).encode(), version)
        except VersionConflict:
            continue
        return old


def _parsed(cluster: str, data: bytes) -> IsolationPolicies:
    try:
        return IsolationPolicies.parse(data)
    except BadPolicy as error:
        raise MetadataError(
            f"The record at {policies_path(cluster)} is damaged: {error}. Write it again, or "
            "delete it"
        ) from None


async def read_domains(store: MetadataStore, cluster: str) -> dict[str, list[str]]:
    """The brokers of each failure domain by name. A damaged record is left out, with a warning: a
    domain is a wish. Raises: MetadataUnavailable."""
    domains: dict[str, list[str]] = {}
    for name in await store.children(domains_path(cluster)):
        brokers = await read_domain(store, cluster, name)
        if brokers is not None:
            domains[name] = brokers
    return domains


async def read_domain(store: MetadataStore, cluster: str, name: str) -> list[str] | None:
    """The brokers of one domain; None: there is none, or its record is damaged."""
    path = f"{domains_path(cluster)}/{name}"
    found = await store.get(path)
    if found is None or found[0] == b"null":
        return None
    brokers = (decode(found[0]) or {}).get("brokers", [])
    if not isinstance(brokers, list) or not all(isinstance(each, str) for each in brokers):
        log.warning("record of a failure domain cannot be read", path=path)
        return None
    return brokers


async def write_domain(store: MetadataStore, cluster: str, name: str, brokers: list[str]) -> None:
    """Create or replace a domain. Raises: MetadataUnavailable."""
    await store.put(f"{domains_path(cluster)}/{name}", encode({"brokers": brokers}), None)


async def delete_domain(store: MetadataStore, cluster: str, name: str) -> bool:
    """False: there is none. Raises: MetadataUnavailable."""
    try:
        await store.delete(f"{domains_path(cluster)}/{name}")
    except NodeNotFound:
        return False
    return True


async def delete_records(store: MetadataStore, cluster: str) -> None:
    """Delete the policies and failure domains of a cluster. Raises: MetadataUnavailable."""
    for name in await store.children(domains_path(cluster)):
        await delete_domain(store, cluster, name)
    for path in (domains_path(cluster), policies_path(cluster)):
        with suppress(NodeNotFound):
            await store.delete(path)


@final
class IsolationRecords:
    """The records of one cluster, followed."""

    def __init__(self, store: MetadataStore, cluster: str) -> None:
        self._store = store
        self._cluster = cluster
        self._policies: IsolationPolicies | None = None
        self._domains: Mapping[str, str] | None = None
        self._changes = 0
        self._end = store.watch(f"{CLUSTERS_PATH}/{cluster}", self._changed)

    def close(self) -> None:
        """Follow the store no more."""
        self._end()

    def _changed(self, _path: str) -> None:
        self._changes += 1
        self._policies = self._domains = None

    async def policies(self) -> IsolationPolicies:
        """In force now. No await when in memory. Raises: MetadataError: they cannot be read."""
        if self._policies is not None:
            return self._policies
        changes = self._changes
        policies = await read_policies(self._store, self._cluster) or NO_POLICIES
        if changes == self._changes:
            self._policies = policies
            for name, reasons in policies.refused_patterns.items():
                log.error(
                    "expressions of an isolation policy are not understood, and match nothing",
                    policy=name,
                    reasons="; ".join(reasons),
                )
        return policies

    async def domain_by_broker(self) -> Mapping[str, str]:
        """By broker id. No await when in memory. Raises: MetadataUnavailable."""
        if self._domains is not None:
            return self._domains
        changes = self._changes
        domains = await read_domains(self._store, self._cluster)
        by_broker = {
            broker_id: name for name, brokers in sorted(domains.items()) for broker_id in brokers
        }
        if changes == self._changes:
            self._domains = by_broker
        return by_broker
