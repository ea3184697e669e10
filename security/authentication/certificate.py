"""Pulsar's AuthenticationProviderTls: the role is the common name in the certificate of the client.
Pure.

The TLS layer has verified the certificate against the trust store, and gives its name.
"""

from __future__ import annotations

from typing import Final, final

from security.authentication.identity import AuthenticationFailed, Evidence, Headers, Identity

TLS_METHOD: Final = "tls"


@final
class CertificateProvider:
    """Believes what TLS has verified."""

    method = TLS_METHOD

    async def authenticate(self, evidence: Evidence) -> Identity:
        """Never waits. Raises: AuthenticationFailed."""
        if not evidence.subject:
            raise AuthenticationFailed("the client has shown no certificate with a common name")
        return Identity(evidence.subject, TLS_METHOD)

    def credential_of(self, headers: Headers) -> bytes:
        """The certificate of the connection is all."""
        del headers
        return b""
