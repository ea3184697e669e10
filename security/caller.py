"""The identity of a caller: the result of authentication, and the input of authorization. Pure.

A proxy speaks for its client: it names the role of the client (the "original principal").
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from collections.abc import Set

INVALID_OVER_BINARY: Final = "Invalid roles."
"""Pulsar's text of the ERROR (AuthorizationError) that ends such a connection."""
INVALID_OVER_HTTP: Final = (
    "Invalid combination of Original principal cannot be empty if the request is via proxy."
)
"""Its text of the 401 for such a request."""


@final
@dataclass(frozen=True, slots=True)
class Caller:
    """One connection, or one HTTP request."""

    role: str | None
    """The authenticated role, or the anonymous one; None: authentication is off."""
    original_role: str | None = None
    """The role of the client for which a proxy speaks, as the proxy says; None: there is no
    proxy."""
    is_this_broker: bool = False
    """Whether it is the broker itself, by a connection inside the process."""

    def __str__(self) -> str:
        """For logs and statistics. Roles are no credentials."""
        if self.is_this_broker:
            return "this broker"
        role = "nobody" if self.role is None else repr(self.role)
        return role if self.original_role is None else f"{role} for {self.original_role!r}"


UNAUTHENTICATED: Final = Caller(None)
"""Every caller while authentication is off."""
THIS_BROKER: Final = Caller(None, is_this_broker=True)
"""This broker itself, which may do everything, whatever its rules are."""


def flaw_of(caller: Caller, proxy_roles: Set[str], *, equal_is_fine: bool) -> str:
    """Why the two roles do not go together; empty: they do. `equal_is_fine`: a caller that is no
    proxy may name itself (HTTP).

    The rule of Pulsar's AuthorizationService, which applies while authorization is on.
    """
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
