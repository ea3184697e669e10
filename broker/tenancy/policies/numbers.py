"""Numbers in the bodies of requests, as Pulsar's JSON reader takes them. Pure."""

from __future__ import annotations

from typing import Any, Final

from broker.ground.refusal import Refusal
from protocol.json_numbers import number_of

Json = Any
INT: Final = range(-(2**31), 2**31)
LONG: Final = range(-(2**63), 2**63)


def whole(name: str, value: Json, bounds: range) -> int:
    """A text of digits is a number, and a fraction is cut off. Raises: Refusal."""
    number = number_of(value)
    if number is None or number not in bounds:
        raise Refusal(400, f"{name} must be a whole number")
    return number
