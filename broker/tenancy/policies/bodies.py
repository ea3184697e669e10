"""JSON values in the bodies of requests, as Pulsar's JSON reader takes them. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from broker.ground.refusal import Refusal
from protocol.json_numbers import number_of

if TYPE_CHECKING:
    from collections.abc import Mapping

Json = Any
INT: Final = range(-(2**31), 2**31)
LONG: Final = range(-(2**63), 2**63)


def object_of(policy: str, value: Json) -> dict[str, Json]:
    """Raises: Refusal: it is none."""
    if not isinstance(value, dict):
        raise Refusal(400, f"{policy} must be a JSON object")
    return value


def names_of(policy: str, value: Json) -> list[str]:
    """An array of texts; numbers become texts. Raises: Refusal."""
    if not isinstance(value, list) or not all(isinstance(each, str | int) for each in value):
        raise Refusal(400, f"{policy} must be an array of names")
    return [str(each) for each in value]


def flag(policy: str, value: Json) -> bool:
    """A boolean. Numbers are accepted, and an empty text is false. Raises: Refusal."""
    if isinstance(value, str) and value.strip().lower() in ("true", "false", ""):
        return value.strip().lower() == "true"
    if not isinstance(value, bool | int):
        raise Refusal(400, f"{policy} must be true or false")
    return bool(value)


def flag_in(given: Mapping[str, Json], name: str) -> bool:
    """A boolean of an object; what it leaves out is false, as null. Raises: Refusal."""
    value = given.get(name)
    return False if value is None else flag(name, value)


def number_in(given: Mapping[str, Json], name: str, unsaid: int, bounds: range) -> int:
    """A number of an object. null is 0. Raises: Refusal."""
    value = given.get(name, unsaid)
    return 0 if value is None else whole(name, value, bounds)


def whole(name: str, value: Json, bounds: range) -> int:
    """A text of digits is a number, and a fraction is cut off. Raises: Refusal."""
    number = number_of(value)
    if number is None or number not in bounds:
        raise Refusal(400, f"{name} must be a whole number")
    return number
