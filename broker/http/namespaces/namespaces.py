"""`/admin/v2/namespaces`: creation, deletion, all policies, permissions, and topic lists.

Single policies with endpoints of their own are in `namespace_policies`.
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Final

import trio

from broker.ground.refusal import Refusal, conflict, not_found
from broker.http.namespaces.namespace_policies import refuse_copies
from broker.http.router import Route
from broker.http.topics.non_persistent import non_persistent_topics
from broker.http.topics.partitions import delete_if_there
from broker.tenancy.policies.persistence import persistence
from broker.tenancy.policies.record import AUTO_UPDATE_FIELD
from protocol.topic_name import (
    NON_PERSISTENT,
    PERSISTENT,
    TopicName,
    encode_name,
    is_system_topic,
)

if TYPE_CHECKING:
    from broker.http.context import AdminContext, AdminRequest
    from broker.tenancy.namespaces.loaded_namespaces import Namespace


PASSES_MAX: Final = 100
"""How often the topics of a namespace that is being deleted are listed."""


async def names(request: AdminRequest) -> list[str]:
    """Namespaces of a tenant."""
    return await request.context.namespaces.names(request.names["tenant"])


async def get(request: AdminRequest) -> dict[str, Any]:
    """All policies."""
    namespace = await request.context.namespaces.get(request.namespace_name)
    fields = namespace.policies.record.fields
    if fields.get(AUTO_UPDATE_FIELD) is None:
        fields = {**fields, AUTO_UPDATE_FIELD: namespace.policies.effective.schema_auto_update}
    return fields


async def create(request: AdminRequest) -> None:
    """Add a namespace."""
    given = await request.json_object()
    stored = (given or {}).get("persistence")
    if stored is not None:
        refuse_copies(request.context, persistence("persistence", stored))
    await request.context.namespaces.create(request.namespace_name, given)


async def delete(request: AdminRequest) -> None:
    """Remove a namespace; with `force` also its topics."""
    context = request.context
    if request.flag("force"):
        if not context.config.forceDeleteNamespaceAllowed:
            raise Refusal(405, "Broker doesn't allow forced deletion of namespaces")
        await delete_with_topics(context, request.namespace_name)
        return
    await _delete_if_empty(context, request.namespace_name)


async def delete_with_topics(context: AdminContext, namespace_name: str) -> None:
    """Delete every topic of a namespace, then the namespace.

    Clients return while their topics are deleted. The namespace is marked first, and no broker that
    knows of the mark makes a topic there. One that is being made meanwhile, or by a broker that
    learns of it late, is deleted in another pass. What fails after the first deletion leaves the
    mark: deleting the namespace again completes it.

    Raises: Refusal, BrokerError: also that something failed.
    """
    namespace = await _existing(context, namespace_name)
    async with namespace.deleting:
        await context.namespaces.mark_deleted(namespace_name, deleted=True)
    await _delete_marked(context, namespace_name, is_forced=True)


async def _delete_if_empty(context: AdminContext, namespace_name: str) -> None:
    """Delete the namespace if it has no topics of clients, also none that is being made.

    What is refused takes its own mark back, and no mark of another deletion: one through this
    broker waits, and one through another broker marks the namespace again.

    Raises: Refusal, BrokerError.
    """
    namespaces = context.namespaces
    await _check_empty(context, namespace_name)
    namespace = await _existing(context, namespace_name)
    async with namespace.deleting:
        is_own = await namespaces.mark_deleted(namespace_name, deleted=True)
        try:
            await context.service.loads_ended(namespace_name)
            await _check_empty(context, namespace_name)
            await _delete_marked(context, namespace_name, is_forced=False)
        except BaseException:
            if is_own:
                with trio.CancelScope(shield=True):
                    if await namespaces.find(namespace_name) is not None:
                        await namespaces.mark_deleted(namespace_name, deleted=False)
            raise


async def _existing(context: AdminContext, namespace_name: str) -> Namespace:
    """Raises: Refusal, with the text for deletions."""
    namespace = await context.namespaces.find(namespace_name)
    if namespace is None:
        raise not_found(f"Namespace {namespace_name} does not exist.")
    return namespace


async def _check_empty(context: AdminContext, namespace_name: str) -> None:
    """Raises: Refusal: clients have topics there."""
    await context.namespaces.check_empty(namespace_name)
    if await non_persistent_topics(context, namespace_name, with_system=False):
        raise conflict("Cannot delete non empty namespace")


async def _delete_marked(context: AdminContext, namespace_name: str, *, is_forced: bool) -> None:
    """Delete the namespace, which is marked, with its topics; unless `is_forced` those of clients
    are a refusal. Raises: Refusal, BrokerError."""
    namespaces = context.namespaces
    for _pass in range(PASSES_MAX):
        if await _delete_topics(context, namespace_name, is_forced=is_forced):
            continue
        try:
            await namespaces.delete(namespace_name)
        except Refusal as refusal:
            if refusal.status != 409:
                raise
        else:
            return
        await namespaces.mark_deleted(namespace_name, deleted=True)
    raise Refusal(
        503, f"Topics of {namespace_name} are still being made by another broker: delete it again"
    )


async def _delete_topics(context: AdminContext, namespace_name: str, *, is_forced: bool) -> bool:
    """Delete the topics that exist, and those that are being loaded here; unless `is_forced` those
    of clients are a refusal. Returns whether there were any. Raises: Refusal, BrokerError."""
    namespaces = context.namespaces
    namespace = await namespaces.get(namespace_name)
    async with AsyncExitStack() as stack:
        partitioned = [
            TopicName.parse(topic)
            for domain in (PERSISTENT, NON_PERSISTENT)
            for topic in await namespaces.partitioned_topics(namespace_name, domain)
        ]
        for name in partitioned:
            await stack.enter_async_context(namespace.partitioned.deleting(name))
        await context.service.loads_ended(namespace_name)
        found = [
            *await namespaces.topics(namespace_name, PERSISTENT),
            *await non_persistent_topics(context, namespace_name, with_system=True),
        ]
        of_clients = [topic for topic in found if not is_system_topic(topic)]
        if not is_forced and (
            of_clients or not all(is_system_topic(name.full) for name in partitioned)
        ):
            raise conflict("Cannot delete non empty namespace")
        for topic in of_clients:
            await _delete_topic(context, TopicName.parse(topic))
        for name in partitioned:
            await context.schemas.delete(name, force=True)
            await namespaces.delete_topic_policies(name)
        # In those of brokers the policies of the others are kept.
        for topic in found:
            if is_system_topic(topic):
                await _delete_topic(context, TopicName.parse(topic))
    return bool(partitioned or found)


async def _delete_topic(context: AdminContext, topic: TopicName) -> None:
    """Raises: Refusal, BrokerError."""
    if context.cluster is None:
        await delete_if_there(context, topic, force=True)
        return
    path = f"/admin/v2/{topic.domain}/{topic.namespace_name}/{encode_name(topic.local_name)}"
    status, _body = await context.cluster.ask("DELETE", f"{path}?force=true", b"")
    if status >= 300 and status != 404:  # 404: it is gone, or was never used
        raise Refusal(status, f"The owner of {topic.full} answered {status} to its deletion")


async def topics(request: AdminRequest) -> list[str]:
    """Topics that exist, at whichever broker; `mode` as in the binary protocol. With
    `includeSystemTopic` also those of brokers."""
    context, name = request.context, request.namespace_name
    await context.namespaces.get(name)
    mode = request.query.get("mode", "PERSISTENT") or "PERSISTENT"
    with_system = request.flag("includeSystemTopic")
    found: list[str] = []
    if mode in ("PERSISTENT", "ALL"):
        found += await context.namespaces.topics(name, PERSISTENT, with_system=with_system)
    if mode in ("NON_PERSISTENT", "ALL"):
        found += await non_persistent_topics(context, name, with_system=with_system)
    return found


async def bundles(request: AdminRequest) -> dict[str, Any]:
    """Hash ranges of the namespace."""
    context = request.context
    namespace = await context.namespaces.get(request.namespace_name)
    if context.cluster is None:
        ranges: dict[str, Any] = namespace.policies.record.bundles
        return ranges
    boundaries = await context.cluster.boundaries(request.namespace_name)
    return {"boundaries": boundaries, "numBundles": len(boundaries) - 1}


async def unload(request: AdminRequest) -> None:
    """Close every loaded topic of the namespace. Clients look up again and reopen them."""
    context, name = request.context, request.namespace_name
    if await context.namespaces.find(name) is None:
        raise not_found("Namespace not found")
    if context.cluster is not None:
        await context.cluster.unload_namespace(name)
        return
    for domain in (PERSISTENT, NON_PERSISTENT):
        for topic in await context.service.topic_lists.loaded(name, domain):
            await context.service.unload_topic(TopicName.parse(topic))


_NAMESPACE: Final = "/admin/v2/namespaces/{tenant}/{namespace}"
ROUTES: Final = (
    Route("GET", "/admin/v2/namespaces/{tenant}", names),
    Route("GET", _NAMESPACE, get),
    Route("PUT", _NAMESPACE, create),
    Route("DELETE", _NAMESPACE, delete),
    Route("GET", f"{_NAMESPACE}/topics", topics),
    Route("GET", f"{_NAMESPACE}/bundles", bundles),
    Route("PUT", f"{_NAMESPACE}/unload", unload),
)
