"""Dates in HTTP headers. `email.utils` has them, too, and with them the whole library for mail."""

from __future__ import annotations

import time
from typing import Final

_DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS: Final = (
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
)  # fmt: skip


def http_date(seconds: float) -> str:
    """Seconds since 1970 as IMF-fixdate (RFC 9110, section 5.6.7), whatever the locale."""
    at = time.gmtime(seconds)
    return (
        f"{_DAYS[at.tm_wday]}, {at.tm_mday:02} {_MONTHS[at.tm_mon - 1]} {at.tm_year:04}"
        f" {at.tm_hour:02}:{at.tm_min:02}:{at.tm_sec:02} GMT"
    )
