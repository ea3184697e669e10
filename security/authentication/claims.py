"""The rules for the claims of a verified token: its subject, audience and times. Pure.

Times as in Pulsar's library: a token is expired after the millisecond of its `exp`, and good from
that of its `nbf` on; one without `exp` never expires. `leeway_seconds` counts in favour of the
token.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from security.authentication.identity import AuthenticationFailed, Flaw

if TYPE_CHECKING:
    from security.authentication.signatures import Claims

EXPIRY = "exp"
NOT_BEFORE = "nbf"
ISSUED_AT = "iat"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimRules:
    """The claims that a token must have."""

    role_claim: str = "sub"
    audience_claim: str = ""
    """Empty: the audience is not looked at."""
    audiences: frozenset[str] = frozenset()
    """One of these must be among the audiences of the token."""
    leeway_seconds: int = 0
    required: tuple[str, ...] = ()
    """Claims that must be present, with any value."""
    issued_in_the_past: bool = False
    """Whether a token from the future is refused."""

    def check(self, claims: Claims, now: float) -> tuple[str, float | None]:
        """The role, and when the token expires (Unix time, None: never). `now` is Unix time.

        Raises: AuthenticationFailed.
        """
        for name in self.required:
            if claims.get(name) is None:
                raise AuthenticationFailed(f"the token lacks the claim {name}", Flaw.CLAIM)
        expires_at = _time(claims, EXPIRY)
        if expires_at is not None and now - self.leeway_seconds > expires_at:
            raise AuthenticationFailed("the token has expired", Flaw.EXPIRED)
        not_before = _time(claims, NOT_BEFORE)
        if not_before is not None and now + self.leeway_seconds < not_before:
            raise AuthenticationFailed("the token is not valid yet", Flaw.CLAIM)
        issued_at = _time(claims, ISSUED_AT) if self.issued_in_the_past else None
        if issued_at is not None and now + self.leeway_seconds < issued_at:
            raise AuthenticationFailed("the token was issued in the future", Flaw.CLAIM)
        self._check_audience(claims)
        return self._role(claims), expires_at

    def _check_audience(self, claims: Claims) -> None:
        if not self.audience_claim:
            return
        found = claims.get(self.audience_claim)
        named = found if isinstance(found, list) else [found]
        if not any(isinstance(each, str) and each in self.audiences for each in named):
            raise AuthenticationFailed(
                f"the token is not for this broker (claim {self.audience_claim})", Flaw.AUDIENCE
            )

    def _role(self, claims: Claims) -> str:
        """A text, or the first of a list of texts."""
        found = claims.get(self.role_claim)
        if isinstance(found, list):
            found = found[0] if found else None
        if not isinstance(found, str) or not found.strip() or not _is_text(found):
            raise AuthenticationFailed(
                f"the token names no role (claim {self.role_claim})", Flaw.CLAIM
            )
        return found


def _is_text(found: str) -> bool:
    """Half of a surrogate pair can be said in JSON, and cannot be sent or stored."""
    try:
        found.encode()
    except UnicodeEncodeError:
        return False
    return True


def _time(claims: Claims, name: str) -> float | None:
    """Seconds since 1970, whole ones (RFC 7519 allows fractions; Pulsar's library drops them)."""
    value = claims.get(name)
    if value is None:
        return None
    try:
        if not isinstance(value, bool) and isinstance(value, int | float):
            return float(math.floor(value))
    except (OverflowError, ValueError):
        pass  # not finite, or an integer that is no float
    raise AuthenticationFailed(f"the claim {name} of the token is no time", Flaw.CLAIM)
