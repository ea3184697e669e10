"""Authorization of routes: the list of Pulsar's endpoints has the right that each requires.

The right is checked before anything else is done, so that a caller without it learns neither what
exists nor which broker owns it. Some routes name their subject in the body. Their handlers call
`check`, and the list has `none` for them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from broker.tenancy.authorization.decision import Scope
from broker.tenancy.authorization.operations import Level
from broker.tenancy.authorization.refusals import route_refusal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from broker.http.context import AdminRequest
    from broker.tenancy.authorization.operations import Operation

_TENANTS: Final = ("tenant", "property")
_SUBSCRIPTIONS: Final = ("subscription", "subName", "subscriptionName", "encodedSubName")


def _first(names: Mapping[str, str], keys: tuple[str, ...]) -> str:
    return next((names[key] for key in keys if key in names), "")


def scope_of(request: AdminRequest, operation: Operation) -> Scope:
    """The scope that the path names. Raises: BrokerError InvalidTopicName."""
    names = request.names
    tenant = _first(names, _TENANTS)
    namespace = names.get("namespace", "")
    return Scope(
        tenant=tenant,
        namespace_name=f"{tenant}/{namespace}" if namespace else "",
        topic=request.topic if operation.level in (Level.TOPIC, Level.TOPIC_POLICY) else None,
        subscription=_first(names, _SUBSCRIPTIONS),
        cluster=names.get("cluster", ""),
    )


async def check(request: AdminRequest, operation: Operation, scope: Scope) -> None:
    """Raises: Refusal: the caller may not. BrokerError: what is stored cannot be read."""
    decisions = request.context.decisions
    if decisions is not None:
        decision = await decisions.decide(request.caller, operation.right, scope)
        if not decision.is_allowed:
            raise route_refusal(
                decision, request.caller, operation, scope, request.context.broker_id
            )
