"""The one decision: whether a caller may do an operation. Pure.

The rules are those of PulsarAuthorizationProvider and AuthorizationService of Pulsar 4.0.8. A
caller that uses a proxy has to be allowed twice: the proxy's own role, and the role for which it
speaks.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Final, final

from broker.tenancy.authorization.operations import Right
from security.caller import flaw_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from broker.tenancy.policies.grants import Actions, Grants
    from protocol.topic_name import TopicName
    from security.caller import Caller


@final
@dataclass(frozen=True, slots=True)
class Rules:
    """The rules in the configuration."""

    super_users: frozenset[str] = frozenset()
    proxies: frozenset[str] = frozenset()
    """Roles that may speak for others, and must."""
    has_wildcards: bool = False
    """Whether a granted role may begin or end with `*`."""


@final
@dataclass(frozen=True, slots=True)
class Scope:
    """The subject of an operation. Empty: nothing of this kind."""

    tenant: str = ""
    namespace_name: str = ""
    """`tenant/namespace`."""
    topic: TopicName | None = None
    subscription: str = ""
    cluster: str = ""


@final
@dataclass(frozen=True, slots=True)
class Facts:
    """The stored facts about the scope."""

    admins: frozenset[str] | None = None
    """Roles that administer the tenant; None: there is no such tenant."""
    grants: Grants | None = None
    """None: there is no such namespace."""


@final
class Verdict(Enum):
    """A decision about one role."""

    ALLOWED = auto()
    DENIED = auto()
    NO_TENANT = auto()
    """The role is no super user, and the tenant does not exist: Pulsar says so."""
    OTHER_PREFIX = auto()
    """The name of the subscription has to begin with the role."""
    WRONG_ORIGINAL = auto()
    """The original role does not go with the role of the connection."""


@final
@dataclass(frozen=True, slots=True)
class Decision:
    """A verdict, and the role about which it was given."""

    verdict: Verdict
    role: str = ""
    is_of_original: bool = False
    """Whether it is the role for which a proxy speaks."""

    @property
    def is_allowed(self) -> bool:
        """Whether the caller may do it."""
        return self.verdict is Verdict.ALLOWED


ALLOWED: Final = Decision(Verdict.ALLOWED)
_ACTIONS_OF: Final[Mapping[Right, tuple[str, ...]]] = {
    Right.PACKAGES_IN_NAMESPACE: ("packages",),
    Right.CONSUME_IN_NAMESPACE: ("consume",),
    Right.LOOKUP_IN_NAMESPACE: ("consume", "produce"),
}
"""One of them, on the whole namespace."""


def decide(caller: Caller, right: Right, scope: Scope, facts: Facts, rules: Rules) -> Decision:
    """Whether the caller may do what needs this right."""
    if right is Right.NONE or caller.is_this_broker:
        return ALLOWED
    if flaw_of(caller, rules.proxies, equal_is_fine=True):
        return Decision(Verdict.WRONG_ORIGINAL, caller.role or "")
    verdict = _of_role(caller.role, right, scope, facts, rules)
    if verdict is not Verdict.ALLOWED:
        return Decision(verdict, caller.role or "")
    if caller.role in rules.proxies:
        verdict = _of_role(caller.original_role, right, scope, facts, rules)
        if verdict is not Verdict.ALLOWED:
            return Decision(verdict, caller.original_role or "", is_of_original=True)
    return ALLOWED


def _of_role(role: str | None, right: Right, scope: Scope, facts: Facts, rules: Rules) -> Verdict:
    if role is None:
        return Verdict.DENIED
    if role in rules.super_users:
        return Verdict.ALLOWED
    if right is Right.SUPER_USER:
        return Verdict.DENIED
    if facts.admins is None:
        return Verdict.NO_TENANT
    if role in facts.admins:
        return Verdict.ALLOWED
    grants = facts.grants
    if grants is None or right is Right.TENANT_ADMIN:
        return Verdict.DENIED
    if right in _ACTIONS_OF:
        is_held = any(_holds(role, each, grants.namespace, rules) for each in _ACTIONS_OF[right])
        return Verdict.ALLOWED if is_held else Verdict.DENIED
    return _of_topic(role, right, scope, grants, rules)


def _of_topic(role: str, right: Right, scope: Scope, grants: Grants, rules: Rules) -> Verdict:
    assert scope.topic is not None
    if scope.topic.is_policy_log and right is not Right.LOOKUP:
        return Verdict.DENIED  # who writes there sets policies, and who consumes can remove them
    if right is not Right.CONSUME and may(role, "produce", scope.topic, grants, rules):
        return Verdict.ALLOWED
    if right is Right.PRODUCE:
        return Verdict.DENIED
    if right is Right.CONSUME and scope.subscription.strip():
        roles = grants.subscriptions.get(scope.subscription)
        if roles and role not in roles:
            return Verdict.DENIED
        if grants.is_prefix_needed and not scope.subscription.startswith(role):
            return Verdict.OTHER_PREFIX
    is_held = may(role, "consume", scope.topic, grants, rules)
    return Verdict.ALLOWED if is_held else Verdict.DENIED


def may(role: str, action: str, topic: TopicName, grants: Grants, rules: Rules) -> bool:
    """Whether a grant on the namespace, the topic, or the topic of which it is a partition allows
    the action."""
    if _holds(role, action, grants.namespace, rules):
        return True
    own = grants.topics.get(topic.full)
    if own is not None and _holds(role, action, own, rules):
        return True
    if not topic.is_partition:
        return False
    whole = grants.topics.get(topic.partitioned_base.full)
    return whole is not None and action in whole.get(role, ())


def _holds(role: str, action: str, granted: Mapping[str, Actions], rules: Rules) -> bool:
    if action in granted.get(role, ()):
        return True
    return rules.has_wildcards and any(
        action in actions and _matches(role, pattern) for pattern, actions in granted.items()
    )


def _matches(role: str, pattern: str) -> bool:
    """`prefix*` or `*suffix`."""
    if pattern.endswith("*") and role.startswith(pattern[:-1]):
        return True
    return pattern.startswith("*") and role.endswith(pattern[1:])
