"""Numbers in the bodies of requests, as Pulsar's JSON reader takes them. Pure."""

from __future__ import annotations

from typing import Any, Final

from broker.ground.refusal import Refusal

Json = Any
INT: Final = range(-(2**31), 2**31)
LONG: Final = range(-(2**63), 2**63)


def whole(name: str, value: Json, bounds: range) -> int:
    """A text of digits is a number, and a fraction is cut off. Raises: Refusal."""
    try:
        if not isinstance(value, bool) and isinstance(value, int | float | str):
            number = int(value)
            if number in bounds:
                return number
    except (ValueError, OverflowError):
        pass
    raise Refusal(400, f"{name} must be a whole number")
