"""How the brokers of a cluster divide the budget of a resource group. Pure.

Max-min fairness: a broker that needs less than an equal part gets what it needs with some room to
grow; those whose clients wait divide the rest equally. All brokers compute this from the same
reports, so the parts add up to the whole.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from collections.abc import Mapping

GROWTH: Final = 1.25
"""How much more than its present use a broker may use before it is counted again."""
FLOOR: Final = 0.1
"""The share of an equal part that a broker without use gets."""


@final
@dataclass(frozen=True, slots=True)
class Usage:
    """The use of a group's budget by one broker."""

    used: float = 0.0
    """As a part of the whole budget."""
    is_held: bool = False
    """Whether some of its clients waited."""


def shares(usages: Mapping[str, Usage]) -> dict[str, float]:
    """The parts of the budget, by broker. Their sum is 1, unless there is no broker."""
    if not usages:
        return {}
    count = len(usages)
    wanted = {
        name: 1.0 if usage.is_held else min(1.0, usage.used * GROWTH + FLOOR / count)
        for name, usage in usages.items()
    }
    parts: dict[str, float] = {}
    left = 1.0
    # The smallest wishes first: each is granted up to an equal part of what is left.
    for place, name in enumerate(sorted(wanted, key=lambda each: (wanted[each], each))):
        parts[name] = min(wanted[name], left / (count - place))
        left -= parts[name]
    return {name: part + left / count for name, part in parts.items()}
