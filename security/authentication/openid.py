"""Pulsar's AuthenticationProviderOpenID: tokens of issuers that publish their keys (OpenID Connect
Discovery 1.0, RFC 7517).

The issuer of a token counts only if the configuration lists it: nothing is fetched for any other.
The keys come from `published_keys`, and this module decides what a token says.
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
from security.authentication.published_keys import CacheRules, PublishedKeys
from security.authentication.signatures import header_of, unverified_claims, verified_claims
from security.authentication.token import bearer_of, token_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from security.authentication.config import AuthenticationConfig
    from security.authentication.published_keys import Fetch

REQUIRED_CLAIMS: Final = ("iss", "sub", "aud", "iat", "exp", "nbf")


@final
class OpenIDProvider:
    """Verifies tokens of the allowed issuers."""

    name = "AuthenticationProviderOpenID"
    method = TOKEN_METHOD
    counts_expiry = False
    reasons: ClassVar[Mapping[Flaw, str]] = {
        Flaw.OTHER: "ERROR_VERIFYING_JWT",
        Flaw.NOTHING_SHOWN: "ERROR_DECODING_JWT",
        Flaw.MALFORMED: "ERROR_DECODING_JWT",
        Flaw.ISSUER: "UNSUPPORTED_ISSUER",
        Flaw.ISSUER_FAILS: "ERROR_RETRIEVING_PROVIDER_METADATA",
        Flaw.UNKNOWN_KEY: "ERROR_RETRIEVING_PUBLIC_KEY",
        Flaw.ALGORITHM: "ALGORITHM_MISMATCH",
        Flaw.SIGNATURE: "ERROR_VERIFYING_JWT_SIGNATURE",
        Flaw.EXPIRED: "EXPIRED_JWT",
        Flaw.CLAIM: "INVALID_JWT_CLAIM",
        Flaw.AUDIENCE: "INVALID_JWT_CLAIM",
    }

    def __init__(
        self,
        issuers: frozenset[str],
        keys: PublishedKeys,
        rules: ClaimRules,
        wall_seconds: Callable[[], float],
    ) -> None:
        self._issuers = issuers
        self._keys = keys
        self._rules = rules
        self._wall_seconds = wall_seconds

    async def authenticate(self, evidence: Evidence) -> Identity:
        """Waits when the keys of the issuer have to be fetched. Raises: AuthenticationFailed."""
        token = token_of(evidence)
        header, claims = header_of(token), unverified_claims(token)
        issuer, key_id = claims.get("iss"), header.get("kid")
        if not isinstance(issuer, str) or issuer not in self._issuers:
            raise AuthenticationFailed("the issuer of the token is not allowed", Flaw.ISSUER)
        if not isinstance(key_id, str):
            raise AuthenticationFailed("the token names no key (kid)", Flaw.UNKNOWN_KEY)
        key = await self._keys.key_of(issuer, key_id)
        algorithm = header.get("alg")
        if not isinstance(algorithm, str) or algorithm not in key.algorithms:
            raise AuthenticationFailed(
                "the algorithm of the token is not that of its key", Flaw.ALGORITHM
            )
        role, expires_at = self._rules.check(verified_claims(token, key), self._wall_seconds())
        return Identity(role, TOKEN_METHOD, expires_at)

    def credential_of(self, headers: Headers) -> bytes:
        """RFC 6750, 2.1. Raises: AuthenticationFailed."""
        return bearer_of(headers)


def openid_provider(
    config: AuthenticationConfig,
    fetch: Fetch,
    wall_seconds: Callable[[], float],
    now: Callable[[], float],
) -> OpenIDProvider:
    """As configured. `wall_seconds` is Unix time, `now` monotonic. Raises: ProviderRefused."""
    issuers = frozenset(each.strip() for each in config.openIDAllowedTokenIssuers if each.strip())
    audiences = frozenset(each.strip() for each in config.openIDAllowedAudiences if each.strip())
    if not issuers:
        raise ProviderRefused("AuthenticationProviderOpenID needs openIDAllowedTokenIssuers")
    if not audiences:
        raise ProviderRefused("AuthenticationProviderOpenID needs openIDAllowedAudiences")
    schemes = ("https://",) if config.openIDRequireIssuersUseHttps else ("https://", "http://")
    for issuer in sorted(issuers):
        if not issuer.startswith(schemes):
            raise ProviderRefused(
                f"openIDAllowedTokenIssuers: {issuer} is not an https URL"
                " (openIDRequireIssuersUseHttps)"
            )
    role_claim = config.openIDRoleClaim or "sub"
    rules = ClaimRules(
        role_claim=role_claim,
        audience_claim="aud",
        audiences=audiences,
        leeway_seconds=config.openIDAcceptedTimeLeewaySeconds,
        required=(*REQUIRED_CLAIMS, role_claim),
        issued_in_the_past=True,
    )
    cache = CacheRules(
        issuers_max=config.openIDCacheSize,
        refresh_seconds=config.openIDCacheRefreshAfterWriteSeconds,
        expire_seconds=config.openIDCacheExpirationSeconds,
        key_miss_seconds=config.openIDKeyIdCacheMissRefreshSeconds,
    )
    return OpenIDProvider(issuers, PublishedKeys(fetch, cache, now), rules, wall_seconds)
