"""Clusters and tenants, the owners of namespaces. Stored at Pulsar's paths in its JSON form."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, final

from broker.ground.refusal import Refusal, conflict, not_found, precondition_failed
from broker.tenancy.namespaces.json_nodes import change_json, create_json, read_json
from broker.tenancy.namespaces.names import CLUSTERS_PATH, POLICIES_PATH, tenant_path
from metadata.store import NodeNotFound
from protocol.json_numbers import text_of
from protocol.topic_name import is_entity_name

if TYPE_CHECKING:
    from broker.ground.config import BrokerConfig
    from metadata.store import MetadataStore

Json = dict[str, Any]

GLOBAL_CLUSTER: Final = "global"


@final
class Clusters:
    """The clusters known here. A standalone broker knows itself."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store

    async def names(self) -> list[str]:
        """All clusters. Not the record `global`, which Pulsar makes for namespaces of former
        versions."""
        names = await self._store.children(CLUSTERS_PATH)
        return [name for name in names if name != GLOBAL_CLUSTER]

    async def get(self, cluster: str) -> Json:
        """Raises: Refusal."""
        data = await read_json(self._store, f"{CLUSTERS_PATH}/{cluster}")
        if data is None:
            raise not_found("Cluster does not exist")
        return data

    async def create(self, cluster: str, data: Json) -> None:
        """Raises: Refusal."""
        if not is_entity_name(cluster):
            raise precondition_failed("Cluster name is not valid")
        if not await create_json(self._store, f"{CLUSTERS_PATH}/{cluster}", data):
            raise conflict("Cluster already exists")

    async def change(self, cluster: str, data: Json) -> None:
        """Raises: Refusal."""
        path = f"{CLUSTERS_PATH}/{cluster}"
        if await change_json(self._store, path, lambda _old: data) is None:
            raise not_found("Cluster does not exist")

    async def create_or_change(self, cluster: str, data: Json) -> None:
        """Create or replace the record of the broker's own cluster, at every start."""
        if not await create_json(self._store, f"{CLUSTERS_PATH}/{cluster}", data):
            await self.change(cluster, data)

    async def delete(self, cluster: str) -> None:
        """Raises: Refusal."""
        try:
            await self._store.delete(f"{CLUSTERS_PATH}/{cluster}")
        except NodeNotFound:
            raise not_found("Cluster does not exist") from None


@final
class Tenants:
    """All tenants."""

    def __init__(self, store: MetadataStore, clusters: Clusters, config: BrokerConfig) -> None:
        self._store = store
        self._clusters = clusters
        self._config = config

    def use(self, config: BrokerConfig) -> None:
        """Apply another configuration from now on."""
        self._config = config

    async def names(self) -> list[str]:
        """All tenants, sorted."""
        return await self._store.children(POLICIES_PATH)

    async def exists(self, tenant: str) -> bool:
        """Whether there is such a tenant."""
        return is_entity_name(tenant) and await self._store.exists(tenant_path(tenant))

    async def get(self, tenant: str) -> Json:
        """Raises: Refusal."""
        info = await read_json(self._store, tenant_path(tenant)) if is_entity_name(tenant) else None
        if info is None:
            raise not_found("Tenant does not exist")
        return info

    async def create(self, tenant: str, info: Json | None) -> None:
        """Raises: Refusal."""
        if not is_entity_name(tenant):
            raise precondition_failed("Tenant name is not valid")
        checked = await self._checked(info)
        limit = self._config.maxTenants
        if limit and len(await self.names()) >= limit:
            raise precondition_failed("Exceed the maximum number of tenants")
        if not await create_json(self._store, tenant_path(tenant), checked):
            raise conflict("Tenant already exist")

    async def change(self, tenant: str, info: Json | None) -> None:
        """Raises: Refusal."""
        checked = await self._checked(info)
        path = tenant_path(tenant)
        if await change_json(self._store, path, lambda _old: checked) is None:
            raise not_found(f"Tenant {tenant} not found")

    async def delete(self, tenant: str) -> None:
        """Delete a tenant without namespaces. Raises: Refusal."""
        if not await self.exists(tenant):
            raise not_found("Tenant doesn't exist")
        if await self._store.children(tenant_path(tenant)):
            raise conflict("The tenant still has active namespaces")
        await self._store.delete(tenant_path(tenant))

    async def _checked(self, info: Json | None) -> Json:
        if info is None:
            raise precondition_failed("TenantInfo is null")
        allowed, roles = _names(info.get("allowedClusters")), _names(info.get("adminRoles"))
        if any(role != role.strip() for role in roles or ()):
            raise precondition_failed("AdminRoles contains whitespace in the beginning or end.")
        if allowed is None:
            raise precondition_failed("Clusters cannot be null")
        if not allowed or any(not cluster.strip() for cluster in allowed):
            raise precondition_failed("Clusters cannot be empty or blank")
        if not set(allowed) <= set(await self._clusters.names()):
            raise precondition_failed("Clusters do not exist")
        given = {} if roles is None else {"adminRoles": roles}
        return {**given, "allowedClusters": allowed}


def _names(given: object) -> list[str] | None:
    """Each name once; None: they were not given. Raises: Refusal."""
    if given is None:
        return None
    names = [text_of(each) for each in given] if isinstance(given, list) else [None]
    found = dict.fromkeys(name for name in names if name is not None)
    if None in names:
        raise Refusal(400, "adminRoles and allowedClusters must be arrays of names")
    return list(found)
