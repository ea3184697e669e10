"""`.../{topic}/{policy}`: policies of a single topic. Statuses and texts as of Pulsar 4.0.8.

Those of a partitioned topic are set on the whole, never on a partition. There is one table: the
path, the field it changes (of the same name as in a namespace's record), and the form of a value.
A change is in force at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, final

from starlette.responses import JSONResponse

from broker.admin.namespace_policies import EMPTY_BODY, refuse_copies, refuse_nothing
from broker.admin.router import Route
from broker.policies.given import Check, limit, subscription_types, whole_number
from broker.policies.persistence import persistence, record_of
from broker.policies.rates import publish_rate
from broker.refusal import Refusal, not_found, precondition_failed

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.admin.context import AdminContext, AdminRequest
    from broker.namespaces.loaded_namespaces import Namespace
    from broker.policies.effective import EffectivePolicies

Json = Any


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
    """What a body of null stands for; None: it changes nothing."""
    null_removes: bool = False
    """Whether no body, or null, removes it instead."""
    setter: str = "POST"
    """The method that sets it."""
    switched_on: bool = False
    """Whether a request sets it to true, whatever its body."""
    removable: bool = True
    neutral: Json = None
    """A value that says nothing: it is removed instead of stored."""
    refuse: Callable[[AdminContext, Json], None] = refuse_nothing
    """Raises: Refusal: what the check kept cannot be had of this broker."""
    unset: Json = None
    """The answer of GET when it is not set; None: an empty one."""
    stored_topics_only: str = ""
    """Why it cannot be set on a topic that is not stored; empty: it can."""

    def of(self, record: dict[str, Json] | None, cluster: str) -> Json:
        """Its value in a record; None: there is none."""
        value = (record or {}).get(self.field)
        return (value or {}).get(cluster) if self.by_cluster else value


def _number(path: str, field: str, check: Check, name: str = "") -> TopicPolicy:
    """A limit that GET shows with `applied` if it has a name in the policies in force."""
    applied = (lambda policies: getattr(policies.counts, name)) if name else None
    return TopicPolicy(path, field, check, applied, no_body=EMPTY_BODY, null=0)


def _unacked(policy: str, value: Json) -> Json:
    number = whole_number(policy, value)
    if number < 0:
        raise precondition_failed("maxUnackedNum must be 0 or more")
    return number


def _consumers_of_subscription(policy: str, value: Json) -> Json:
    number = whole_number(policy, value)
    if number < 0:
        raise precondition_failed(f"Invalid value for {policy}")
    return number


_WRONG_SIZE: Final = (
    "topic-level maxMessageSize must be greater than or equal to 0 and must be smaller than that in"
    " the broker-level"
)


def _message_size(policy: str, value: Json) -> Json:
    number = whole_number(policy, value)
    if number < 0:
        raise precondition_failed(_WRONG_SIZE)
    return number


def _refuse_size(context: AdminContext, value: Json) -> None:
    if value > context.config.maxMessageSize:
        raise precondition_failed(_WRONG_SIZE)


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
    TopicPolicy("publishRate", "publishMaxMessageRate", publish_rate, by_cluster=True),
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


async def _namespace_of(request: AdminRequest) -> Namespace:
    """The namespace of the topic in the path. Raises: Refusal, BrokerError: the topic has no
    policies of its own, or does not exist."""
    namespaces, topic = request.context.namespaces, request.topic
    if topic.is_partition:
        raise precondition_failed(_NOT_OF_PARTITIONS)
    namespace = await namespaces.of_topic(topic)
    if not await namespaces.topic_exists(topic):
        raise not_found(f"Topic {topic.full} not found")
    return namespace


def routes_of(policy: TopicPolicy) -> tuple[Route, ...]:
    """Its endpoints."""

    async def get(request: AdminRequest) -> JSONResponse | str | None:
        """What the topic itself says; with `applied` what is in force."""
        namespace = await _namespace_of(request)
        value: Json = None
        if not request.flag("isGlobal"):  # Nothing is set for several clusters together.
            record = namespace.topic_policies.records.of(request.topic)
            value = policy.of(record, request.context.config.clusterName)
        if value is None and policy.applied is not None and request.flag("applied"):
            value = policy.applied(namespace.policies.of_topic(request.topic).effective)
        if value is None and policy.unset is None:
            return None if policy.applied is None else ""
        if value is None:
            value = policy.unset
        return JSONResponse(value)

    async def change(request: AdminRequest) -> None:
        await _namespace_of(request)
        body = True if policy.switched_on else await request.json()
        if body is None:
            if policy.no_body and (policy.null is None or not await request.body()):
                raise Refusal(400, policy.no_body)
            if policy.null is None:
                if policy.null_removes:
                    await remove(request)
                return
            body = policy.null
        value = policy.check(policy.path, body)
        if policy.stored_topics_only and not request.topic.persistent:
            raise Refusal(405, policy.stored_topics_only)
        if request.flag("isGlobal"):
            raise Refusal(
                501, "Vela does not replicate to other clusters yet: leave out isGlobal (--global)"
            )
        policy.refuse(request.context, value)
        await _store(request, policy, None if value == policy.neutral else value)

    async def remove(request: AdminRequest) -> None:
        namespace = await _namespace_of(request)
        if not request.flag("isGlobal") and namespace.topic_policies.records.of(request.topic):
            await _store(request, policy, None)

    path = f"{_TOPIC}/{policy.path}"
    routes = (Route("GET", path, get), Route(policy.setter, path, change))
    return (*routes, Route("DELETE", path, remove)) if policy.removable else routes


async def _store(request: AdminRequest, policy: TopicPolicy, value: Json) -> None:
    if policy.by_cluster and value is not None:
        value = {request.context.config.clusterName: value}
    await request.context.namespaces.set_topic_policy(request.topic, policy.field, value)


async def remove_all(request: AdminRequest) -> None:
    """The topic has none of its own any more. Pulsar does not ask whether there is such a topic."""
    if request.topic.is_partition:
        raise precondition_failed(_NOT_OF_PARTITIONS)
    await request.context.namespaces.clear_topic_policies(request.topic)


ROUTES: Final = (
    Route("DELETE", f"{_TOPIC}/policies", remove_all),
    *(route for policy in POLICIES for route in routes_of(policy)),
)
