"""Anti-affinity groups of namespaces: those of one group are kept at different brokers.

The group is in the namespace's local policies, and followed by all brokers of the cluster. Paths,
statuses and texts as on Pulsar 4.0.8.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from broker.cluster.namespace_bundles import ANTI_AFFINITY_FIELD
from broker.ground.refusal import Refusal, not_found, precondition_failed
from broker.http.authorization import check
from broker.http.clusters.bundles import make_local_record
from broker.http.clusters.isolation_policies import check_cluster
from broker.http.router import Route
from broker.tenancy.authorization.decision import Scope
from broker.tenancy.authorization.operations import operation
from broker.tenancy.namespaces.json_nodes import change_json, read_json
from broker.tenancy.namespaces.names import local_policies_path
from web.responses import Response

if TYPE_CHECKING:
    from broker.http.context import AdminRequest
    from metadata.store import MetadataStore

Json = dict[str, Any]
_NO_CONTENT: Final = 204
_ADMIN: Final = operation("admin")


async def group(request: AdminRequest) -> Response:
    """The group of a namespace, as it was given; no content: it is in none."""
    found = await _group_of(request.context.store, request.namespace_name)
    if not found:
        return Response(status=_NO_CONTENT)
    return Response(found, media_type="application/json")


async def set_group(request: AdminRequest) -> None:
    """Put a namespace into a group, and out of its former one. Bundles stay where they are.

    The body is the name, without quotes: Pulsar's clients send it so, although they call it JSON.
    """
    namespace_name = request.namespace_name
    try:
        given = (await request.body()).decode()
    except UnicodeDecodeError:
        raise Refusal(400, "The name of a group is UTF-8 text") from None
    if not given.strip():
        raise precondition_failed("antiAffinityGroup can't be empty")
    if await request.context.namespaces.find(namespace_name) is None:
        raise not_found("Namespace not found")
    await make_local_record(request)
    await change_json(
        request.context.store,
        local_policies_path(namespace_name),
        lambda record: {**record, ANTI_AFFINITY_FIELD: given},
    )


async def delete_group(request: AdminRequest) -> None:
    """The namespace is in no group any more. One without local policies, or none at all, is 404 as
    on Pulsar 5.0.1; 4.0.8 fails with an exception."""

    def without(record: Json) -> Json:
        return {name: value for name, value in record.items() if name != ANTI_AFFINITY_FIELD}

    path = local_policies_path(request.namespace_name)
    if await change_json(request.context.store, path, without) is None:
        raise not_found("The namespace has never been in an anti-affinity group")


async def namespaces(request: AdminRequest) -> list[str]:
    """The namespaces of a tenant that are in a group, whose case does not matter."""
    context, wanted = request.context, request.names["group"].strip().lower()
    tenant = request.query.get("tenant", request.query.get("property"))
    if tenant is None:
        raise Refusal(400, "Tenant should not be null")
    # The tenant is not in the path. Pulsar 4.0.8 fails for everyone here with authorization on.
    await check(request, _ADMIN, Scope(tenant))
    if not wanted:
        raise precondition_failed("anti-affinity group can't be empty.")
    await check_cluster(request, 412)
    if not await context.namespaces.tenants.exists(tenant):
        return []
    return [
        name
        for name in await context.namespaces.names(tenant)
        if (await _group_of(context.store, name)).strip().lower() == wanted
    ]


async def _group_of(store: MetadataStore, namespace_name: str) -> str:
    """Empty: none."""
    record = await read_json(store, local_policies_path(namespace_name)) or {}
    found = record.get(ANTI_AFFINITY_FIELD)
    return found if isinstance(found, str) else ""


_GROUP: Final = "/admin/v2/namespaces/{tenant}/{namespace}/antiAffinity"
ROUTES: Final = (
    Route("GET", _GROUP, group),
    Route("POST", _GROUP, set_group),
    Route("DELETE", _GROUP, delete_group),
    Route("GET", "/admin/v2/namespaces/{cluster}/antiAffinity/{group}", namespaces),
    # Pulsar's tools ask at the former path, where a tenant is a property.
    Route("GET", "/admin/namespaces/{cluster}/antiAffinity/{group}", namespaces),
)
