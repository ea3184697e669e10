"""`/admin/v2/tenants`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from broker.ground.refusal import Refusal
from broker.http.namespaces.namespaces import delete_with_topics
from broker.http.router import Route

if TYPE_CHECKING:
    from broker.http.context import AdminRequest


async def names(request: AdminRequest) -> list[str]:
    """All tenants."""
    return await request.context.namespaces.tenants.names()


async def get(request: AdminRequest) -> dict[str, Any]:
    """TenantInfo."""
    return await request.context.namespaces.tenants.get(request.names["tenant"])


async def create(request: AdminRequest) -> None:
    """Add a tenant."""
    info = await request.json_object()
    await request.context.namespaces.tenants.create(request.names["tenant"], info)


async def change(request: AdminRequest) -> None:
    """Replace TenantInfo."""
    info = await request.json_object()
    await request.context.namespaces.tenants.change(request.names["tenant"], info)


async def delete(request: AdminRequest) -> None:
    """Remove a tenant; with `force` also everything in it."""
    context, tenant = request.context, request.names["tenant"]
    if request.flag("force"):
        if not context.config.forceDeleteTenantAllowed:
            raise Refusal(405, "Broker doesn't allow forced deletion of tenants")
        for namespace_name in await context.namespaces.names(tenant):
            await delete_with_topics(context, namespace_name)
    await context.namespaces.tenants.delete(tenant)


_TENANT: Final = "/admin/v2/tenants/{tenant}"
ROUTES: Final = (
    Route("GET", "/admin/v2/tenants", names),
    Route("GET", _TENANT, get),
    Route("PUT", _TENANT, create),
    Route("POST", _TENANT, change),
    Route("DELETE", _TENANT, delete),
)
