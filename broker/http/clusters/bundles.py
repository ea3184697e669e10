"""Bundles of namespaces: who owns them, moving and splitting them.

Paths, statuses and texts as on Pulsar 4.0.8; a request for a bundle of another broker gets 307.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from broker.cluster.bundles import NotABundle
from broker.ground.refusal import Refusal, not_found, precondition_failed
from broker.http.clusters import bundles_alone
from broker.http.redirects import redirect, send_on
from broker.http.router import Route
from broker.http.topics.non_persistent import boundaries_of, bundle_of

if TYPE_CHECKING:
    from broker.http.context import AdminRequest
    from broker.peers.ownership import Cluster


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


async def make_local_record(request: AdminRequest) -> None:
    """Make the namespace's local policies if there are none: a record without bundles would be one
    bundle for Pulsar. Raises: Refusal, BrokerError."""
    context, name = request.context, request.namespace_name
    if context.cluster is None:
        await bundles_alone.make_local_record(context, name)
    else:
        await context.cluster.boundaries(name)


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
    if request.context.cluster is None:
        await bundles_alone.unload(request.context, await bundle_of(request))
        return
    cluster, namespace_name = await _of_namespace(request)
    range_text = request.names["bundle"]
    await _at_owner(request, cluster, namespace_name, range_text)
    await cluster.unload_bundle(namespace_name, range_text)


async def split(request: AdminRequest) -> None:
    """Cut a bundle in two. It may be named by what it has: the owner then chooses again."""
    context = request.context
    if context.cluster is None:
        boundaries = await boundaries_of(context, request.namespace_name)
        asked = await bundles_alone.chosen_range(context, boundaries, request.names["bundle"])
        try:
            bundle = boundaries.find(asked)
        except NotABundle as error:
            raise precondition_failed(str(error)) from None
        algorithm = request.query.get("splitAlgorithmName", "")
        await bundles_alone.split(context, boundaries, bundle, algorithm)
        return
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
