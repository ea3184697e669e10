"""Fetches the documents of issuers of tokens (OpenID Connect): the shell of
`security.authentication.published_keys`."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

from security.authentication.identity import AuthenticationFailed, Flaw, ProviderRefused
from security.authentication.published_keys import DOCUMENT_BYTES_MAX
from web.client import CallFailed, fetch

if TYPE_CHECKING:
    from broker.ground.config import BrokerConfig
    from security.authentication.published_keys import Fetch


def fetch_from_issuers(config: BrokerConfig) -> Fetch:
    """GET within the times and with the trusted certificates of the configuration.

    Raises: ProviderRefused: the certificates cannot be read.
    """
    trusted = config.openIDTokenIssuerTrustCertsFilePath or None
    try:
        tls = ssl.create_default_context(cafile=trusted)
    except OSError as error:
        raise ProviderRefused(
            f"openIDTokenIssuerTrustCertsFilePath: cannot read certificates from {trusted}:"
            f" {error.strerror or error}"
        ) from None
    millis = config.openIDHttpConnectionTimeoutMillis + config.openIDHttpReadTimeoutMillis

    async def document_at(url: str) -> bytes:
        try:
            answer = await fetch(
                "GET", url, millis / 1000, body_bytes_max=DOCUMENT_BYTES_MAX, tls=tls
            )
        except CallFailed as error:
            raise AuthenticationFailed(str(error), Flaw.ISSUER_FAILS) from None
        if answer.status != 200:
            raise AuthenticationFailed(
                f"GET {url}: the answer is {answer.status}", Flaw.ISSUER_FAILS
            )
        return answer.body

    return document_at
