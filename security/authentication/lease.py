"""How long a connection may go on with its credential. Pure.

Pulsar's rule: every `authenticationRefreshCheckSeconds` the broker checks whether the credential
has expired. If so, a client that can renew it is asked to (AUTH_CHALLENGE), and has until the next
check to answer. Any other client is disconnected.

A check does not count if the client was not read since the one before, because its answer may have
arrived. This holds for `UNREAD_SECONDS_MAX`, so that no client goes on for ever with an expired
credential.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from security.authentication.identity import Identity

UNREAD_SECONDS_MAX: Final = 300.0
"""After the challenge. Then the client has to connect again, and loses nothing by it."""


class LeaseAction(Enum):
    """The action that is due."""

    NOTHING = auto()
    CHALLENGE = auto()
    """Ask the client for a new credential."""
    CLOSE_CANNOT_RENEW = auto()
    CLOSE_NO_ANSWER = auto()


@final
class Lease:
    """The credential of one connection."""

    __slots__ = ("_can_renew", "_challenged_at", "identity", "renewing")

    def __init__(self, identity: Identity, *, can_renew: bool) -> None:
        self.identity = identity
        """The identity in the credential that is renewed."""
        self._can_renew = can_renew
        self._challenged_at: float | None = None
        """Monotonic: the time for an answer depends on no change of the wall clock."""
        self.renewing = False
        """Whether an answer to a challenge is being verified."""

    def check(self, wall_seconds: float, now: float, *, was_unread: bool = False) -> LeaseAction:
        """The action that is due now: `wall_seconds` is Unix time, `now` monotonic. `was_unread`:
        whether this side has stopped reading the connection since the last look."""
        expires_at = self.identity.expires_at
        if expires_at is None or wall_seconds <= expires_at:
            return LeaseAction.NOTHING
        if not self._can_renew:
            return LeaseAction.CLOSE_CANNOT_RENEW
        if self._challenged_at is not None:
            if was_unread and now - self._challenged_at <= UNREAD_SECONDS_MAX:
                return LeaseAction.NOTHING
            return LeaseAction.CLOSE_NO_ANSWER
        self._challenged_at = now
        return LeaseAction.CHALLENGE

    def answered(self) -> None:
        """An answer has come."""
        self._challenged_at = None

    def renewed(self, identity: Identity) -> bool:
        """Go on with the new credential. Returns whether it is of the same role: if not, nothing
        has changed."""
        if identity.role != self.identity.role:
            return False
        self.identity = identity
        return True
