"""Bundles of namespaces: who owns them, moving and splitting them. In a cluster only.

Paths, statuses and texts as on Pulsar 4.0.8; a request for a bundle of another broker gets 307.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from broker.admin.redirects import redirect, send_on
from broker.admin.router import Route
from broker.refusal import Refusal, not_found

if TYPE_CHECKING:
    from broker.admin.context import AdminRequest
    from broker.ownership import Cluster


def cluster_of(request: AdminRequest) -> Cluster:
    """Raises: Refusal: this broker shares nothing."""
    cluster = request.context.cluster
    if cluster is None:
        raise Refusal(
            501,
            f"{request.method} {request.path} is not supported by Vela where one broker has all "
            "topics",
        )
    return cluster


async def _of_namespace(request: AdminRequest) -> tuple[Cluster, str]:
    """The cluster and the namespace of the path. Raises: Refusal."""
    cluster = cluster_of(request)
    await request.context.namespaces.get(request.namespace_name)
    return cluster, request.namespace_name


async def _at_owner(
    request: AdminRequest, cluster: Cluster, namespace_name: str, range_text: str
) -> None:
    """Raises: Redirect: another broker owns the bundle. Refusal."""
    found = await cluster.owner_of_bundle(
        namespace_name, range_text, authoritative=request.flag("authoritative")
    )
    send_on(request, found)


async def unload(request: AdminRequest) -> None:
    """Close the topics of a bundle and give it up."""
    cluster, namespace_name = await _of_namespace(request)
    range_text = request.names["bundle"]
    await _at_owner(request, cluster, namespace_name, range_text)
    await cluster.unload_bundle(namespace_name, range_text)


async def split(request: AdminRequest) -> None:
    """Cut a bundle in two. It may be named by what it has: the owner then chooses again."""
    cluster, namespace_name = await _of_namespace(request)
    range_text = await cluster.chosen_range(namespace_name, request.names["bundle"])
    await _at_owner(request, cluster, namespace_name, range_text)
    await cluster.split_bundle(
        namespace_name,
        range_text,
        request.query.get("splitAlgorithmName", ""),
        unload=request.flag("unload"),
    )


async def owned(request: AdminRequest) -> dict[str, Any]:
    """The bundles of one broker."""
    cluster = cluster_of(request)
    broker_id = request.names["broker"]
    if broker_id != request.context.broker_id:
        address = cluster.brokers.get(broker_id)
        if address is None:
            raise not_found(f"Broker {broker_id} not found")
        raise redirect(request, address, request.raw_path)
    return dict(await cluster.ownership_status())


_BUNDLE: Final = "/admin/v2/namespaces/{tenant}/{namespace}/{bundle}"
ROUTES: Final = (
    Route("PUT", f"{_BUNDLE}/unload", unload),
    Route("PUT", f"{_BUNDLE}/split", split),
    Route("GET", "/admin/v2/brokers/{cluster}/{broker}/ownedNamespaces", owned),
)
