"""The identity of a caller: the result of authentication, and the input of authorization. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, final


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
"""May do everything, whatever its rules are."""
