"""Resource groups: budgets that the namespaces of a group share. Their JSON and its meaning. Pure.

Source: ResourceGroup of Pulsar 4.0 with its defaults, and how its REST API changes one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, final

from broker.tenancy.policies.bodies import INT, LONG, whole

if TYPE_CHECKING:
    from collections.abc import Mapping

Json = Any
_FIELDS: Final = {
    "publishRateInMsgs": INT,
    "publishRateInBytes": LONG,
    "dispatchRateInMsgs": INT,
    "dispatchRateInBytes": LONG,
}
_UNSET: Final = -1


@final
@dataclass(frozen=True, slots=True)
class Budget:
    """0: no limit."""

    messages_per_second: float = 0
    bytes_per_second: float = 0

    def __bool__(self) -> bool:
        return self.messages_per_second > 0 or self.bytes_per_second > 0

    def times(self, share: float) -> Budget:
        """A part of it."""
        return Budget(self.messages_per_second * share, self.bytes_per_second * share)


@final
@dataclass(frozen=True, slots=True)
class ResourceGroup:
    """The budgets that all namespaces of the group share."""

    publish: Budget = Budget()
    dispatch: Budget = Budget()


def group_record(before: Mapping[str, Json] | None, given: Mapping[str, Json]) -> dict[str, Json]:
    """The record of a group after a request. What the request lacks stays as it was, and is no
    limit in a new group. Raises: Refusal."""
    record = dict.fromkeys(_FIELDS, _UNSET) | dict(before or {})
    for name, bounds in _FIELDS.items():
        if given.get(name) is not None:
            record[name] = whole(name, given[name], bounds)
    return record


def group_in(record: Mapping[str, Json]) -> ResourceGroup:
    """The group in a record. Raises: ValueError, TypeError: it is damaged."""
    numbers = [max(0, int(record.get(name) or 0)) for name in _FIELDS]
    return ResourceGroup(Budget(*numbers[:2]), Budget(*numbers[2:]))
