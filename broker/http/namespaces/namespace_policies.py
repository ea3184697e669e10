"""Single policies of a namespace: `/admin/v2/namespaces/{tenant}/{namespace}/{policy}`.

There is one table: the path, the field of Policies it changes, and the form of a value. Only
policies with an effect in the broker are here. A change is in force at once, also for loaded
topics.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, final

from broker.ground.refusal import Refusal, not_found, precondition_failed
from broker.http.router import Route
from broker.tenancy.policies import delays, idle
from broker.tenancy.policies.backlog_quotas import FIELD as QUOTA_FIELD
from broker.tenancy.policies.backlog_quotas import SIZE, exceeds_retention
from broker.tenancy.policies.bodies import flag
from broker.tenancy.policies.delays import delayed_delivery
from broker.tenancy.policies.delivery_rates import (
    REPLICATOR_DISPATCH,
    SUBSCRIBE,
    SUBSCRIPTION_DISPATCH,
    TOPIC_DISPATCH,
    dispatch_rate,
    subscribe_rate,
)
from broker.tenancy.policies.given import (
    Check,
    auth_mode,
    auto_subscription,
    auto_topic,
    auto_update_strategy,
    compaction_threshold,
    entry_filters,
    limit,
    not_negative,
    retention,
    snapshot_interval,
    strategy,
    subscription_types,
    whole_number,
)
from broker.tenancy.policies.grants import AUTH_MODE_FIELD
from broker.tenancy.policies.idle import inactive_topics
from broker.tenancy.policies.offload import offload_lag, offload_policies, offload_threshold
from broker.tenancy.policies.persistence import persistence
from broker.tenancy.policies.rates import publish_rate
from broker.tenancy.policies.record import AUTO_UPDATE_FIELD
from web.responses import json_response

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.ground.config import BrokerConfig
    from broker.http.context import AdminContext, AdminRequest
    from broker.tenancy.policies.effective import EffectivePolicies
    from broker.tenancy.policies.record import Policies

Json = Any


EMPTY_BODY: Final = "The request entity cannot be empty."


def refuse_nothing(_context: AdminContext, _value: Json) -> None:
    """Refuse nothing: every value that passes the check is allowed."""


def refuse_copies(context: AdminContext, value: Json) -> None:
    """A broker with one bookie of its own cannot have several. Raises: Refusal."""
    if context.ledgers.has_one_bookie and value["bookkeeperEnsemble"] > 1:
        raise Refusal(
            400,
            "Bookkeeper-Ensemble must be 1, because this broker stores everything in its own "
            "bookie. Use `vela broker` with several bookies for more copies",
        )


def no_conflict(_record: Policies, _value: Json, _config: BrokerConfig) -> str:
    """Any value goes together with the other policies."""
    return ""


def _retention_conflict(record: Policies, value: Json, config: BrokerConfig) -> str:
    """Only a namespace with quotas of its own is looked at, as in Pulsar."""
    quotas = record.fields.get(QUOTA_FIELD)
    if quotas and exceeds_retention(quotas.get(SIZE), value, config):
        return "Retention Quota must exceed configured backlog quota for namespace."
    return ""


def _time_to_live(policy: str, value: Json) -> int:
    return not_negative(
        whole_number(policy, value), "Invalid value for message TTL, message TTL must >= 0"
    )


def _expiration_time(policy: str, value: Json) -> int:
    return not_negative(
        whole_number(policy, value), "Invalid value for subscription expiration time"
    )


@final
@dataclass(frozen=True, slots=True)
class Policy:
    """One policy with endpoints of its own."""

    path: str
    field: str
    check: Check
    setter: str = "POST"
    """The method that sets it."""
    unset: object = None
    """The answer of GET when it is not set, and the value that DELETE leaves."""
    shown_unset: object = None
    """The answer of GET instead, if DELETE leaves nothing."""
    in_force: Callable[[EffectivePolicies], object] | None = None
    """The same, where GET answers with the value in force."""
    nullable: bool = False
    """Whether a body of null unsets it, as in Pulsar."""
    null: Json = None
    """The value that a body of null stands for; None: there is none, and null is refused."""
    refuse: Callable[[AdminContext, Json], None] = refuse_nothing
    """Raises: Refusal: what the check kept cannot be had of this broker."""
    conflict: Callable[[Policies, Json, BrokerConfig], str] = no_conflict
    """Why a value does not go together with the other policies; empty: it does."""
    empty: str = EMPTY_BODY
    """Why a request without a body is refused; empty: it stands for what null stands for."""
    switched_on: bool = False
    """Whether a request sets it to true, whatever its body."""
    silent: bool = False
    """Whether GET answers without content, and not with an empty one, when it is not set."""
    says_ok: bool = False
    """Whether it is set with 200, not 204."""
    by_cluster: bool = False
    """Whether the field has a value for each cluster."""

    def of(self, record: Policies, cluster: str) -> Json:
        """Its value; None: it is not set."""
        value = record.fields.get(self.field)
        return (value or {}).get(cluster) if self.by_cluster else value

    def put(self, record: Policies, config: BrokerConfig, value: Json) -> Policies:
        """The record with another value; None: without one.

        Raises: Refusal: it does not go together with the others.
        """
        cluster = config.clusterName
        if value is not None and (flaw := self.conflict(record, value, config)):
            raise precondition_failed(flaw)
        if not self.by_cluster:
            return record.with_fields(**{self.field: value})
        others = {**(record.fields.get(self.field) or {})}
        others.pop(cluster, None)
        changed = others if value is None else {**others, cluster: value}
        return record.with_fields(**{self.field: changed})


POLICIES: Final = (
    Policy("deduplication", "deduplicationEnabled", flag, null=False),
    Policy("encryptionRequired", "encryption_required", flag, unset=False, null=False),
    Policy("autoTopicCreation", "autoTopicCreationOverride", auto_topic, nullable=True),
    Policy(
        "autoSubscriptionCreation",
        "autoSubscriptionCreationOverride",
        auto_subscription,
        nullable=True,
    ),
    Policy(
        "compactionThreshold", "compaction_threshold", compaction_threshold, setter="PUT", null=0
    ),
    Policy("delayedDelivery", delays.FIELD, delayed_delivery, nullable=True),
    Policy(
        "dispatcherPauseOnAckStatePersistent",
        "dispatcherPauseOnAckStatePersistentEnabled",
        flag,
        unset=False,
        switched_on=True,
    ),
    Policy("entryFilters", "entryFilters", entry_filters, nullable=True),
    Policy("inactiveTopicPolicies", idle.FIELD, inactive_topics, nullable=True),
    Policy("maxTopicsPerNamespace", "max_topics_per_namespace", limit, shown_unset=0, null=0),
    Policy("maxProducersPerTopic", "max_producers_per_topic", limit, null=0),
    Policy("maxConsumersPerTopic", "max_consumers_per_topic", limit, null=0),
    Policy("maxSubscriptionsPerTopic", "max_subscriptions_per_topic", limit, null=0),
    Policy("maxConsumersPerSubscription", "max_consumers_per_subscription", limit, null=0),
    Policy("maxUnackedMessagesPerConsumer", "max_unacked_messages_per_consumer", limit, null=0),
    Policy(
        "maxUnackedMessagesPerSubscription", "max_unacked_messages_per_subscription", limit, null=0
    ),
    Policy("subscriptionTypesEnabled", "subscription_types_enabled", subscription_types, unset=[]),
    Policy(
        "persistence",
        "persistence",
        persistence,
        refuse=refuse_copies,
        empty="persistence policies should not be null",
    ),
    Policy("publishRate", "publishMaxMessageRate", publish_rate, nullable=True, by_cluster=True),
    Policy("dispatchRate", TOPIC_DISPATCH, dispatch_rate, nullable=True, by_cluster=True),
    Policy(
        "subscriptionDispatchRate",
        SUBSCRIPTION_DISPATCH,
        dispatch_rate,
        nullable=True,
        by_cluster=True,
    ),
    Policy(
        "replicatorDispatchRate", REPLICATOR_DISPATCH, dispatch_rate, nullable=True, by_cluster=True
    ),
    Policy("subscribeRate", SUBSCRIBE, subscribe_rate, nullable=True, by_cluster=True),
    Policy("messageTTL", "message_ttl_in_seconds", _time_to_live, null=0),
    Policy(
        "retention", "retention_policies", retention, nullable=True, conflict=_retention_conflict
    ),
    Policy(
        "subscriptionExpirationTime",
        "subscription_expiration_time_minutes",
        _expiration_time,
        null=0,
    ),
    Policy(
        "schemaCompatibilityStrategy",
        "schema_compatibility_strategy",
        strategy,
        setter="PUT",
        unset="UNDEFINED",
        nullable=True,
    ),
    Policy("schemaValidationEnforced", "schema_validation_enforced", flag, unset=False, null=False),
    Policy("offloadDeletionLagMs", "offload_deletion_lag_ms", offload_lag, setter="PUT", null=0),
    Policy(
        "isAllowAutoUpdateSchema",
        AUTO_UPDATE_FIELD,
        flag,
        null=False,
        in_force=lambda policies: policies.schema_auto_update,
    ),
)
_WITHOUT_REMOVAL: Final = (
    Policy("subscriptionAuthMode", AUTH_MODE_FIELD, auth_mode, unset="None", nullable=True),
    Policy(
        "deduplicationSnapshotInterval",
        "deduplicationSnapshotIntervalSeconds",
        snapshot_interval,
        nullable=True,
    ),
    Policy(
        "offloadThreshold",
        "offload_threshold",
        offload_threshold,
        setter="PUT",
        unset=-1,
        null=0,
    ),
    Policy(
        "offloadThresholdInSeconds",
        "offload_threshold_in_seconds",
        offload_threshold,
        setter="PUT",
        unset=-1,
        null=0,
        says_ok=True,
    ),
    Policy("offloadPolicies", "offload_policies", offload_policies, null="", empty=""),
    Policy(
        "schemaAutoUpdateCompatibilityStrategy",
        "schema_auto_update_compatibility_strategy",
        auto_update_strategy,
        setter="PUT",
        nullable=True,
        silent=True,
    ),
)
"""Policies that Pulsar's API can only replace."""
_NAMESPACE: Final = "/admin/v2/namespaces/{tenant}/{namespace}"


