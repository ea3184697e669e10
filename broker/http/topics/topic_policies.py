"""`.../{topic}/{policy}`: policies of a single topic. Statuses and texts as of Pulsar 4.0.8.

Those of a partitioned topic are set on the whole, never on a partition. There is one table: the
path, the field it changes (of the same name as in a namespace's record), and the form of a value.
A change is in force at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, final

from broker.ground.refusal import Refusal, not_found, precondition_failed
from broker.http.namespaces.namespace_policies import (
    EMPTY_BODY,
    refuse_copies,
    refuse_nothing,
)
from broker.http.router import Route
from broker.tenancy.namespaces.topic_policies import DISABLED
from broker.tenancy.policies.delivery_rates import (
    NO_DISPATCH_RATE,
    REPLICATOR_DISPATCH,
    SUBSCRIBE,
    SUBSCRIPTION_DISPATCH,
    TOPIC_DISPATCH,
    dispatch_rate,
    record_of_dispatch,
    record_of_subscribe,
    subscribe_rate,
)
from broker.tenancy.policies.given import (
    Check,
    limit,
    not_negative,
    subscription_types,
    time_to_live,
    whole_number,
)
from broker.tenancy.policies.levels import Levels
from broker.tenancy.policies.persistence import persistence, record_of
from broker.tenancy.policies.rates import publish_rate
from web.responses import Response, json_response

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.ground.config import BrokerConfig
    from broker.http.context import AdminContext, AdminRequest
    from broker.tenancy.namespaces.loaded_namespaces import Namespace
    from broker.tenancy.policies.effective import EffectivePolicies

Json = Any


def no_conflict(_levels: Levels, _value: Json, _config: BrokerConfig) -> str:
    """Any value goes together with the other policies."""
    return ""


@final
@dataclass(frozen=True, slots=True)
class TopicPolicy:
    """One policy with endpoints of its own."""

    path: str
    field: str
    check: Check
    applied: Callable[[EffectivePolicies], Json] | None = None
    """The value in force, which GET shows with `applied`; None: Pulsar does not show it."""
    by_cluster: bool = False
    """Whether the field has a value for each cluster."""
    no_body: str = ""
    """Why a request without a body is refused; empty: it changes nothing, as in Pulsar."""
    null: Json = None
    """The value that a body of null stands for; None: it changes nothing."""
    null_removes: bool = False
    """Whether no body, or null, removes it instead."""
    setter: str = "POST"
    """The method that sets it."""
    switched_on: bool = False
    """Whether a request sets it to true, whatever its body."""
    removable: bool = True
    neutral: Json = None
    """A value that says nothing: it is removed instead of stored."""
    parameter: str = ""
    """The parameter of the query that is the value; empty: the body is."""
    refuse: Callable[[AdminContext, Json], None] = refuse_nothing
    """Raises: Refusal: what the check kept cannot be had of this broker."""
    conflict: Callable[[Levels, Json, BrokerConfig], str] = no_conflict
    """Why a value does not go together with the other policies; empty: it does."""
    unset: Json = None
    """The answer of GET when it is not set; None: an empty one."""
    stored_topics_only: str = ""
    """Why it cannot be set on a topic that is not stored; empty: it can."""
    one_cluster_only: str = ""
    """Why it cannot be set for all clusters; empty: it can."""

    def of(self, record: dict[str, Json], cluster: str) -> Json:
        """Its value in a record; None: there is none."""
        value = record.get(self.field)
        return (value or {}).get(cluster) if self.by_cluster else value

    def applied_to(self, request: AdminRequest, namespace: Namespace) -> Json:
        """Of a topic that says nothing itself in this cluster, or with `isGlobal` in all. What it
        says in all clusters is in force here, but not shown, as in Pulsar. A value for each
        cluster is shown as the namespace has it, also one that limits nothing."""
        assert self.applied is not None
        value: Json = None
        if self.by_cluster:
            record = namespace.policies.record.fields
            value = self.of(record, request.context.config.clusterName)
        if value is None:
            value = self.applied(namespace.policies.effective)
        return value


def _number(path: str, field: str, check: Check, name: str = "") -> TopicPolicy:
    """A limit that GET shows with `applied` if it has a name in the policies in force."""
    applied = (lambda policies: getattr(policies.counts, name)) if name else None
    return TopicPolicy(path, field, check, applied, no_body=EMPTY_BODY, null=0)


def _unacked(policy: str, value: Json) -> Json:
    return not_negative(whole_number(policy, value), "maxUnackedNum must be 0 or more")


def _consumers_of_subscription(policy: str, value: Json) -> Json:
    return not_negative(whole_number(policy, value), f"Invalid value for {policy}")


_WRONG_SIZE: Final = (
    "topic-level maxMessageSize must be greater than or equal to 0 and must be smaller than that in"
    " the broker-level"
)


def _message_size(policy: str, value: Json) -> Json:
    return not_negative(whole_number(policy, value), _WRONG_SIZE)


def _refuse_size(context: AdminContext, value: Json) -> None:
    if value > context.config.maxMessageSize:
        raise precondition_failed(_WRONG_SIZE)


SUBSCRIPTION_DISPATCH_RATE: Final = TopicPolicy(
    "subscriptionDispatchRate",
    SUBSCRIPTION_DISPATCH,
    dispatch_rate,
    lambda policies: record_of_dispatch(policies.delivery.subscription),
    by_cluster=True,
)
POLICIES: Final = (
    TopicPolicy(
        "persistence",
        "persistence",
        persistence,
        lambda policies: record_of(policies.persistence),
        no_body="persistence policies should not be null",
        refuse=refuse_copies,
        stored_topics_only="Persistence of a non-persistent topic is not allowed",
    ),
    TopicPolicy(
        "messageTTL",
        "message_ttl_in_seconds",
        time_to_live,
        lambda policies: policies.message_ttl_seconds,
        parameter="messageTTL",
        null_removes=True,
    ),
    TopicPolicy("publishRate", "publishMaxMessageRate", publish_rate, by_cluster=True),
    TopicPolicy(
        "dispatchRate",
        TOPIC_DISPATCH,
        dispatch_rate,
        lambda policies: record_of_dispatch(policies.delivery.topic),
        by_cluster=True,
    ),
    SUBSCRIPTION_DISPATCH_RATE,
    TopicPolicy(
        "replicatorDispatchRate",
        REPLICATOR_DISPATCH,
        dispatch_rate,
        lambda _policies: record_of_dispatch(NO_DISPATCH_RATE),
        by_cluster=True,
        null_removes=True,
    ),
    TopicPolicy(
        "subscribeRate",
        SUBSCRIBE,
        subscribe_rate,
        lambda policies: record_of_subscribe(policies.delivery.subscribe),
        by_cluster=True,
    ),
    _number("maxProducers", "max_producers_per_topic", limit, "producers_max"),
    _number("maxConsumers", "max_consumers_per_topic", limit, "consumers_max"),
    _number("maxSubscriptionsPerTopic", "max_subscriptions_per_topic", limit),
    _number(
        "maxConsumersPerSubscription", "max_consumers_per_subscription", _consumers_of_subscription
    ),
    TopicPolicy(
        "maxMessageSize",
        "max_message_size",
        _message_size,
        no_body=EMPTY_BODY,
        null=0,
        refuse=_refuse_size,
    ),
    TopicPolicy(
        "maxUnackedMessagesOnConsumer",
        "max_unacked_messages_per_consumer",
        _unacked,
        lambda policies: policies.counts.unacked_of_consumer_max,
        null_removes=True,
    ),
    TopicPolicy(
        "maxUnackedMessagesOnSubscription",
        "max_unacked_messages_per_subscription",
        _unacked,
        lambda policies: policies.counts.unacked_of_subscription_max,
        null_removes=True,
    ),
    TopicPolicy(
        "subscriptionTypesEnabled",
        "subscription_types_enabled",
        subscription_types,
        no_body=EMPTY_BODY,
        unset=[],
    ),
)


_TOPIC: Final = "/admin/v2/{domain}/{tenant}/{namespace}/{topic}"
_NOT_OF_PARTITIONS: Final = "Not allowed to set/get topic policy for a partition"


def _refuse_disabled(request: AdminRequest) -> None:
    config = request.context.config
    if not (config.topicLevelPoliciesEnabled and config.systemTopicEnabled):
        raise Refusal(405, DISABLED)


async def namespace_of(request: AdminRequest) -> Namespace:
    """The namespace of the topic in the path. Its policies may be damaged: a change replaces them.

    Raises: Refusal, BrokerError: the topic has no policies of its own, or does not exist."""
    namespaces, topic = request.context.namespaces, request.topic
    _refuse_disabled(request)
    if topic.is_partition:
        raise precondition_failed(_NOT_OF_PARTITIONS)
    namespace = await namespaces.with_topic_level(topic)
    if not await namespaces.topic_exists(topic):
        raise not_found(f"Topic {topic.full} not found")
    return namespace


def own_record(request: AdminRequest, namespace: Namespace) -> dict[str, Json]:
    """The policies of the topic in the path, with `isGlobal` those for all clusters together."""
    is_global = request.flag("isGlobal")
    return namespace.topic_level.map.own_fields(request.topic, is_global=is_global)


def _parameter(request: AdminRequest, name: str) -> int | None:
    """A number in the query; None: there is none. Raises: Refusal."""
    text = request.query.get(name, "")
    try:
        return whole_number(name, text) if text else None
    except Refusal:
        raise not_found(f"{name} must be a whole number") from None


async def _value_of(request: AdminRequest, policy: TopicPolicy) -> Json:
    """The value in the request, before it is checked; None: there is none."""
    if policy.switched_on:
        return True
    return _parameter(request, policy.parameter) if policy.parameter else await request.json()


def routes_of(policy: TopicPolicy) -> tuple[Route, ...]:
    """Its endpoints."""

    async def get(request: AdminRequest) -> Response | str | None:
        """The topic's own value; with `applied` the value in force."""
        namespace = await namespace_of(request)
        namespace.topic_level.check(request.topic)
        value = policy.of(own_record(request, namespace), request.context.config.clusterName)
        if value is None and policy.applied is not None and request.flag("applied"):
            value = policy.applied_to(request, namespace)
        if value is None and policy.unset is None:
            return None if policy.applied is None else ""
        if value is None:
            value = policy.unset
        return json_response(value)

    async def change(request: AdminRequest) -> None:
        if policy.no_body and policy.null is not None and not await request.body():
            raise Refusal(400, policy.no_body)  # Pulsar does not look at the topic before
        namespace = await namespace_of(request)
        body = await _value_of(request, policy)
        if body is None:
            if policy.null is None and policy.no_body:
                raise Refusal(400, policy.no_body)
            if policy.null is None:
                if policy.null_removes:
                    await remove(request)
                return
            body = policy.null
        value = policy.check(policy.path, body)
        if policy.stored_topics_only and not request.topic.persistent:
            raise Refusal(405, policy.stored_topics_only)
        if policy.one_cluster_only and request.flag("isGlobal"):
            raise precondition_failed(policy.one_cluster_only)
        policy.refuse(request.context, value)
        levels = Levels(own_record(request, namespace), namespace.policies.record.fields)
        if flaw := policy.conflict(levels, value, request.context.config):
            raise precondition_failed(flaw)
        await _store(request, policy, None if value == policy.neutral else value)

    async def remove(request: AdminRequest) -> None:
        await namespace_of(request)
        await _store(request, policy, None)

    path = f"{_TOPIC}/{policy.path}"
    routes = (Route("GET", path, get), Route(policy.setter, path, change))
    return (*routes, Route("DELETE", path, remove)) if policy.removable else routes


async def _store(request: AdminRequest, policy: TopicPolicy, value: Json) -> None:
    if policy.by_cluster and value is not None:
        value = {request.context.config.clusterName: value}
    await request.context.namespaces.set_topic_policy(
        request.topic, policy.field, value, is_global=request.flag("isGlobal")
    )


async def remove_all(request: AdminRequest) -> None:
    """The topic has none of its own any more. Pulsar does not ask whether there is such a topic."""
    _refuse_disabled(request)
    if request.topic.is_partition:
        raise precondition_failed(_NOT_OF_PARTITIONS)
    if await request.context.namespaces.find(request.namespace_name) is not None:
        await request.context.namespaces.clear_topic_policies(request.topic)


ROUTES: Final = (
    Route("DELETE", f"{_TOPIC}/policies", remove_all),
    *(route for policy in POLICIES for route in routes_of(policy)),
)
