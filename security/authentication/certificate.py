"""Pulsar's AuthenticationProviderTls: the role is the common name in the certificate of the client.
Pure.

The TLS layer has verified the certificate against the trust store.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, final

from cryptography.x509 import load_der_x509_certificate
from cryptography.x509.oid import NameOID

from security.authentication.identity import (
    TLS_METHOD,
    AuthenticationFailed,
    Evidence,
    Flaw,
    Headers,
    Identity,
)

if TYPE_CHECKING:
    from collections.abc import Mapping


@final
class CertificateProvider:
    """Believes what TLS has verified."""

    name = "AuthenticationProviderTls"
    method = TLS_METHOD
    counts_expiry = False
    reasons: ClassVar[Mapping[Flaw, str]] = {
        Flaw.OTHER: "UNKNOWN",
        Flaw.CERTIFICATE: "INVALID_CERTS",
        Flaw.COMMON_NAME: "INVALID_CN",
    }

    async def authenticate(self, evidence: Evidence) -> Identity:
        """Never waits. Raises: AuthenticationFailed."""
        if evidence.certificate is None:
            raise AuthenticationFailed("the client has shown no certificate", Flaw.CERTIFICATE)
        role = common_name(evidence.certificate)
        if not role:
            raise AuthenticationFailed(
                "the certificate of the client has no common name", Flaw.COMMON_NAME
            )
        return Identity(role, TLS_METHOD)

    def credential_of(self, headers: Headers) -> bytes:
        """The certificate of the connection is all."""
        del headers
        return b""


def common_name(certificate: bytes) -> str:
    """The common name of the subject; of several the last one, which Pulsar's notation of names
    (RFC 2253) has first. Empty: there is none."""
    try:
        names = load_der_x509_certificate(certificate).subject.get_attributes_for_oid(
            NameOID.COMMON_NAME
        )
    except ValueError:
        raise AuthenticationFailed(
            "the certificate of the client is malformed", Flaw.CERTIFICATE
        ) from None
    value = names[-1].value if names else ""
    return value if isinstance(value, str) else ""
