"""Messages that a producer wants delivered later. Pure.

Source: DelayedDeliveryPolicies of Pulsar 4.0 with its JSON. Pulsar may deliver a message early by
up to one tick. Vela delivers at the exact time, and only stores the number.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, final

from broker.tenancy.policies.bodies import LONG, flag_in, number_in, object_of

if TYPE_CHECKING:
    from broker.ground.config import BrokerConfig
    from broker.tenancy.policies.levels import Levels

Json = Any
FIELD: Final = "delayed_delivery_policies"
DELAY_KEYS: Final = frozenset(
    {"delayedDeliveryEnabled", "delayedDeliveryMaxDelayInMillis", "delayedDeliveryTickTimeMillis"}
)
"""Keys of the configuration that these policies override."""
_ACTIVE: Final = "active"
_TICK: Final = "tickTime"
_MAX: Final = "maxDeliveryDelayInMillis"


@final
@dataclass(frozen=True, slots=True)
class Delays:
    """The rules in force for a topic."""

    delivers_later: bool
    """Whether a message waits for its time."""
    tick_ms: int
    delay_ms_max: int
    """Longer ones are refused; 0 or less: none is."""

    @property
    def refused_above_ms(self) -> int:
        """The longest delay that a message may have; 0: any, also if none waits."""
        return max(0, self.delay_ms_max) if self.delivers_later else 0


def delays_of(config: BrokerConfig, levels: Levels) -> Delays:
    """The rules in force."""
    said = levels.said(FIELD)
    if said is None:
        return Delays(
            config.delayedDeliveryEnabled,
            config.delayedDeliveryTickTimeMillis,
            config.delayedDeliveryMaxDelayInMillis,
        )
    return Delays(bool(said.get(_ACTIVE)), int(said.get(_TICK) or 0), int(said.get(_MAX) or 0))


def record_of(delays: Delays) -> dict[str, Json]:
    """The JSON of what is in force."""
    return {_TICK: delays.tick_ms, _ACTIVE: delays.delivers_later, _MAX: delays.delay_ms_max}


def delayed_delivery(policy: str, value: Json) -> Json:
    """The body of a request, complete. Raises: Refusal."""
    given = object_of(policy, value)
    return {
        _TICK: number_in(given, _TICK, 0, LONG),
        _ACTIVE: flag_in(given, _ACTIVE),
        _MAX: number_in(given, _MAX, 0, LONG),
    }
