"""Single policies of a namespace: `/admin/v2/namespaces/{tenant}/{namespace}/{policy}`.

There is one table: the path, the field of Policies it changes, and the form of a value. Only
policies with an effect in the broker are here. A change is in force at once, also for loaded
topics.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, final

from starlette.responses import JSONResponse

from broker.admin.router import Route
from broker.policies.given import (
    Check,
    auth_mode,
    auto_subscription,
    auto_topic,
    flag,
    limit,
    retention,
    strategy,
)
from broker.policies.grants import AUTH_MODE_FIELD
from broker.policies.persistence import persistence
from broker.policies.record import AUTO_UPDATE_FIELD
from broker.refusal import Refusal, not_found

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.admin.context import AdminContext, AdminRequest
    from broker.policies.effective import EffectivePolicies

Json = Any


def _refuse_nothing(_context: AdminContext, _value: Json) -> None:
    pass


def refuse_copies(context: AdminContext, value: Json) -> None:
    """A broker with one bookie of its own cannot have several. Raises: Refusal."""
    if context.ledgers.has_one_bookie and value["bookkeeperEnsemble"] > 1:
        raise Refusal(
            400,
            "Bookkeeper-Ensemble must be 1, because this broker stores everything in its own "
            "bookie. Use `vela broker` with several bookies for more copies",
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
    refuse: Callable[[AdminContext, Json], None] = _refuse_nothing
    """Raises: Refusal: what the check kept cannot be had of this broker."""
    empty: str = "The request entity cannot be empty."


POLICIES: Final = (
    Policy("deduplication", "deduplicationEnabled", flag),
    Policy("encryptionRequired", "encryption_required", flag, unset=False),
    Policy("autoTopicCreation", "autoTopicCreationOverride", auto_topic),
    Policy("autoSubscriptionCreation", "autoSubscriptionCreationOverride", auto_subscription),
    Policy("maxTopicsPerNamespace", "max_topics_per_namespace", limit, shown_unset=0),
    Policy("maxProducersPerTopic", "max_producers_per_topic", limit),
    Policy("maxConsumersPerTopic", "max_consumers_per_topic", limit),
    Policy("maxSubscriptionsPerTopic", "max_subscriptions_per_topic", limit),
    Policy(
        "persistence",
        "persistence",
        persistence,
        refuse=refuse_copies,
        empty="persistence policies should not be null",
    ),
    Policy("retention", "retention_policies", retention, nullable=True),
    Policy(
        "schemaCompatibilityStrategy",
        "schema_compatibility_strategy",
        strategy,
        setter="PUT",
        unset="UNDEFINED",
        nullable=True,
    ),
    Policy("schemaValidationEnforced", "schema_validation_enforced", flag, unset=False),
    Policy(
        "isAllowAutoUpdateSchema",
        AUTO_UPDATE_FIELD,
        flag,
        in_force=lambda policies: policies.schema_auto_update,
    ),
)
_WITHOUT_REMOVAL: Final = (
    Policy("subscriptionAuthMode", AUTH_MODE_FIELD, auth_mode, unset="None", nullable=True),
)
"""Policies that Pulsar's API can only replace."""
_NAMESPACE: Final = "/admin/v2/namespaces/{tenant}/{namespace}"


def _routes_of(policy: Policy) -> tuple[Route, ...]:
    async def get(request: AdminRequest) -> object:
        namespace = await request.context.namespaces.get(request.namespace_name)
        value = namespace.policies.record.fields.get(policy.field)
        if value is None and policy.in_force is not None:
            value = policy.in_force(namespace.policies.effective)
        elif value is None:
            value = policy.unset if policy.shown_unset is None else policy.shown_unset
        return "" if value is None else JSONResponse(value)

    async def change(request: AdminRequest) -> None:
        value = await request.json()
        if value is None and not policy.nullable:
            raise Refusal(400, policy.empty)
        kept = policy.unset if value is None else policy.check(policy.path, value)
        policy.refuse(request.context, kept)
        await _store(request, policy.field, kept)

    async def remove(request: AdminRequest) -> None:
        await _store(request, policy.field, policy.unset)

    path = f"{_NAMESPACE}/{policy.path}"
    return (
        Route("GET", path, get),
        Route(policy.setter, path, change),
        Route("DELETE", path, remove),
    )


async def _store(request: AdminRequest, field: str, value: object) -> None:
    context, name = request.context, request.namespace_name
    if await context.namespaces.find(name) is None:
        known = await context.namespaces.tenants.exists(request.names["tenant"])
        raise not_found("Namespace does not exist" if known else "Tenant does not exist")
    await context.namespaces.change_policies(
        name, lambda policies: policies.with_fields(**{field: value})
    )


ROUTES: Final = (
    *(route for policy in POLICIES for route in _routes_of(policy)),
    *(route for policy in _WITHOUT_REMOVAL for route in _routes_of(policy)[:2]),
)
