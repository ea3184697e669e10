"""Names of hosts in configurations. Pure."""

from __future__ import annotations

import ipaddress
import re
from typing import Final

_LABEL: Final = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?")
_NAME_LENGTH_MAX: Final = 253


def violated_host_rule(key: str, value: str) -> str:
    """The fault of the host that clients are given; empty: it has none, or there is no host."""
    if not value or _is_host(value):
        return ""
    return (
        f"{key}={value!r} is no host: name a host or an address alone, without a scheme, a port or "
        "a path, and an IPv6 address without brackets"
    )


def _is_host(value: str) -> bool:
    try:
        ipaddress.ip_address(value)
    except ValueError:
        labels = value.removesuffix(".").split(".")
        # 1.2.3.400 is neither an address nor a name.
        is_name = len(value) <= _NAME_LENGTH_MAX and not labels[-1].isdecimal()
        return is_name and all(_LABEL.fullmatch(label) for label in labels)
    return True
