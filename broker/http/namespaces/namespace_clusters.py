"""The clusters that a namespace is in, and may be in: this one. Statuses and texts of Pulsar
4.0.8."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from broker.http.router import Route
from broker.tenancy.policies.clusters import (
    ALLOWED_FIELD,
    REPLICATION_FIELD,
    allowed_clusters,
    check_allowed,
    check_replication,
    replication_clusters,
)
from web.responses import Response, json_response

if TYPE_CHECKING:
    from broker.http.context import AdminRequest


async def _shown(request: AdminRequest, field: str) -> Response:
    namespace = await request.context.namespaces.get(request.namespace_name)
    return json_response(namespace.policies.record.fields.get(field) or [])


async def _store(request: AdminRequest, field: str, names: list[str]) -> str:
    await request.context.namespaces.change_policies(
        request.namespace_name, lambda record: record.with_fields(**{field: names})
    )
    return ""  # Pulsar answers 200 here, and 204 elsewhere.


async def get_replication(request: AdminRequest) -> Response:
    """The clusters that it is replicated to."""
    return await _shown(request, REPLICATION_FIELD)


async def set_replication(request: AdminRequest) -> str:
    """Body: their names."""
    context = request.context
    names = replication_clusters("clusterIds", await request.json())
    await context.namespaces.get(request.namespace_name)
    check_replication(names, context.config.clusterName, await context.namespaces.clusters.names())
    return await _store(request, REPLICATION_FIELD, names)


async def get_allowed(request: AdminRequest) -> Response:
    """The clusters that it may use; none: those of its tenant."""
    return await _shown(request, ALLOWED_FIELD)


async def set_allowed(request: AdminRequest) -> str:
    """Body: their names."""
    namespaces, tenant = request.context.namespaces, request.names["tenant"]
    of_tenant = (await namespaces.tenants.get(tenant))["allowedClusters"]
    namespace = await namespaces.get(request.namespace_name)
    names = allowed_clusters("clusterIds", await request.json())
    replicated = namespace.policies.record.fields.get(REPLICATION_FIELD) or ()
    check_allowed(names, request.context.config.clusterName, tenant, of_tenant, replicated)
    return await _store(request, ALLOWED_FIELD, names)


_NAMESPACE: Final = "/admin/v2/namespaces/{tenant}/{namespace}"
ROUTES: Final = (
    Route("GET", f"{_NAMESPACE}/replication", get_replication),
    Route("POST", f"{_NAMESPACE}/replication", set_replication),
    Route("GET", f"{_NAMESPACE}/allowedClusters", get_allowed),
    Route("POST", f"{_NAMESPACE}/allowedClusters", set_allowed),
)
