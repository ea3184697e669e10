"""The policy for the deletion of unused topics. Pure.

Source: InactiveTopicPolicies of Pulsar 4.0 with its JSON. A member that a level leaves out is 0 or
false; the mode is then that of the configuration.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, final, get_args

from broker.ground.config import InactiveTopicMode
from broker.ground.refusal import Refusal
from broker.tenancy.policies.bodies import INT, flag_in, number_in, object_of

if TYPE_CHECKING:
    from broker.ground.config import BrokerConfig
    from broker.tenancy.policies.levels import Levels

Json = Any
FIELD: Final = "inactive_topic_policies"
IDLE_KEYS: Final = frozenset(
    {
        "brokerDeleteInactiveTopicsMaxInactiveDurationSeconds",
        "brokerDeleteInactiveTopicsMode",
    }
)
"""Keys of the configuration that these policies override."""
_MODE: Final = "inactiveTopicDeleteMode"
_SECONDS: Final = "maxInactiveDurationSeconds"
_DELETES: Final = "deleteWhileInactive"


@final
@dataclass(frozen=True, slots=True)
class Idle:
    """The policy in force for a topic."""

    deletes: bool
    when_caught_up: bool
    """A topic whose subscriptions have read everything is unused; else one without any."""
    seconds: int
    """How long it must have been unused."""


def idle_of(config: BrokerConfig, levels: Levels) -> Idle:
    """The policy in force."""
    said = {**_of_broker(config), **(levels.said(FIELD) or {})}
    return Idle(
        deletes=bool(said.get(_DELETES)),
        when_caught_up=said.get(_MODE) == "delete_when_subscriptions_caught_up",
        seconds=int(said.get(_SECONDS) or 0),
    )


def _of_broker(config: BrokerConfig) -> dict[str, Json]:
    seconds = config.brokerDeleteInactiveTopicsMaxInactiveDurationSeconds
    return {
        _MODE: config.brokerDeleteInactiveTopicsMode,
        _SECONDS: config.brokerDeleteInactiveTopicsFrequencySeconds if seconds < 0 else seconds,
        _DELETES: config.brokerDeleteInactiveTopicsEnabled,
    }


def record_of(idle: Idle) -> dict[str, Json]:
    """The JSON of what is in force."""
    caught_up = idle.when_caught_up
    mode = "delete_when_subscriptions_caught_up" if caught_up else "delete_when_no_subscriptions"
    return {_MODE: mode, _SECONDS: idle.seconds, _DELETES: idle.deletes}


def inactive_topics(policy: str, value: Json) -> Json:
    """The body of a request, complete but for the mode. Pulsar stores a mode that it does not know
    as none; here it is refused. Raises: Refusal."""
    given = object_of(policy, value)
    mode = given.get(_MODE)
    if mode is not None and mode not in get_args(InactiveTopicMode):
        raise Refusal(400, f"{_MODE} must be one of {', '.join(get_args(InactiveTopicMode))}")
    kept: dict[str, Json] = {} if mode is None else {_MODE: mode}
    kept[_SECONDS] = number_in(given, _SECONDS, 0, INT)
    kept[_DELETES] = flag_in(given, _DELETES)
    return kept
