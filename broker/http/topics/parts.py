"""Requests for a partitioned topic in a cluster: the owner of each partition answers for it, and
the answers are put together. A broker that has all topics itself does not use this module.

Answers of all partitions are JSON in memory until they are put together, so their number and sizes
are bounded. Work on large ones is done in a thread. Statuses and texts of the whole are those of
the handlers for a topic whose partitions are all here.
"""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar, final
from urllib.parse import quote

import trio

from broker.ground.refusal import Refusal, not_found
from broker.http.streaming import Streamed, json_pieces
from broker.http.topics.partitioned_json import (
    partitioned_internal_stats,
    partitioned_stats,
)
from protocol.errors import ServiceNotReady
from protocol.topic_name import encode_name

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from broker.http.context import AdminRequest
    from broker.http.router import Route

Json = Any
T = TypeVar("T")

ASKED_AT_ONCE: Final = 16
IN_EVENT_LOOP_BYTES_MAX: Final = 64 * 1024
"""More than this is read, and put together, in a thread."""
_EARLIEST: Final = {"ledgerId": -1, "entryId": -1}
_TOPIC_SEGMENT: Final = 6
"""The index of `{topic}` in `/admin/v2/{domain}/{tenant}/{namespace}/{topic}/...`, split at
slashes."""


@final
class PartAnswer(NamedTuple):
    """The answer of the owner of one partition."""

    name: str
    status: int
    body: bytes

    @property
    def is_refusal(self) -> bool:
        """Whether it was not done."""
        return self.status >= 300

    def refusal(self) -> Refusal:
        """It as the answer for the whole topic."""
        try:
            reason = json.loads(self.body)["reason"]
        except (ValueError, TypeError, KeyError):
            reason = f"the owner of {self.name} answered {self.status}"
        return Refusal(self.status, str(reason))


async def ask_parts(
    request: AdminRequest,
    indexes: Iterable[int],
    rest: str,
    *,
    method: str = "",
    query: str | None = None,
    body: bytes | None = None,
) -> list[PartAnswer]:
    """Ask the owners of these partitions, by index. `rest` follows the topic in the path. What is
    not given is as in the request. For an owner that cannot be reached the answer is 503.
    """
    cluster = request.context.cluster
    assert cluster is not None
    head = "/".join(request.raw_path.split("/")[:_TOPIC_SEGMENT])
    tail = f"?{text}" if (text := request.query_text if query is None else query) else ""
    sent = await request.body() if body is None else body
    names = [request.topic.partition(index) for index in indexes]
    answers: list[PartAnswer | None] = [None] * len(names)
    limiter = trio.CapacityLimiter(ASKED_AT_ONCE)

    async def ask(place: int) -> None:
        name = names[place]
        path = f"{head}/{encode_name(name.local_name)}{rest}{tail}"
        path = path.replace("/admin/v3/", "/admin/v2/", 1)
        async with limiter:
            try:
                status, found = await cluster.ask(method or request.method, path, sent)
            except ServiceNotReady as error:  # one of several at once: not to be raised here
                status, found = 503, json.dumps({"reason": error.message}).encode()
        answers[place] = PartAnswer(name.full, status, found)

    async with trio.open_nursery() as nursery:
        for place in range(len(names)):
            nursery.start_soon(ask, place)
    return [answer for answer in answers if answer is not None]


def refuse_any(answers: Iterable[PartAnswer], but: Iterable[int] = ()) -> None:
    """Raises: Refusal: the first one of a partition, except with these statuses."""
    for answer in answers:
        if answer.is_refusal and answer.status not in but:
            raise answer.refusal()


def refuse_all(answers: Sequence[PartAnswer], status: int, text: str) -> None:
    """Raises: Refusal: with this text if all partitions refused with this status, otherwise the
    first with another one."""
    refuse_any(answers, (status,))
    if answers and all(answer.status == status for answer in answers):
        raise Refusal(status, text)


async def _put_together(
    answers: Sequence[PartAnswer], merge: Callable[[list[tuple[str, Json]]], T]
) -> T:
    def work() -> T:
        return merge([(answer.name, json.loads(answer.body)) for answer in answers])

    if sum(len(answer.body) for answer in answers) <= IN_EVENT_LOOP_BYTES_MAX:
        return work()
    return await trio.to_thread.run_sync(work)


