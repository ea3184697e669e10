"""Numbers and texts in JSON, as Pulsar's JSON reader (Jackson) takes them. Pure."""

from __future__ import annotations

import json
import math
import re
from typing import Final

_DIGITS: Final = re.compile(r"[+-]?[0-9]{1,40}", re.ASCII)
_DECIMAL: Final = re.compile(
    r"[+-]?([0-9]{1,400}\.?[0-9]{0,400}|\.[0-9]{1,400})([eE][+-]?[0-9]{1,9})?", re.ASCII
)


def number_of(value: object) -> int | None:
    """A text of digits is a number, an empty text is 0, and a fraction is cut off; None: it is no
    number."""
    if isinstance(value, bool):
        return None
    if isinstance(value, str):
        text = value.strip()
        if not text:
            return 0
        return int(text) if _DIGITS.fullmatch(text) else None
    try:
        return int(value) if isinstance(value, int | float) else None
    except (ValueError, OverflowError):
        return None


def decimal_of(value: object) -> float | None:
    """A text of a decimal number is one, an empty text is 0; None: it is no finite number."""
    if isinstance(value, bool):
        return None
    if isinstance(value, str):
        text = value.strip()
        if not text:
            return 0.0
        number = float(text) if _DECIMAL.fullmatch(text) else math.nan
    else:
        try:
            number = float(value) if isinstance(value, int | float) else math.nan
        except OverflowError:
            return None
    return number if math.isfinite(number) else None


def text_of(value: object) -> str | None:
    """A number or a boolean is the text that it is written as; None: it is no text."""
    if isinstance(value, str):
        return value
    return json.dumps(value) if isinstance(value, bool | int | float) else None
