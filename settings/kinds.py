"""Kinds of values that keys have, as annotations of the fields of a frozen dataclass. Pure.

Bounds are part of the type (`Annotated` with a `Bounds`, `Limit` or `Pattern`); `settings.reading`
enforces them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final, final


@final
@dataclass(frozen=True, slots=True)
class Bounds:
    """The closed range of a number; None = open on that side."""

    minimum: float | None
    maximum: float | None = None


@final
@dataclass(frozen=True, slots=True)
class Pattern:
    """The text must be a regular expression of Python; empty = none."""


@final
@dataclass(frozen=True, slots=True)
class Limit:
    """A number of which 0 and everything below mean "no limit"; stored as 0."""


NO_LIMIT: Final = 2**60
"""A value for "no limit" in code that only compares."""


def or_no_limit(limit: int) -> int:
    """A limit as a number for comparisons: 0 and everything below mean none."""
    return limit if limit > 0 else NO_LIMIT


NoneAtZero = Annotated[int, Limit()]
Count = Annotated[int, Bounds(0)]
Positive = Annotated[int, Bounds(1)]
Port = Annotated[int, Bounds(0, 65535)]
PortOrOff = Annotated[int | None, Bounds(0, 65535)]
"""None, written as a blank value: nothing listens."""
GroupWait = Annotated[int, Bounds(0, 1000)]
"""Milliseconds by which a write may be late on purpose."""
Ratio = Annotated[float, Bounds(0, 1)]
Rate = Annotated[float, Bounds(0)]
