"""The number of bookies that keep the entries of a topic, and the rate at which its cursors are
stored. Pure.

Source: PersistencePolicies of Pulsar 4.0 with its defaults, limits and texts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, final

from broker.ground.refusal import Refusal
from protocol.json_numbers import decimal_of, number_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from broker.ground.config import BrokerConfig

Json = Any
COPIES_MAX: Final = 5
"""Largest value of each of the three numbers of bookies."""
_NUMBERS: Final = {
    "bookkeeperEnsemble": "Bookkeeper-Ensemble",
    "bookkeeperWriteQuorum": "Bookkeeper-WriteQuorum",
    "bookkeeperAckQuorum": "Bookkeeper-AckQuorum",
}
"""Fields of the record, with their names in texts."""
_RATE: Final = "managedLedgerMaxMarkDeleteRate"
_UNSAID: Final = 2
"""The value for a number that a record leaves out."""


@final
@dataclass(frozen=True, slots=True)
class Persistence:
    """E >= W >= A >= 1. `rate` is per second; 0 or less: no limit."""

    ensemble_size: int
    write_quorum_size: int
    ack_quorum_size: int
    mark_delete_rate_max: float


def persistence_of(config: BrokerConfig) -> Persistence:
    """The persistence in the configuration."""
    return Persistence(
        config.managedLedgerDefaultEnsembleSize,
        config.managedLedgerDefaultWriteQuorum,
        config.managedLedgerDefaultAckQuorum,
        config.managedLedgerDefaultMarkDeleteRateLimit,
    )


def violated_quorum_rule(config: BrokerConfig) -> str:
    """The rule between keys that the configuration violates, or an empty text."""
    said = persistence_of(config)
    if said.ensemble_size >= said.write_quorum_size >= said.ack_quorum_size:
        return ""
    return (
        "managedLedgerDefaultEnsembleSize >= managedLedgerDefaultWriteQuorum >= "
        "managedLedgerDefaultAckQuorum must hold, found "
        f"{said.ensemble_size}, {said.write_quorum_size}, {said.ack_quorum_size}"
    )


def persistence_in(record: Mapping[str, Json]) -> Persistence:
    """The persistence in the record of a namespace or topic."""
    ensemble, write, ack = (int(record.get(name, _UNSAID)) for name in _NUMBERS)
    return Persistence(ensemble, write, ack, float(record.get(_RATE, 0.0)))


def record_of(persistence: Persistence) -> dict[str, Json]:
    """The inverse of `persistence_in`."""
    copies = (
        persistence.ensemble_size,
        persistence.write_quorum_size,
        persistence.ack_quorum_size,
    )
    return dict(zip(_NUMBERS, copies, strict=True)) | {_RATE: persistence.mark_delete_rate_max}


def persistence(policy: str, value: Json) -> Json:
    """The body of a request, complete. Raises: Refusal."""
    if value is None:
        raise Refusal(400, "persistence policies should not be null")
    if not isinstance(value, dict):
        raise Refusal(400, f"{policy} must be a JSON object")
    kept: dict[str, Json] = {name: _whole(name, value.get(name)) for name in _NUMBERS}
    kept[_RATE] = _rate(value.get(_RATE))
    for name, text in _NUMBERS.items():
        if not 0 < kept[name] <= COPIES_MAX:
            raise Refusal(400, f"{text} must be <= {COPIES_MAX} and > 0.")
    said = persistence_in(kept)
    if not said.ensemble_size >= said.write_quorum_size >= said.ack_quorum_size:
        raise Refusal(
            400,
            f"Bookkeeper Ensemble ({said.ensemble_size}) >= WriteQuorum"
            f" ({said.write_quorum_size}) >= AckQuorum ({said.ack_quorum_size})",
        )
    return kept


def _whole(name: str, value: Json) -> int:
    """As Pulsar's JSON reader: a text of digits is a number, a fraction is cut off."""
    if value is None:
        return _UNSAID
    number = number_of(value)
    if number is None:
        raise Refusal(400, f"{name} must be a whole number")
    return number


def _rate(value: Json) -> float:
    if value is None:
        return 0.0
    number = decimal_of(value)
    if number is None:
        raise Refusal(400, f"{_RATE} must be a number")
    return number
