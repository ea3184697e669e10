"""The operations of commands and routes, by Pulsar's names, and the rights that they need. Pure.

Pulsar's own provider has few rules: some operations on topics and namespaces are open to roles with
a grant, and everything else is for administrators. The rights are those of
PulsarAuthorizationProvider of 4.0.8.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from collections.abc import Mapping


@final
class Right(Enum):
    """The right that a role must have."""

    NONE = auto()
    """Nothing: everyone whom the broker lets in may do it."""
    SUPER_USER = auto()
    TENANT_ADMIN = auto()
    """It administers the tenant, or is a super user. So it is for all rights below."""
    PRODUCE = auto()
    """On the topic."""
    CONSUME = auto()
    """On the topic, and on the subscription if the operation names one."""
    LOOKUP = auto()
    """To produce or to consume."""
    CONSUME_IN_NAMESPACE = auto()
    """Granted for the whole namespace, as those below."""
    LOOKUP_IN_NAMESPACE = auto()
    PACKAGES_IN_NAMESPACE = auto()


@final
class Level(Enum):
    """The kind of subject of an operation. It decides the answer to callers without the right."""

    NOTHING = "none"
    SUPER = "super"
    BROKER = "broker"
    CLUSTER = "cluster"
    CLUSTER_POLICY = "cluster-policy"
    ADMIN = "admin"
    """Administration of the tenant, whatever the operation."""
    TENANT = "tenant"
    SUPER_OR_TENANT = "super-or-tenant"
    NAMESPACE = "namespace"
    NAMESPACE_POLICY = "namespace-policy"
    PACKAGES = "packages"
    TOPIC = "topic"
    TOPIC_POLICY = "topic-policy"


@final
@dataclass(frozen=True, slots=True)
class Operation:
    """One operation. Values are equal if they are asked in the same way."""

    level: Level
    right: Right
    name: str = ""
    """Pulsar's name of it, which refusals contain."""
    policy: str = ""
    """Pulsar's name of the policy that it reads or writes."""


UNKNOWN: Final = (Operation(Level.SUPER, Right.SUPER_USER),)
"""The right of an operation without a rule: only super users may do it."""
_C, _A = Right.CONSUME, Right.TENANT_ADMIN
_TOPIC: Final[Mapping[str, Right]] = {
    "LOOKUP": Right.LOOKUP,
    "GET_STATS": Right.LOOKUP,
    "GET_METADATA": Right.LOOKUP,
    "PRODUCE": Right.PRODUCE,
    "CONSUME": _C,
    "SUBSCRIBE": _C,
    "UNSUBSCRIBE": _C,
    "GET_SUBSCRIPTIONS": _C,
    "SKIP": _C,
    "EXPIRE_MESSAGES": _C,
    "PEEK_MESSAGES": _C,
    "RESET_CURSOR": _C,
    "GET_BACKLOG_SIZE": _C,
    "GET_REPLICATED_SUBSCRIPTION_STATUS": _C,
    "SET_REPLICATED_SUBSCRIPTION_STATUS": _C,
    "COMPACT": _A,
    "OFFLOAD": _A,
    "TERMINATE": _A,
    "UNLOAD": _A,
    "TRIM_TOPIC": _A,
    "UPDATE_METADATA": _A,
    "DELETE_METADATA": _A,
}
"""By TopicOperation."""
_NAMESPACE: Final[Mapping[str, Right]] = {
    "GET_TOPIC": Right.LOOKUP_IN_NAMESPACE,
    "GET_TOPICS": Right.LOOKUP_IN_NAMESPACE,
    "GET_BUNDLE": Right.LOOKUP_IN_NAMESPACE,
    "UNSUBSCRIBE": Right.CONSUME_IN_NAMESPACE,
    "CLEAR_BACKLOG": Right.CONSUME_IN_NAMESPACE,
    "CREATE_TOPIC": _A,
    "DELETE_TOPIC": _A,
    "DELETE_BUNDLE": _A,
    "GRANT_PERMISSION": _A,
    "GET_PERMISSION": _A,
    "REVOKE_PERMISSION": _A,
}
"""By NamespaceOperation."""
_OF_LEVEL: Final[Mapping[Level, Right]] = {
    Level.NOTHING: Right.NONE,
    Level.SUPER: Right.SUPER_USER,
    Level.BROKER: Right.SUPER_USER,
    Level.CLUSTER: Right.SUPER_USER,
    Level.CLUSTER_POLICY: Right.SUPER_USER,
    Level.ADMIN: _A,
    Level.TENANT: _A,
    Level.SUPER_OR_TENANT: _A,
    Level.NAMESPACE_POLICY: _A,
    Level.PACKAGES: Right.PACKAGES_IN_NAMESPACE,
    Level.TOPIC_POLICY: _A,
}
"""The rights of all operations of a level."""
_OF_NAME: Final = {Level.TOPIC: _TOPIC, Level.NAMESPACE: _NAMESPACE}


def operation(text: str) -> Operation:
    """The operation that a line of the list of endpoints names: the level, as in `none`, the level
    and an operation, as in `topic:LOOKUP`, or these with a policy, as in
    `topic-policy:RETENTION:READ`. Raises: ValueError, KeyError."""
    word, *names = text.split(":")
    level = Level(word)
    policy = names.pop(0) if len(names) > 1 else ""
    name = names[0] if names else ""
    right = _OF_LEVEL[level] if level in _OF_LEVEL else _OF_NAME[level][name]
    return Operation(level, right, name, policy)


def operations(text: str) -> tuple[Operation, ...]:
    """Several, separated by commas: all of them are asked, in this order. Raises: as
    `operation`."""
    return tuple(operation(each) for each in text.split(","))