# --- statistics -----------------------------------------------------------------------------


async def stats(request: AdminRequest, count: int) -> Streamed:
    """PartitionedTopicStats."""
    answers = await ask_parts(request, range(count), "/stats")
    refuse_any(answers)
    per_part = request.flag("perPartition", default=True)
    metadata = await _metadata(request)
    merged = await _put_together(answers, partial(partitioned_stats, metadata, per_part))
    return Streamed(json_pieces(merged))


async def internal(request: AdminRequest, count: int) -> Streamed:
    """PartitionedTopicInternalStats."""
    answers = await ask_parts(request, range(count), "/internalStats")
    refuse_any(answers)
    metadata = await _metadata(request)
    merged = await _put_together(answers, partial(partitioned_internal_stats, metadata))
    return Streamed(json_pieces(merged))


async def _metadata(request: AdminRequest) -> Json:
    namespace = await request.context.namespaces.get(request.namespace_name)
    return namespace.partitioned.metadata(request.topic)


# --- the topic ------------------------------------------------------------------------------


async def unload(request: AdminRequest, count: int) -> None:
    """Close all partitions."""
    refuse_any(await ask_parts(request, range(count), "/unload"))


async def terminate(request: AdminRequest, count: int) -> dict[str, Json]:
    """Ids of the last messages by partition index."""
    answers = await ask_parts(request, range(count), "/terminate")
    refuse_any(answers)
    return {str(index): json.loads(answer.body) for index, answer in enumerate(answers)}


async def trim(request: AdminRequest, count: int) -> str:
    """Delete ledgers that are not needed."""
    refuse_any(await ask_parts(request, range(count), "/trim"))
    return ""


async def delete(request: AdminRequest, count: int) -> None:
    """Delete all partitions, then the record. One that was never used has nothing to delete."""
    query = "force=true" if request.flag("force") else ""
    namespace = await request.context.namespaces.get(request.namespace_name)
    async with namespace.partitioned.deleting(request.topic):
        refuse_any(await ask_parts(request, range(count), "", query=query), but=(404,))
    await request.context.schemas.delete(request.topic, force=True)
    await request.context.namespaces.delete_topic_policies(request.topic)


async def grow(request: AdminRequest, count: int) -> None:
    """Body: the new total. Subscriptions of the old partitions are created on the new ones."""
    total = await request.json_int()
    namespace = await request.context.namespaces.get(request.namespace_name)
    namespace.partitioned.check_count(request.topic, total)
    if request.topic.persistent:
        await _copy_subscriptions(request, count, total)
    await namespace.partitioned.grow(request.topic, total)


async def _copy_subscriptions(request: AdminRequest, count: int, total: int) -> None:
    """Before clients learn of the new partitions: a failure can then be repeated."""
    query = "excludePublishers=true&excludeConsumers=true"
    found = await ask_parts(request, range(count), "/stats", method="GET", query=query, body=b"")
    refuse_any(found, but=(404,))
    existing = [answer for answer in found if not answer.is_refusal]
    wanted = await _put_together(existing, _durable_subscriptions)
    if wanted:
        namespace = await request.context.namespaces.of_topic(request.topic)
        await namespace.partitioned.make_nodes(request.topic, total)
    for name, properties, is_replicated in wanted:
        body = json.dumps({**_EARLIEST, "properties": properties}).encode()
        path = f"/subscription/{quote(quote(name, safe=''), safe='')}"
        added = await ask_parts(
            request,
            range(count, total),
            path,
            method="PUT",
            query="replicated=true" if is_replicated else "",
            body=body,
        )
        refuse_any(added, but=(409,))


def _durable_subscriptions(parts: list[tuple[str, Json]]) -> list[tuple[str, Json, bool]]:
    """Their names and properties, and whether they are to be replicated."""
    found: dict[str, tuple[Json, bool]] = {}
    for _part, stats in parts:
        for name, row in stats["subscriptions"].items():
            if row.get("isDurable", True) and name not in found:
                properties = row.get("subscriptionProperties") or {}
                found[name] = properties, bool(row.get("isReplicated"))
    return [(name, *found[name]) for name in sorted(found)]