def _routes_of(policy: Policy) -> tuple[Route, ...]:
    async def get(request: AdminRequest) -> object:
        namespace = await request.context.namespaces.get(request.namespace_name)
        value = policy.of(namespace.policies.record, request.context.config.clusterName)
        if value is None and policy.in_force is not None:
            value = policy.in_force(namespace.policies.effective)
        elif value is None:
            value = policy.unset if policy.shown_unset is None else policy.shown_unset
        if value is None:
            return None if policy.silent else ""
        return json_response(value)

    async def change(request: AdminRequest) -> str | None:
        value = True if policy.switched_on else await request.json()
        if value is None and (not policy.empty or await request.body()):
            value = policy.null
        if value is None and not policy.nullable:
            raise Refusal(400, policy.empty)
        kept = policy.unset if value is None else policy.check(policy.path, value)
        policy.refuse(request.context, kept)
        await _store(request, policy, kept)
        return "" if policy.says_ok else None

    async def remove(request: AdminRequest) -> None:
        await _store(request, policy, policy.unset)

    path = f"{_NAMESPACE}/{policy.path}"
    return (
        Route("GET", path, get),
        Route(policy.setter, path, change),
        Route("DELETE", path, remove),
    )


async def _store(request: AdminRequest, policy: Policy, value: Json) -> None:
    context, name = request.context, request.namespace_name
    if await context.namespaces.find(name) is None:
        known = await context.namespaces.tenants.exists(request.names["tenant"])
        raise not_found("Namespace does not exist" if known else "Tenant does not exist")
    await context.namespaces.change_policies(
        name, lambda record: policy.put(record, context.config, value)
    )


async def _remove_offload_policies(request: AdminRequest) -> None:
    """There are none, so nothing is left to remove."""
    await request.context.namespaces.get(request.namespace_name)


ROUTES: Final = (
    Route("DELETE", f"{_NAMESPACE}/removeOffloadPolicies", _remove_offload_policies),
    *(route for policy in POLICIES for route in _routes_of(policy)),
    *(route for policy in _WITHOUT_REMOVAL for route in _routes_of(policy)[:2]),
)
