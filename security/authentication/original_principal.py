"""Who may speak for somebody else: a proxy names the role of its client ("original principal").
Pure.

The rule of Pulsar's AuthorizationService, which applies while authorization is on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Set

    from security.caller import Caller

INVALID_OVER_BINARY: Final = "Invalid roles."
"""Pulsar's text of the ERROR (AuthorizationError) that ends such a connection."""
INVALID_OVER_HTTP: Final = (
    "Invalid combination of Original principal cannot be empty if the request is via proxy."
)
"""Its text of the 401 for such a request."""


def flaw_of(caller: Caller, proxy_roles: Set[str], *, equal_is_fine: bool) -> str:
    """Why the two roles do not go together; empty: they do. `equal_is_fine`: somebody who is no
    proxy may name itself (HTTP)."""
    original = (caller.original_role or "").strip()
    if caller.role in proxy_roles:
        if not original:
            return "originalPrincipal must be provided when connecting with a proxy role"
        if original in proxy_roles:
            return "originalPrincipal cannot be a proxy role"
        return ""
    if original and not (equal_is_fine and original == caller.role):
        return "cannot specify originalPrincipal when connecting without valid proxy role"
    return ""
