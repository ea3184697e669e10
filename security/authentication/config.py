"""The keys of authentication: Pulsar's names, types and defaults. Pure.

`docs/security.md` says what each means. Keys with an empty default have Pulsar's own one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from settings.kinds import Bounds, Count, Positive


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthenticationConfig:
    """The authentication of a server."""

    authenticationEnabled: bool = False
    authenticationProviders: tuple[str, ...] = ()
    authenticationRefreshCheckSeconds: Positive = 60
    authenticateOriginalAuthData: bool = False
    authenticateMetricsEndpoint: bool = False
    anonymousUserRole: str = ""
    proxyRoles: tuple[str, ...] = ()

    tokenSettingPrefix: str = ""
    tokenSecretKey: str = ""
    tokenPublicKey: str = ""
    tokenPublicAlg: str = ""
    tokenAuthClaim: str = ""
    tokenAudienceClaim: str = ""
    tokenAudience: str = ""
    tokenAllowedClockSkewSeconds: Count = 0
    basicAuthConf: str = ""

    openIDAllowedTokenIssuers: tuple[str, ...] = ()
    openIDAllowedAudiences: tuple[str, ...] = ()
    openIDTokenIssuerTrustCertsFilePath: str = ""
    openIDRoleClaim: str = "sub"
    openIDAcceptedTimeLeewaySeconds: Count = 0
    openIDCacheSize: Annotated[int, Bounds(1, 1_000)] = 5
    openIDCacheRefreshAfterWriteSeconds: Positive = 64_800
    openIDCacheExpirationSeconds: Positive = 86_400
    openIDHttpConnectionTimeoutMillis: Positive = 10_000
    openIDHttpReadTimeoutMillis: Positive = 10_000
    openIDKeyIdCacheMissRefreshSeconds: Positive = 300
    openIDRequireIssuersUseHttps: bool = True
