"""`/admin/v2/clusters/{cluster}/namespaceIsolationPolicies`: which brokers own which namespaces.

Paths, statuses and texts as on Pulsar 4.0.8. A policy is stored by any broker, and followed by all.
Namespaces whose placement may change are then unloaded, as `unload_scope` says. A broker that
shares nothing has no policies, and takes none: they would have no effect.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import trio

from broker.cluster.isolation import (
    BadPolicy,
    IsolationPolicies,
    IsolationPolicy,
    Standing,
    namespaces_to_unload,
)
from broker.cluster.isolation_records import change_policies, read_policies
from broker.ground.refusal import Refusal, not_found
from broker.http.clusters.bundles import cluster_of
from broker.http.router import Route
from protocol.errors import TopicNotFound

if TYPE_CHECKING:
    from broker.http.context import AdminContext, AdminRequest

Json = dict[str, Any]


async def check_cluster(request: AdminRequest, status: int) -> str:
    """The name of the cluster in the path. Raises: Refusal with this status: there is none."""
    cluster = request.names["cluster"]
    if cluster not in await request.context.namespaces.clusters.names():
        raise Refusal(status, f"Cluster {cluster} does not exist.")
    return cluster


async def _policies(request: AdminRequest, cluster: str) -> IsolationPolicies:
    """Raises: Refusal: none were ever set."""
    policies = await read_policies(request.context.store, cluster)
    if policies is None:
        raise not_found(f"NamespaceIsolationPolicies for cluster {cluster} does not exist")
    return policies


async def policies(request: AdminRequest) -> Json:
    """All policies of a cluster by name."""
    cluster = await check_cluster(request, 404)
    found = await _policies(request, cluster)
    return {name: policy.record for name, policy in found.policies.items()}


async def policy(request: AdminRequest) -> Json:
    """One of them."""
    cluster = await check_cluster(request, 412)
    name = request.names["policy"]
    found = (await _policies(request, cluster)).policies.get(name)
    if found is None:
        raise not_found(f"Cannot find NamespaceIsolationPolicy {name} for cluster {cluster}")
    return found.record


async def brokers(request: AdminRequest) -> list[Json]:
    """Every broker of the cluster, with the policies that name it."""
    cluster = await check_cluster(request, 412)
    members = request.context.cluster
    names = [request.context.broker_id] if members is None else sorted(members.brokers)
    found = await _policies(request, cluster)
    return [_of_broker(found, name) for name in names]


async def broker(request: AdminRequest) -> Json:
    """One broker, member or not."""
    cluster = await check_cluster(request, 412)
    return _of_broker(await _policies(request, cluster), request.names["broker"])


def _of_broker(policies: IsolationPolicies, broker_id: str) -> Json:
    """The last policy that names a broker decides what it is shown as. As in Pulsar, expressions
    are matched here with the whole name that was asked for, port included."""
    shown: Json = {"brokerName": broker_id, "namespaceRegex": [], "primary": False}
    for name, each in policies.policies.items():
        standing = each.standing_of(broker_id)
        if standing is not None:
            shown["policyName"] = name
            shown["primary"] = standing is Standing.PRIMARY
            shown["namespaceRegex"] += each.namespaces
    return shown


async def set_policy(request: AdminRequest) -> None:
    """Add or replace a policy; unload the namespaces whose placement may change."""
    cluster_of(request)
    cluster = await check_cluster(request, 412)
    name = request.names["policy"]
    given = await request.json_object()
    try:
        new = IsolationPolicy.parse(given)
    except BadPolicy:
        raise _invalid(name, given) from None
    if not new.are_numbers_possible:
        raise _invalid(name, given)
    if new.refused_patterns:
        raise Refusal(400, f"Vela does not support the expression: {new.refused_patterns[0]}")
    old = await change_policies(
        request.context.store,
        cluster,
        lambda policies: IsolationPolicies({**policies.policies, name: new}),
    )
    if cluster == request.context.config.clusterName:
        await _unload(request, old.policies.get(name), new)


def _invalid(name: str, given: Json | None) -> Refusal:
    data = json.dumps(given, ensure_ascii=False, indent=2)
    return Refusal(400, f"Invalid format of input policy data. policy: {name}; data: {data}")


async def delete_policy(request: AdminRequest) -> None:
    """Remove a policy, if there is one. Bundles stay where they are."""
    cluster_of(request)
    cluster = await check_cluster(request, 412)
    name = request.names["policy"]
    await change_policies(
        request.context.store,
        cluster,
        lambda policies: IsolationPolicies(
            {each: policy for each, policy in policies.policies.items() if each != name}
        ),
    )


async def _unload(request: AdminRequest, old: IsolationPolicy | None, new: IsolationPolicy) -> None:
    """Raises: BrokerError: an owner does not answer. The policy is in force all the same."""
    cluster = cluster_of(request)
    for namespace_name in await _namespaces_of_cluster(request.context):
        await trio.lowlevel.checkpoint()
        if namespaces_to_unload(old, new, [namespace_name]):
            try:
                await cluster.unload_namespace(namespace_name)
            except TopicNotFound:
                continue  # it was deleted meanwhile


async def _namespaces_of_cluster(context: AdminContext) -> list[str]:
    names: list[str] = []
    for tenant in await context.namespaces.tenants.names():
        names += await context.namespaces.names(tenant)
    return names


_POLICIES: Final = "/admin/v2/clusters/{cluster}/namespaceIsolationPolicies"
ROUTES: Final = (
    Route("GET", _POLICIES, policies),
    Route("GET", f"{_POLICIES}/brokers", brokers),
    Route("GET", f"{_POLICIES}/brokers/{{broker}}", broker),
    Route("GET", f"{_POLICIES}/{{policy}}", policy),
    Route("POST", f"{_POLICIES}/{{policy}}", set_policy),
    Route("DELETE", f"{_POLICIES}/{{policy}}", delete_policy),
)
