"""The refusals of callers without a right: Pulsar's codes, statuses and texts. Pure.

The texts are those of ServerCnx, PulsarWebResource and the resources of 4.0.8.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from broker.ground.refusal import Refusal, not_found
from broker.tenancy.authorization.decision import Verdict
from broker.tenancy.authorization.operations import Level
from protocol.errors import AuthorizationError, TopicNotFound
from security.caller import INVALID_OVER_HTTP

if TYPE_CHECKING:
    from collections.abc import Mapping

    from broker.tenancy.authorization.decision import Decision, Scope
    from broker.tenancy.authorization.operations import Operation
    from protocol.errors import BrokerError
    from security.caller import Caller

UNAUTHORIZED: Final = 401
FORBIDDEN: Final = 403
_NO_TENANT: Final = "Tenant does not exist"


class CommandTexts(NamedTuple):
    """The texts of one type of command."""

    denied: str
    failed: str = ""
    """Where Pulsar could not decide; empty: Pulsar gives the reason."""
    no_tenant: str = ""
    """Where it answers that the topic does not exist, because the tenant does not; the name of the
    namespace follows."""


def _prefix_text(decision: Decision, scope: Scope) -> str:
    topic = "" if scope.topic is None else scope.topic.full
    return (
        "Failed to create consumer - The subscription name needs to be prefixed by the "
        f"authentication role, like {decision.role}-xxxx for topic: {topic}"
    )


def command_refusal(decision: Decision, scope: Scope, texts: CommandTexts) -> BrokerError:
    """The answer to a command."""
    if decision.verdict is Verdict.NO_TENANT:
        if texts.no_tenant:
            return TopicNotFound(f"{texts.no_tenant}{scope.namespace_name}")
        return AuthorizationError(texts.failed or _NO_TENANT)
    if decision.verdict is Verdict.OTHER_PREFIX:
        return AuthorizationError(texts.failed or _prefix_text(decision, scope))
    return AuthorizationError(texts.denied)


def route_refusal(
    decision: Decision, caller: Caller, operation: Operation, scope: Scope, broker_id: str
) -> Refusal:
    """The answer to an HTTP request. `broker_id`: of the broker that was asked."""
    level = operation.level
    if decision.verdict is Verdict.NO_TENANT and level is not Level.SUPER_OR_TENANT:
        return not_found(_NO_TENANT)
    if decision.verdict is Verdict.OTHER_PREFIX:
        return Refusal(500, _prefix_text(decision, scope))
    if level is Level.SUPER:
        return Refusal(UNAUTHORIZED, _no_super_user(decision, caller))
    if level is Level.ADMIN:
        return Refusal(UNAUTHORIZED, _no_administrator(decision, caller))
    status, text = _TEXTS[level]
    told = text.format(
        original="null" if caller.original_role is None else caller.original_role,
        role=caller.role,
        operation=operation.name,
        policy=operation.policy,
        tenant=scope.tenant,
        namespace=scope.namespace_name,
        topic="" if scope.topic is None else scope.topic.full,
        cluster=scope.cluster,
        broker=broker_id,
    )
    return Refusal(status, told)


_ROLES: Final = "originalPrincipal [{original}] and clientAppId [{role}]"
_BOTH: Final = f"Unauthorized to validateBothSuperuserAnd%s for {_ROLES} about operation "
_TEXTS: Final[Mapping[Level, tuple[int, str]]] = {
    Level.BROKER: (
        UNAUTHORIZED,
        _BOTH % "BrokerOperation" + "[{operation}] on broker [{broker}]",
    ),
    Level.CLUSTER: (
        UNAUTHORIZED,
        _BOTH % "ClusterOperation" + "[{operation}] on cluster [{cluster}]",
    ),
    Level.CLUSTER_POLICY: (
        UNAUTHORIZED,
        _BOTH % "ClusterPolicyOperation" + "[{operation}] on cluster [{cluster}]",
    ),
    Level.TENANT: (
        UNAUTHORIZED,
        f"Unauthorized to validateTenantOperation for {_ROLES} about operation [{{operation}}] on "
        "tenant [{tenant}]",
    ),
    Level.SUPER_OR_TENANT: (
        UNAUTHORIZED,
        f"Unauthorized to validateBothTenantOperationAndSuperUser for {_ROLES} about operation "
        "[{operation}] ",
    ),
    Level.NAMESPACE: (
        FORBIDDEN,
        "Unauthorized to validateNamespaceOperation for operation [{operation}] on namespace "
        "[{namespace}]",
    ),
    Level.NAMESPACE_POLICY: (
        FORBIDDEN,
        "Unauthorized to validateNamespacePolicyOperation for operation [{operation}] on namespace "
        "[{namespace}] on policy [{policy}]",
    ),
    Level.PACKAGES: (
        UNAUTHORIZED,
        "Role {role} has not the 'package' permission to do the packages operations.",
    ),
    Level.TOPIC: (
        UNAUTHORIZED,
        "Unauthorized to validateTopicOperation for operation [{operation}] on topic [{topic}]",
    ),
    Level.TOPIC_POLICY: (
        FORBIDDEN,
        "Unauthorized to validateTopicPolicyOperation for operation [{operation}] on topic "
        "[{topic}] on policy [{policy}]",
    ),
}


def _no_super_user(decision: Decision, caller: Caller) -> str:
    if decision.verdict is Verdict.WRONG_ORIGINAL:
        return INVALID_OVER_HTTP
    if decision.is_of_original:
        return (
            f"Original principal not authorized for super-user operation (original:{decision.role})"
        )
    if caller.original_role is not None and caller.original_role != caller.role:
        return f"Proxy not authorized for super-user operation (proxy:{decision.role})"
    return "This operation requires super-user access"


def _no_administrator(decision: Decision, caller: Caller) -> str:
    if decision.verdict is Verdict.WRONG_ORIGINAL:
        return INVALID_OVER_HTTP
    if caller.original_role is not None and caller.original_role != caller.role:
        return (
            f"Proxy not authorized to access resource (proxy:{caller.role},"
            f"original:{caller.original_role})"
        )
    return "Don't have permission to administrate resources on this tenant"
