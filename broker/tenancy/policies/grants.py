"""The grants of a namespace: `auth_policies` and `subscription_auth_mode` of its record. Pure.

    namespace_auth           role -> actions, on every topic of the namespace
    destination_auth         topic -> role -> actions
    subscription_auth_roles  subscription, on any topic of the namespace -> roles

Names as in Policies and AuthPolicies of Pulsar 4.0. A change makes a new record.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, final

if TYPE_CHECKING:
    from collections.abc import Mapping

Json = dict[str, Any]
Actions = frozenset[str]

ACTIONS: Final = ("produce", "consume", "functions", "sources", "sinks", "packages")
NAMESPACE_AUTH: Final = "namespace_auth"
TOPIC_AUTH: Final = "destination_auth"
SUBSCRIPTION_AUTH: Final = "subscription_auth_roles"
AUTH_FIELD: Final = "auth_policies"
AUTH_MODE_FIELD: Final = "subscription_auth_mode"
AUTH_MODES: Final = ("None", "Prefix")


@final
@dataclass(frozen=True, slots=True)
class Grants:
    """The grants of one namespace. A role with an empty set of actions may do nothing."""

    namespace: Mapping[str, Actions]
    """By role."""
    topics: Mapping[str, Mapping[str, Actions]]
    """By full name of a topic, then by role."""
    subscriptions: Mapping[str, frozenset[str]]
    """Roles by name of a subscription."""
    is_prefix_needed: bool
    """Whether the name of a subscription has to begin with the role that uses it."""


def grants_in(fields: Mapping[str, Any]) -> Grants:
    """The grants of a record. Pulsar stores null for an action that it does not know, and takes one
    that it reads for null: neither allows anything. Raises: TypeError, ValueError: the record is
    damaged."""
    auth = _object(fields.get(AUTH_FIELD), AUTH_FIELD)
    mode = fields.get(AUTH_MODE_FIELD) or AUTH_MODES[0]
    if mode not in AUTH_MODES:
        raise ValueError(f"{AUTH_MODE_FIELD} is {mode!r}")
    topics = _object(auth.get(TOPIC_AUTH), TOPIC_AUTH)
    subscriptions = _object(auth.get(SUBSCRIPTION_AUTH), SUBSCRIPTION_AUTH)
    return Grants(
        namespace=_actions_by_role(auth.get(NAMESPACE_AUTH), NAMESPACE_AUTH),
        topics={name: _actions_by_role(roles, TOPIC_AUTH) for name, roles in topics.items()},
        subscriptions={
            name: _names(roles, SUBSCRIPTION_AUTH) for name, roles in subscriptions.items()
        },
        is_prefix_needed=mode == "Prefix",
    )


def _actions_by_role(given: object, place: str) -> dict[str, Actions]:
    found = {role: _names(actions, place) for role, actions in _object(given, place).items()}
    return {role: actions.intersection(ACTIONS) for role, actions in found.items()}


def _object(given: object, place: str) -> Json:
    if given is None:
        return {}
    if not isinstance(given, dict):
        raise TypeError(f"{place} is not a JSON object")
    return given


def _names(given: object, place: str) -> frozenset[str]:
    if given is None:
        return frozenset()
    if not isinstance(given, list) or not all(isinstance(each, str | None) for each in given):
        raise TypeError(f"{place} has something that is not an array of names")
    return frozenset(each for each in given if each is not None)
