"""Whole numbers in JSON, as Pulsar's JSON reader (Jackson) takes them. Pure."""

from __future__ import annotations

import re
from typing import Final

_DIGITS: Final = re.compile(r"[+-]?[0-9]{1,40}", re.ASCII)


def number_of(value: object) -> int | None:
    """A text of digits is a number, and a fraction is cut off; None: it is no number."""
    if isinstance(value, bool):
        return None
    if isinstance(value, str):
        text = value.strip()
        return int(text) if _DIGITS.fullmatch(text) else None
    try:
        return int(value) if isinstance(value, int | float) else None
    except (ValueError, OverflowError):
        return None
