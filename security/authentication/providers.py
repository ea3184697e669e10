"""From the configuration to the providers: Pulsar's class names, and those that are refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import structlog

from security.authentication.basic import basic_provider
from security.authentication.certificate import CertificateProvider
from security.authentication.counts import AuthenticationCounts
from security.authentication.identity import ProviderRefused
from security.authentication.openid import openid_provider
from security.authentication.service import Authentication
from security.authentication.token import token_provider
from security.authentication.verification import Verifications

if TYPE_CHECKING:
    from collections.abc import Callable

    from security.authentication.config import AuthenticationConfig
    from security.authentication.identity import Provider
    from security.authentication.published_keys import Fetch

log = structlog.get_logger()

_PACKAGE: Final = "org.apache.pulsar.broker.authentication."
_TOKEN: Final = f"{_PACKAGE}AuthenticationProviderToken"
_TLS: Final = f"{_PACKAGE}AuthenticationProviderTls"
_BASIC: Final = f"{_PACKAGE}AuthenticationProviderBasic"
_OPENID: Final = f"{_PACKAGE}oidc.AuthenticationProviderOpenID"
PROVIDER_CLASSES: Final = (_TOKEN, _TLS, _BASIC, _OPENID)


def authentication_of(
    config: AuthenticationConfig,
    fetch: Fetch,
    wall_seconds: Callable[[], float],
    now: Callable[[], float],
) -> Authentication:
    """The authentication of a server with this configuration. `fetch` asks issuers for their
    documents, `wall_seconds` is Unix time, and `now` seconds on a monotonic scale.

    Raises: ProviderRefused.
    """
    verifications = Verifications()
    providers = [
        _provider(name.strip(), config, verifications, fetch, wall_seconds, now)
        for name in config.authenticationProviders
        if name.strip()
    ]
    if not providers:
        log.warning("authenticationProviders is empty: no credential is right")
    counts = AuthenticationCounts(
        wall_seconds, watches_expiry=any(each.counts_expiry for each in providers)
    )
    return Authentication(providers, config.anonymousUserRole, verifications, counts)


def _provider(
    name: str,
    config: AuthenticationConfig,
    verifications: Verifications,
    fetch: Fetch,
    wall_seconds: Callable[[], float],
    now: Callable[[], float],
) -> Provider:
    if name == _TOKEN:
        return token_provider(config, wall_seconds)
    if name == _TLS:
        return CertificateProvider()
    if name == _BASIC:
        return basic_provider(config, verifications)
    if name == _OPENID:
        return openid_provider(config, fetch, wall_seconds, now)
    raise ProviderRefused(
        f"authenticationProviders: {name} is not supported; Vela has"
        f" {', '.join(each.rpartition('.')[2] for each in PROVIDER_CLASSES)}"
    )
