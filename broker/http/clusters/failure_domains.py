"""`/admin/v2/clusters/{cluster}/failureDomains`: brokers that may fail together.

They count for namespaces of an anti-affinity group, if `failureDomainsEnabled`. Paths, statuses and
texts as on Pulsar 4.0.8.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from broker.cluster.isolation_records import delete_domain, read_domain, read_domains, write_domain
from broker.ground.refusal import Refusal, conflict, not_found
from broker.http.clusters.bundles import cluster_of
from broker.http.clusters.isolation_policies import check_cluster
from broker.http.router import Route
from web.responses import Response

if TYPE_CHECKING:
    from broker.http.context import AdminRequest

Json = dict[str, Any]


async def domains(request: AdminRequest) -> Json:
    """All domains by name; none of a cluster that is not there."""
    found = await read_domains(request.context.store, request.names["cluster"])
    return {name: {"brokers": brokers} for name, brokers in found.items()}


async def domain(request: AdminRequest) -> Json:
    """The brokers of one domain."""
    cluster = await check_cluster(request, 412)
    name = request.names["failure_domain"]
    brokers = await read_domain(request.context.store, cluster, name)
    if brokers is None:
        raise not_found(f"Domain {name} for cluster {cluster} does not exist")
    return {"brokers": brokers}


async def set_domain(request: AdminRequest) -> None:
    """Create or replace a domain. A broker is in one domain."""
    cluster_of(request)
    cluster = await check_cluster(request, 412)
    name, store = request.names["failure_domain"], request.context.store
    given = await request.json_object()
    brokers = (given or {}).get("brokers") or []
    if not isinstance(brokers, list) or not all(isinstance(each, str) for each in brokers):
        raise Refusal(400, "brokers must be an array of names")
    brokers = sorted(set(brokers))
    for other, others in (await read_domains(store, cluster)).items():
        twice = [each for each in others if each in brokers]
        if other != name and twice:
            raise conflict(f"[{', '.join(twice)}] already exists in {other}")
    await write_domain(store, cluster, name, brokers)


async def delete(request: AdminRequest) -> Response:
    """Remove a domain."""
    cluster_of(request)
    cluster = await check_cluster(request, 412)
    name = request.names["failure_domain"]
    if not await delete_domain(request.context.store, cluster, name):
        raise not_found(f"Domain-name {name} or cluster {cluster} does not exist")
    return Response(status=200)


_DOMAINS: Final = "/admin/v2/clusters/{cluster}/failureDomains"
ROUTES: Final = (
    Route("GET", _DOMAINS, domains),
    Route("GET", f"{_DOMAINS}/{{failure_domain}}", domain),
    Route("POST", f"{_DOMAINS}/{{failure_domain}}", set_domain),
    Route("DELETE", f"{_DOMAINS}/{{failure_domain}}", delete),
)
