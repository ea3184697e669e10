"""Single policies of a namespace: `/admin/v2/namespaces/{tenant}/{namespace}/{policy}`.

One table: the path, the field of Policies it changes, and what a value must look like. Only
policies that the broker acts on are here; the others can be given with the namespace and are kept.
A change holds at once, for loaded topics too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, final, get_args

from starlette.responses import JSONResponse

from broker.admin.router import Route
from broker.config import SchemaStrategy
from broker.refusal import Refusal, not_found, precondition_failed

if TYPE_CHECKING:
    from broker.admin.context import AdminRequest

Check = Callable[[str, Any], Any]
"""(policy, value of the body) -> the value to keep. Raises: Refusal."""


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
    """What GET answers, and DELETE leaves, when it is not set."""


def _flag(policy: str, value: Any) -> bool:  # noqa: ANN401 - any JSON value
    if not isinstance(value, bool):
        raise Refusal(400, f"{policy} must be true or false")
    return value


def _limit(policy: str, value: Any) -> int:  # noqa: ANN401 - any JSON value
    if isinstance(value, bool) or not isinstance(value, int):
        raise Refusal(400, f"{policy} must be a whole number")
    if value < 0:
        raise precondition_failed(f"{policy} must be 0 or more")
    return value


def _strategy(policy: str, value: Any) -> str:  # noqa: ANN401 - any JSON value
    if value not in get_args(SchemaStrategy):
        raise Refusal(400, f"{policy} must be one of {', '.join(get_args(SchemaStrategy))}")
    return str(value)


def _auto_topic(_policy: str, value: Any) -> dict[str, Any]:  # noqa: ANN401 - any JSON value
    prefix = "Invalid configuration for autoTopicCreationOverride. the detail is "
    if not isinstance(value, dict) or "allowAutoTopicCreation" not in value:
        raise precondition_failed(f"{prefix}[allowAutoTopicCreation] cannot be null.")
    count, kind = value.get("defaultNumPartitions"), value.get("topicType")
    if not value["allowAutoTopicCreation"]:
        return value
    if kind not in ("partitioned", "non-partitioned"):
        raise precondition_failed(f"{prefix}Unknown topic type [{kind}]")
    if kind == "non-partitioned":
        if count is not None:
            raise precondition_failed(
                f"{prefix}[defaultNumPartitions] is not allowed to be set when the type is "
                "non-partition."
            )
    elif count is None:
        raise precondition_failed(
            f"{prefix}[defaultNumPartitions] cannot be null when the type is partitioned."
        )
    elif not isinstance(count, int) or count < 1:
        raise precondition_failed(
            f"{prefix}[defaultNumPartitions] cannot be less than 1 for partition type."
        )
    return value


def _auto_subscription(policy: str, value: Any) -> dict[str, Any]:  # noqa: ANN401 - any JSON value
    if not isinstance(value, dict) or not isinstance(
        value.get("allowAutoSubscriptionCreation"), bool
    ):
        raise precondition_failed(f"{policy} needs allowAutoSubscriptionCreation: true or false")
    return value


def _retention(policy: str, value: Any) -> dict[str, Any]:  # noqa: ANN401 - any JSON value
    names = ("retentionTimeInMinutes", "retentionSizeInMB")
    if not isinstance(value, dict) or not all(isinstance(value.get(n), int) for n in names):
        raise Refusal(400, f"{policy} needs the numbers {names[0]} and {names[1]}")
    return value


POLICIES: Final = (
    Policy("deduplication", "deduplicationEnabled", _flag),
    Policy("encryptionRequired", "encryption_required", _flag, unset=False),
    Policy("autoTopicCreation", "autoTopicCreationOverride", _auto_topic),
    Policy("autoSubscriptionCreation", "autoSubscriptionCreationOverride", _auto_subscription),
    Policy("maxTopicsPerNamespace", "max_topics_per_namespace", _limit),
    Policy("maxProducersPerTopic", "max_producers_per_topic", _limit),
    Policy("maxConsumersPerTopic", "max_consumers_per_topic", _limit),
    Policy("maxSubscriptionsPerTopic", "max_subscriptions_per_topic", _limit),
    Policy("retention", "retention_policies", _retention),
    Policy(
        "schemaCompatibilityStrategy",
        "schema_compatibility_strategy",
        _strategy,
        setter="PUT",
        unset="UNDEFINED",
    ),
    Policy("schemaValidationEnforced", "schema_validation_enforced", _flag, unset=False),
    Policy("isAllowAutoUpdateSchema", "is_allow_auto_update_schema", _flag, unset=True),
)
_NAMESPACE: Final = "/admin/v2/namespaces/{tenant}/{namespace}"


def _routes_of(policy: Policy) -> tuple[Route, ...]:
    async def get(request: AdminRequest) -> object:
        namespace = await request.context.namespaces.get(request.namespace_name)
        value = namespace.policies.record.fields.get(policy.field, policy.unset)
        return "" if value is None else JSONResponse(value)

    async def change(request: AdminRequest) -> None:
        await _store(request, policy.field, policy.check(policy.path, await request.json()))

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


ROUTES: Final = tuple(route for policy in POLICIES for route in _routes_of(policy))
