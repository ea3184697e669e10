"""Operations on a subscription of all topics of a namespace, or of one of its bundles, and the
hashes of these topics. Paths and statuses as of Pulsar 4.0.8.

Topics that are stored and not loaded are included; Pulsar leaves them as they are. In a cluster the
owner of each topic does its part.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from broker.cluster.bundles import names_within, topic_hash
from broker.ground.refusal import Refusal
from broker.ground.slices import for_each
from broker.http.redirects import send_on
from broker.http.router import Route
from broker.http.topics.non_persistent import bundle_of
from broker.http.topics.topics import every_part
from protocol.errors import BrokerError, SubscriptionNotFound, TopicNotFound
from protocol.topic_name import PERSISTENT, TopicName, encode_name

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from broker.http.context import AdminRequest
    from broker.topics.topic.topic import Topic

_AT_ONCE: Final = 16


async def _names(request: AdminRequest) -> list[str]:
    """Full names of the stored topics of the namespace or the bundle. Raises: Refusal."""
    namespaces, name = request.context.namespaces, request.namespace_name
    await namespaces.get(name)
    names = await namespaces.topics(name, PERSISTENT, with_system=False)
    if "bundle" not in request.names:
        return names
    bundle = await bundle_of(request)
    return [each for each in names_within(bundle, names) if each is not None]


async def _clear(topic: Topic, subscription: str) -> None:
    await topic.subscription(subscription).clear_backlog()
    topic.request_trim()


async def _unsubscribe(topic: Topic, subscription: str) -> None:
    await topic.delete_subscription(subscription)


async def _on_each(
    request: AdminRequest,
    do: Callable[[Topic, str], Awaitable[None]],
    method: str,
    rest: str,
) -> None:
    """`do` for each topic here, or the request with this method and rest of its path at its owner.

    Raises: Refusal: one that was refused, after the others were done.
    """
    wanted = request.names.get("subscription")
    refused: list[Refusal | BrokerError] = []

    async def on(full: str) -> None:
        name = TopicName.parse(full)
        try:
            if request.context.cluster is None:
                for topic in await every_part(request.context, name):
                    for subscription in [wanted] if wanted else list(topic.subscriptions):
                        await do(topic, subscription)
            else:
                await _at_owner(request, name, wanted, method, rest)
        except (SubscriptionNotFound, TopicNotFound):
            return
        except (Refusal, BrokerError) as error:
            refused.append(error)

    await for_each(await _names(request), on, _AT_ONCE)
    if refused:
        raise refused[0]


async def _at_owner(
    request: AdminRequest, name: TopicName, wanted: str | None, method: str, rest: str
) -> None:
    cluster = request.context.cluster
    assert cluster is not None
    path = f"/admin/v2/{name.domain}/{name.namespace_name}/{encode_name(name.local_name)}"
    subscriptions = [wanted] if wanted else await _subscriptions(request, path)
    for subscription in subscriptions:
        encoded = quote(quote(subscription, safe=""), safe="")
        status, body = await cluster.ask(method, f"{path}/subscription/{encoded}{rest}", b"")
        if status >= 300 and status != 404:
            raise Refusal(status, _reason(body) or f"The owner of {name.full} answered {status}")


async def _subscriptions(request: AdminRequest, path: str) -> list[str]:
    cluster = request.context.cluster
    assert cluster is not None
    status, body = await cluster.ask("GET", f"{path}/subscriptions", b"")
    return list(json.loads(body)) if status == 200 else []


def _reason(body: bytes) -> str:
    try:
        return str(json.loads(body)["reason"])
    except (ValueError, TypeError, KeyError):
        return ""


async def clear_backlog(request: AdminRequest) -> None:
    """Acknowledge everything, for one subscription or for all."""
    await _on_each(request, _clear, "POST", "/skip_all")


async def unsubscribe(request: AdminRequest) -> None:
    """Delete a subscription of every topic. Raises: Refusal: one has consumers."""
    await _on_each(request, _unsubscribe, "DELETE", "")


async def positions(request: AdminRequest) -> dict[str, Any]:
    """The hashes of the topics of a bundle, which decide where it can be split; of these `topics`
    only, if there are any."""
    bundle = await bundle_of(request)
    if request.context.cluster is not None:
        cluster, text = request.context.cluster, bundle.range_text
        send_on(request, await cluster.owner_of_bundle(request.namespace_name, text))
    names = await _names(request)
    wanted = {name.strip() for name in request.query.get("topics", "").split(",") if name.strip()}
    chosen = [name for name in names if not wanted or _is_among(name, wanted)]
    return {
        "namespace": request.namespace_name,
        "bundle": bundle.range_text,
        "topicHashPositions": {name: topic_hash(TopicName.parse(name)) for name in chosen},
    }


def _is_among(full: str, wanted: set[str]) -> bool:
    """Whether this topic, or the partitioned one of which it is a partition, is named."""
    return full in wanted or TopicName.parse(full).partitioned_base.full in wanted


_NAMESPACE: Final = "/admin/v2/namespaces/{tenant}/{namespace}"
ROUTES: Final = (
    *(
        route
        for base in (_NAMESPACE, f"{_NAMESPACE}/{{bundle}}")
        for route in (
            Route("POST", f"{base}/clearBacklog", clear_backlog),
            Route("POST", f"{base}/clearBacklog/{{subscription}}", clear_backlog),
            Route("POST", f"{base}/unsubscribe/{{subscription}}", unsubscribe),
        )
    ),
    Route("GET", f"{_NAMESPACE}/{{bundle}}/topicHashPositions", positions),
)
