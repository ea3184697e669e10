"""`/admin/v2/clusters`: the clusters that tenants and namespaces may name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from broker.cluster.isolation_records import delete_records, read_policies
from broker.ground.refusal import Refusal, precondition_failed
from broker.http.router import Route

if TYPE_CHECKING:
    from broker.http.context import AdminRequest


async def names(request: AdminRequest) -> list[str]:
    """All clusters."""
    return await request.context.namespaces.clusters.names()


async def get(request: AdminRequest) -> dict[str, Any]:
    """ClusterData."""
    return await request.context.namespaces.clusters.get(request.names["cluster"])


async def create(request: AdminRequest) -> str:
    """Add a cluster."""
    data = await request.json_object()
    if data is None:
        raise Refusal(400, "cluster data is required")
    await request.context.namespaces.clusters.create(request.names["cluster"], data)
    return ""


async def change(request: AdminRequest) -> str:
    """Replace ClusterData."""
    data = await request.json_object()
    await request.context.namespaces.clusters.change(request.names["cluster"], data or {})
    return ""


async def delete(request: AdminRequest) -> None:
    """Remove a cluster that has no isolation policies, with its failure domains."""
    context, cluster = request.context, request.names["cluster"]
    policies = await read_policies(context.store, cluster)
    if policies is not None and policies.policies:
        raise precondition_failed("Cluster not empty")
    await delete_records(context.store, cluster)
    await context.namespaces.clusters.delete(cluster)


_CLUSTER: Final = "/admin/v2/clusters/{cluster}"
ROUTES: Final = (
    Route("GET", "/admin/v2/clusters", names),
    Route("GET", _CLUSTER, get),
    Route("PUT", _CLUSTER, create),
    Route("POST", _CLUSTER, change),
    Route("DELETE", _CLUSTER, delete),
)
