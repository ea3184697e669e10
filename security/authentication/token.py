"""Pulsar's AuthenticationProviderToken: a JSON Web Token signed with one secret or one private key.

Source of the rules: the keys `token*` of Pulsar 4.0, and its answers to tokens of every kind
(`compat_tests/test_authentication.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final, final

from security.authentication.claims import ClaimRules
from security.authentication.identity import (
    TOKEN_METHOD,
    AuthenticationFailed,
    Evidence,
    Flaw,
    Headers,
    Identity,
    ProviderRefused,
)
from security.authentication.key_sources import read_source
from security.authentication.signatures import (
    KeyUnfit,
    VerificationKey,
    key_of_public,
    key_of_secret,
    verified_claims,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from security.authentication.config import AuthenticationConfig

TOKEN_BYTES_MAX: Final = 16 * 1024
"""Looking at a token costs time for each byte before its signature is known to be right."""
_BEARER: Final = "Bearer "
_FAMILY: Final = {"RS": "RS256", "PS": "PS256"}
"""RSA keys verify both families, whichever `tokenPublicAlg` names."""


@final
class TokenProvider:
    """Verifies tokens with one key."""

    name = "AuthenticationProviderToken"
    method = TOKEN_METHOD
    counts_expiry = True
    reasons: ClassVar[Mapping[Flaw, str]] = {
        Flaw.OTHER: "INVALID_TOKEN",
        Flaw.NOTHING_SHOWN: "INVALID_AUTH_DATA",
        Flaw.AUDIENCE: "INVALID_AUDIENCES",
    }

    def __init__(
        self, key: VerificationKey, rules: ClaimRules, wall_seconds: Callable[[], float]
    ) -> None:
        self._key = key
        self._rules = rules
        self._wall_seconds = wall_seconds

    async def authenticate(self, evidence: Evidence) -> Identity:
        """Never waits. Raises: AuthenticationFailed."""
        token = token_of(evidence)
        role, expires_at = self._rules.check(
            verified_claims(token, self._key), self._wall_seconds()
        )
        return Identity(role, TOKEN_METHOD, expires_at)

    def credential_of(self, headers: Headers) -> bytes:
        """RFC 6750, 2.1. Raises: AuthenticationFailed."""
        return bearer_of(headers)


def token_of(evidence: Evidence) -> str:
    """The token as a text. Raises: AuthenticationFailed: there is none."""
    if len(evidence.data) > TOKEN_BYTES_MAX:
        raise AuthenticationFailed(f"the token has over {TOKEN_BYTES_MAX} bytes", Flaw.MALFORMED)
    token = evidence.data.decode("latin-1").strip()  # files of tokens end with a new line
    if not token:
        raise AuthenticationFailed("there is no token", Flaw.NOTHING_SHOWN)
    return token


def bearer_of(headers: Headers) -> bytes:
    """The token of an HTTP request. Raises: AuthenticationFailed: there is none."""
    header = headers.get("authorization", "")
    if not header.startswith(_BEARER):
        raise AuthenticationFailed("there is no header 'Authorization: Bearer'", Flaw.HEADER)
    return header.removeprefix(_BEARER).encode("latin-1")


def token_provider(
    config: AuthenticationConfig, wall_seconds: Callable[[], float]
) -> TokenProvider:
    """As configured. Raises: ProviderRefused."""
    if config.tokenAudienceClaim and not config.tokenAudience:
        raise ProviderRefused("tokenAudienceClaim is set, so tokenAudience has to be set, too")
    rules = ClaimRules(
        role_claim=config.tokenAuthClaim or "sub",
        audience_claim=config.tokenAudienceClaim,
        audiences=frozenset({config.tokenAudience}),
        leeway_seconds=config.tokenAllowedClockSkewSeconds,
    )
    return TokenProvider(_key(config), rules, wall_seconds)


def _key(config: AuthenticationConfig) -> VerificationKey:
    """The secret has precedence, as in Pulsar. Raises: ProviderRefused."""
    key = "tokenSecretKey" if config.tokenSecretKey else "tokenPublicKey"
    source = config.tokenSecretKey or config.tokenPublicKey
    if not source:
        raise ProviderRefused("AuthenticationProviderToken needs tokenSecretKey or tokenPublicKey")
    try:
        if config.tokenSecretKey:
            return key_of_secret(read_source(key, source))
        found = key_of_public(read_source(key, source))
    except KeyUnfit as error:
        raise ProviderRefused(f"{key}: {error}") from None
    algorithm = config.tokenPublicAlg
    if algorithm and _FAMILY.get(algorithm[:2], algorithm) not in found.algorithms:
        raise ProviderRefused(
            f"tokenPublicAlg={algorithm}, but the key of tokenPublicKey is for"
            f" {', '.join(sorted(found.algorithms))}"
        )
    return found
