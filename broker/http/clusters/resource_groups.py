"""`/admin/v2/resourcegroups`, and the group of a namespace. Statuses and texts as of Pulsar 4.0.8,
which fails with an exception where a body or a group to delete is missing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from broker.ground.refusal import Refusal, not_found, precondition_failed
from broker.http.namespaces.namespace_policies import EMPTY_BODY
from broker.http.router import Route

if TYPE_CHECKING:
    from broker.http.context import AdminRequest


async def names(request: AdminRequest) -> list[str]:
    """All groups."""
    return await request.context.namespaces.resource_groups.names()


async def get(request: AdminRequest) -> dict[str, Any]:
    """ResourceGroup."""
    return await request.context.namespaces.resource_groups.get(request.names["resourcegroup"])


async def put(request: AdminRequest) -> None:
    """Create a group, or change what the body names."""
    body = await request.json_object()
    if body is None:
        raise Refusal(400, EMPTY_BODY)
    await request.context.namespaces.resource_groups.create_or_change(
        request.names["resourcegroup"], body
    )


async def delete(request: AdminRequest) -> None:
    """Remove a group that no namespace has."""
    await request.context.namespaces.resource_groups.delete(request.names["resourcegroup"])


async def get_of_namespace(request: AdminRequest) -> str:
    """The name as it is, not as JSON; empty: none."""
    namespace = await request.context.namespaces.get(request.namespace_name)
    return namespace.policies.effective.resource_group


async def set_of_namespace(request: AdminRequest) -> None:
    """Let its topics share the budgets of the group."""
    name = request.names["resourcegroup"]
    if not await request.context.namespaces.resource_groups.exists(name):
        raise precondition_failed("ResourceGroup does not exist")
    await _store(request, name)


async def remove_of_namespace(request: AdminRequest) -> None:
    """They share nothing."""
    await _store(request, None)


async def _store(request: AdminRequest, name: str | None) -> None:
    namespaces, namespace_name = request.context.namespaces, request.namespace_name
    if await namespaces.find(namespace_name) is None:
        raise not_found("Namespace policies does not exist")
    await namespaces.change_policies(
        namespace_name, lambda record: record.with_fields(resource_group_name=name)
    )


_GROUP: Final = "/admin/v2/resourcegroups/{resourcegroup}"
_OF_NAMESPACE: Final = "/admin/v2/namespaces/{tenant}/{namespace}/resourcegroup"
ROUTES: Final = (
    Route("GET", "/admin/v2/resourcegroups", names),
    Route("GET", _GROUP, get),
    Route("PUT", _GROUP, put),
    Route("DELETE", _GROUP, delete),
    Route("GET", _OF_NAMESPACE, get_of_namespace),
    Route("POST", f"{_OF_NAMESPACE}/{{resourcegroup}}", set_of_namespace),
    Route("DELETE", _OF_NAMESPACE, remove_of_namespace),
)
