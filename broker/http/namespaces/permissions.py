"""Grants by REST: `.../permissions` of namespaces, topics and subscriptions. Statuses and texts as
on Pulsar 4.0.8.

A grant on a partitioned topic is one on its name, and holds for its partitions. Grants may be made
while authorization is off.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from broker.ground.refusal import Refusal, not_found
from broker.http.authorization import check
from broker.http.router import Route
from broker.http.topics.topics import TOPIC
from broker.tenancy.authorization.decision import Scope
from broker.tenancy.authorization.operations import operation
from broker.tenancy.policies.grants import (
    ACTIONS,
    NAMESPACE_AUTH,
    SUBSCRIPTION_AUTH,
    TOPIC_AUTH,
)
from protocol.topic_name import TopicName

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from broker.http.context import AdminContext, AdminRequest
    from broker.tenancy.policies.record import Policies

Json = dict[str, Any]
_ADMIN: Final = operation("admin")
_NO_NAMESPACE: Final = "Topic's namespace does not exist"


def _actions(given: object) -> list[str]:
    """Without repetitions, in Pulsar's order. Raises: Refusal: Pulsar stores null for an action
    that it does not know."""
    if given is None:
        raise Refusal(400, "Actions should not be null")
    if not isinstance(given, list) or any(each not in ACTIONS for each in given):
        raise Refusal(400, f"Actions must be an array of some of {', '.join(ACTIONS)}")
    return [each for each in ACTIONS if each in given]


async def _change(
    request: AdminRequest, name: str, refusal: str, change: Callable[[Policies], Policies]
) -> None:
    """Raises: Refusal."""
    namespaces = request.context.namespaces
    if await namespaces.find(name) is None:
        raise not_found(refusal)
    await namespaces.change_policies(name, change)


# --- namespaces -----------------------------------------------------------------------------


async def of_namespace(request: AdminRequest) -> Json:
    """Granted actions by role."""
    return await _part(request, NAMESPACE_AUTH)


async def _part(request: AdminRequest, part: str) -> Json:
    namespace = await request.context.namespaces.get(request.namespace_name)
    return namespace.policies.record.auth(part)


async def grant_on_namespace(request: AdminRequest) -> None:
    """Body: the actions that a role may do from now on, and no others."""
    role, actions = request.names["role"], _actions(await request.json())
    await _change(
        request,
        request.namespace_name,
        _NO_NAMESPACE,
        lambda record: record.with_auth(
            NAMESPACE_AUTH, {**record.auth(NAMESPACE_AUTH), role: actions}
        ),
    )


async def revoke_on_namespace(request: AdminRequest) -> None:
    """The role may do nothing from now on that was granted for the whole namespace."""
    role = request.names["role"]
    await _change(
        request,
        request.namespace_name,
        "Namespace does not exist",
        lambda record: record.with_auth(
            NAMESPACE_AUTH, _without(record.auth(NAMESPACE_AUTH), role)
        ),
    )


def _without(given: Json, key: str) -> Json:
    return {name: each for name, each in given.items() if name != key}


# --- subscriptions --------------------------------------------------------------------------


async def of_subscriptions(request: AdminRequest) -> Json:
    """Roles by subscription. A subscription without any is open to all that may consume."""
    return await _part(request, SUBSCRIPTION_AUTH)


async def grant_on_subscription(request: AdminRequest) -> None:
    """Body: the roles that may use a subscription from now on, and no others."""
    name, roles = request.names["subscription"], await request.json()
    if roles is None:
        raise Refusal(400, "Roles should not be null")
    if not isinstance(roles, list) or not all(isinstance(each, str) for each in roles):
        raise Refusal(400, "Roles must be an array of names")
    await _change(
        request,
        request.namespace_name,
        "Namespace does not exist",
        lambda record: record.with_auth(
            SUBSCRIPTION_AUTH, {**record.auth(SUBSCRIPTION_AUTH), name: list(dict.fromkeys(roles))}
        ),
    )


async def revoke_on_subscription(request: AdminRequest) -> None:
    """The role may not use the subscription any more, unless it was the last one named for it."""
    name, role = request.names["subscription"], request.names["role"]

    def change(record: Policies) -> Policies:
        granted = record.auth(SUBSCRIPTION_AUTH)
        if name not in granted:
            raise Refusal(500, "couldn't find subscription")
        left = [each for each in granted[name] if each != role]
        others = _without(granted, name)
        return record.with_auth(SUBSCRIPTION_AUTH, {**others, name: left} if left else others)

    await _change(request, request.namespace_name, "Namespace does not exist", change)


# --- topics ---------------------------------------------------------------------------------


async def _check_may_have_grants(context: AdminContext, topic: TopicName) -> None:
    """Raises: Refusal."""
    if not context.config.allowAclChangesOnNonExistentTopics:
        await _check_exists(context, topic)


async def _check_exists(context: AdminContext, topic: TopicName) -> None:
    """Raises: Refusal."""
    if not await context.namespaces.tenants.exists(topic.tenant):
        raise not_found("Tenant does not exist")
    if not await context.namespaces.topic_exists(topic):
        raise not_found(f"Topic {topic.full} not found")


async def of_topic(request: AdminRequest) -> dict[str, list[str]]:
    """Granted actions by role: those on the topic, and on its namespace."""
    topic = request.topic
    await _check_may_have_grants(request.context, topic)
    namespace = await request.context.namespaces.get(topic.namespace_name)
    record = namespace.policies.record
    granted: dict[str, list[str]] = record.auth(NAMESPACE_AUTH)
    for role, actions in record.auth(TOPIC_AUTH).get(topic.full, {}).items():
        both = {*granted.get(role, ()), *actions}
        granted[role] = [each for each in ACTIONS if each in both]
    return granted


def granted(record: Policies, topic: TopicName, role: str, actions: list[str]) -> Policies:
    """With these actions for the role, and no others."""
    topics = record.auth(TOPIC_AUTH)
    roles = {**topics.get(topic.full, {}), role: actions}
    return record.with_auth(TOPIC_AUTH, {**topics, topic.full: roles})


def revoked(record: Policies, topics: Iterable[TopicName], role: str) -> Policies:
    """Without what was granted to the role on these topics."""
    left = record.auth(TOPIC_AUTH)
    for topic in topics:
        roles = _without(left.pop(topic.full, {}), role)
        if roles:
            left[topic.full] = roles
    return record.with_auth(TOPIC_AUTH, left)


async def grant_on_topic(request: AdminRequest) -> None:
    """Body: the actions that a role may do from now on with the topic."""
    topic, role = request.topic, request.names["role"]
    actions = _actions(await request.json())
    await _check_may_have_grants(request.context, topic)
    await _change(
        request,
        topic.namespace_name,
        _NO_NAMESPACE,
        lambda record: granted(record, topic, role, actions),
    )


async def revoke_on_topic(request: AdminRequest) -> None:
    """Revoke on a topic; of a partitioned topic also the grants on single partitions."""
    context, topic, role = request.context, request.topic, request.names["role"]
    await _check_may_have_grants(context, topic)
    count = await context.namespaces.partitions_of(topic)
    topics = [*(topic.partition(index) for index in range(count)), topic]
    await _change(
        request,
        topic.namespace_name,
        _NO_NAMESPACE,
        lambda record: revoked(record, topics, role),
    )


# --- many topics ----------------------------------------------------------------------------


async def _options(request: AdminRequest) -> list[tuple[TopicName, str, Json]]:
    """Topic, role and the whole option of each; they are all of one namespace, whose tenant the
    caller administers. Raises: Refusal, BrokerError."""
    given = await request.json()
    if not isinstance(given, list) or not all(isinstance(each, dict) for each in given):
        raise Refusal(400, "The body must be a JSON array of objects")
    options: list[tuple[TopicName, str, Json]] = []
    for each in given:
        topic, role = each.get("topic"), each.get("role")
        if not isinstance(topic, str) or not isinstance(role, str):
            raise Refusal(400, "Each object must name a topic and a role")
        options.append((TopicName.parse(topic), role, each))
    if len({topic.namespace_name for topic, _, _ in options}) != 1:
        raise Refusal(400, "The namespace should be the same")
    await check(request, _ADMIN, Scope(options[0][0].tenant))
    for topic, _, _ in options:
        await _check_exists(request.context, topic)
    return options


async def grant_on_topics(request: AdminRequest) -> None:
    """Body: [{topic, role, actions}]."""
    options = [
        (topic, role, _actions(option.get("actions")))
        for topic, role, option in await _options(request)
    ]

    def change(record: Policies) -> Policies:
        for topic, role, actions in options:
            record = granted(record, topic, role, actions)
        return record

    await _change(request, options[0][0].namespace_name, _NO_NAMESPACE, change)


async def revoke_on_topics(request: AdminRequest) -> None:
    """Body: [{topic, role}]. Not of the partitions of a partitioned topic."""
    options = await _options(request)

    def change(record: Policies) -> Policies:
        for topic, role, _ in options:
            record = revoked(record, [topic], role)
        return record

    await _change(request, options[0][0].namespace_name, _NO_NAMESPACE, change)


_NAMESPACES: Final = "/admin/v2/namespaces"
_NAMESPACE: Final = f"{_NAMESPACES}/{{tenant}}/{{namespace}}/permissions"
_TOPIC: Final = f"{TOPIC}/permissions"
ROUTES: Final = (
    Route("GET", _NAMESPACE, of_namespace),
    Route("POST", f"{_NAMESPACE}/{{role}}", grant_on_namespace),
    Route("DELETE", f"{_NAMESPACE}/{{role}}", revoke_on_namespace),
    Route("GET", f"{_NAMESPACE}/subscription", of_subscriptions),
    Route("POST", f"{_NAMESPACE}/subscription/{{subscription}}", grant_on_subscription),
    Route("DELETE", f"{_NAMESPACE}/{{subscription}}/{{role}}", revoke_on_subscription),
    Route("GET", _TOPIC, of_topic),
    Route("POST", f"{_TOPIC}/{{role}}", grant_on_topic),
    Route("DELETE", f"{_TOPIC}/{{role}}", revoke_on_topic),
    Route("POST", f"{_NAMESPACES}/grantPermissionsOnTopics", grant_on_topics),
    Route("POST", f"{_NAMESPACES}/revokePermissionsOnTopics", revoke_on_topics),
)