# --- subscriptions --------------------------------------------------------------------------


async def subscriptions(request: AdminRequest, count: int) -> list[str]:
    """Names on any partition."""
    answers = await ask_parts(request, range(count), "/subscriptions")
    refuse_any(answers)
    names = await _put_together(answers, lambda parts: dict.fromkeys(_flat(parts)))
    return list(names)


def _flat(parts: list[tuple[str, Json]]) -> Iterable[str]:
    return (name for _part, names in parts for name in names)


async def create_subscription(request: AdminRequest, count: int) -> None:
    """On the partitions that lack it; 409 if none does."""
    answers = await _of_subscription(request, count)
    refuse_all(answers, 409, "Subscription already exists for topic")


async def of_those_that_have_it(request: AdminRequest, count: int) -> None:
    """Delete it, or acknowledge everything, where there is one."""
    name = request.names["subscription"]
    answers = await _of_subscription(request, count)
    missing = f"Subscription {name} not found for topic {request.topic.full}"
    refuse_all(answers, 404, "Subscription not found" if request.method == "DELETE" else missing)


async def of_all(request: AdminRequest, count: int) -> None:
    """Done on all partitions that can, then the first refusal counts."""
    refuse_any(await _of_subscription(request, count))


async def replicated_status(request: AdminRequest, count: int) -> Json:
    """That of every partition."""
    answers = await _of_subscription(request, count)
    refuse_any(answers)
    return await _put_together(answers, _joined)


def _joined(parts: list[tuple[str, Json]]) -> Json:
    return {name: value for _part, found in parts for name, value in found.items()}


async def expire(request: AdminRequest, count: int) -> None:
    """On the partitions that have it; then the first that had nothing to expire counts."""
    answers = await _of_subscription(request, count)
    if all(answer.status == 404 for answer in answers):
        raise not_found(
            f"Subscription {request.names['subscription']} not found for topic {request.topic.full}"
        )
    refuse_any(answers, but=(404,))


async def _of_subscription(request: AdminRequest, count: int) -> list[PartAnswer]:
    """The same request for each partition."""
    rest = "/".join(request.raw_path.split("/")[_TOPIC_SEGMENT + 1 :])
    return await ask_parts(request, range(count), f"/{rest}")


# --- routes ---------------------------------------------------------------------------------

_TOPIC: Final = "/{domain}/{tenant}/{namespace}/{topic}"
_SUBSCRIPTION: Final = "/subscription/{subscription}"
BY_PARTS: Final[dict[str, Callable[[AdminRequest, int], Awaitable[Json]]]] = {
    "GET /partitioned-stats": stats,
    "GET /partitioned-internalStats": internal,
    "PUT /unload": unload,
    "POST /terminate/partitions": terminate,
    "POST /trim": trim,
    "DELETE /partitions": delete,
    "POST /partitions": grow,
    "GET /subscriptions": subscriptions,
    f"PUT {_SUBSCRIPTION}": create_subscription,
    f"DELETE {_SUBSCRIPTION}": of_those_that_have_it,
    f"POST {_SUBSCRIPTION}/skip_all": of_those_that_have_it,
    f"POST {_SUBSCRIPTION}/resetcursor/{{timestamp}}": of_all,
    f"GET {_SUBSCRIPTION}/replicatedSubscriptionStatus": replicated_status,
    f"POST {_SUBSCRIPTION}/replicatedSubscriptionStatus": of_all,
    f"POST {_SUBSCRIPTION}/expireMessages/{{seconds}}": expire,
    "POST /all_subscription/expireMessages/{seconds}": of_all,
}
"""By method, and what follows the topic in the path of a route."""


def by_parts(routes: Iterable[Route]) -> tuple[Route, ...]:
    """The same routes; those in BY_PARTS know what to do for a partitioned topic of a cluster."""
    return tuple(
        replace(route, by_parts=BY_PARTS.get(f"{route.method} {route.path.partition(_TOPIC)[2]}"))
        for route in routes
    )
