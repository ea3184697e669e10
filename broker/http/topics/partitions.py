"""`.../{topic}/partitions`: creates, extends and removes partitioned topics (v2 and v3 paths)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from broker.ground.refusal import Refusal, conflict
from broker.http.router import Route
from broker.http.shadows import refuse_shadow
from broker.http.topics.topics import text_map
from broker.topics.subscription.request import SubscriptionRequest
from protocol.errors import TopicNotFound
from protocol.json_numbers import number_of

if TYPE_CHECKING:
    from broker.http.context import AdminContext, AdminRequest
    from protocol.topic_name import TopicName


async def get(request: AdminRequest) -> dict[str, Any]:
    """PartitionedTopicMetadata; 0 partitions for a plain topic."""
    namespaces, topic = request.context.namespaces, request.topic
    allowed = request.flag("checkAllowAutoCreation")
    count = await namespaces.resolve_for_lookup(topic, allowed)
    metadata = (await namespaces.of_topic(topic)).partitioned.metadata(topic) if count else None
    return metadata or {"partitions": 0, "deleted": False}


async def create(request: AdminRequest) -> None:
    """Body: a number, or `{"partitions": n, "properties": {...}}`."""
    body = await request.json()
    properties: dict[str, str] | None = None
    if isinstance(body, dict):
        properties = text_map(body.get("properties") or {}) or None
        refuse_shadow(properties)
        body = body.get("partitions")
    count = number_of(body)
    if count is None:
        raise Refusal(400, "The body must be the number of partitions")
    await request.context.namespaces.create_partitioned_topic(request.topic, count, properties)


async def grow(request: AdminRequest) -> None:
    """Body: the new total. Subscriptions of the old partitions are created on the new ones."""
    context, topic = request.context, request.topic
    total = await request.json_int()
    namespace = await context.namespaces.get(request.namespace_name)
    namespace.check_not_deleted()
    before = namespace.partitioned.count(topic)
    namespace.partitioned.check_count(topic, total)
    if before and topic.persistent:
        await _copy_subscriptions(context, topic, before, total)
    await namespace.partitioned.grow(topic, total)


async def _copy_subscriptions(
    context: AdminContext, topic: TopicName, before: int, total: int
) -> None:
    """Before clients learn of the new partitions: a failure can then be repeated."""
    wanted: dict[str, SubscriptionRequest] = {}
    for index in range(before):
        partition = await context.service.find_topic(topic.partition(index))
        for name, each in partition.subscriptions.items():
            if each.durable and name not in wanted:
                properties = dict(each.properties)
                wanted[name] = SubscriptionRequest(
                    name, earliest=True, properties=properties, replicated=each.is_replicated
                )
    if wanted:
        namespace = await context.namespaces.of_topic(topic)
        await namespace.partitioned.make_nodes(topic, total)
    for index in range(before, total if wanted else before):
        partition = await context.service.get_or_load_topic(topic.partition(index), create=True)
        for name in sorted(wanted):
            await partition.copy_subscription(wanted[name])


async def delete(request: AdminRequest) -> None:
    """Remove the partitioned topic with all its partitions."""
    context, topic = request.context, request.topic
    force = request.flag("force")
    namespace = await context.namespaces.get(request.namespace_name)
    count = namespace.partitioned.count(topic)
    if not count:
        if await context.namespaces.topic_exists(topic):
            raise conflict(
                f"{topic.full} is a non-partitioned topic. Instead of calling "
                "delete-partitioned-topic please call delete."
            )
        raise Refusal(404, f"Topic {topic.full} not found.")
    async with namespace.partitioned.deleting(topic):
        for index in range(count):
            await delete_if_there(context, topic.partition(index), force=force)
    await context.schemas.delete(topic, force=True)
    await context.namespaces.delete_topic_policies(topic)


async def delete_if_there(context: AdminContext, topic: TopicName, *, force: bool) -> None:
    """Delete one partition. One that was never used has nothing to delete."""
    try:
        await context.service.delete_topic(topic, force=force)
    except TopicNotFound:
        return


def _routes() -> tuple[Route, ...]:
    routes: list[Route] = []
    for version in ("v2", "v3"):
        path = f"/admin/{version}/{{domain}}/{{tenant}}/{{namespace}}/{{topic}}/partitions"
        routes += [
            Route("GET", path, get),
            Route("PUT", path, create),
            Route("POST", path, grow),
            Route("DELETE", path, delete),
        ]
    return tuple(routes)


ROUTES: Final = _routes()
