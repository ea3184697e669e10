"""The client side of TLS: how a member of a cluster reaches the others."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from typing import final

from security.tls import path_of, reason_of
from security.tls_suites import UnusableTls


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class TlsClientRules:
    """What the configuration says. Paths may be `file:` URLs."""

    trusted_path: str = ""
    """The authorities of servers (brokerClientTrustCertsFilePath); empty: those of the system."""
    certificate_path: str = ""
    """The chain that is shown to servers which ask for it (brokerClientCertificateFilePath)."""
    key_path: str = ""
    """brokerClientKeyFilePath."""
    verifies_host_name: bool = False
    """tlsHostnameVerificationEnabled."""
    accepts_untrusted: bool = False
    """tlsAllowInsecureConnection."""


def client_context(rules: TlsClientRules) -> ssl.SSLContext:
    """Raises: UnusableTls."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = rules.verifies_host_name and not rules.accepts_untrusted
    context.verify_mode = ssl.CERT_NONE if rules.accepts_untrusted else ssl.CERT_REQUIRED
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    if not rules.trusted_path:
        context.load_default_certs()
    else:
        try:
            context.load_verify_locations(path_of(rules.trusted_path))
        except (ssl.SSLError, OSError) as error:
            raise UnusableTls(
                f"brokerClientTrustCertsFilePath={rules.trusted_path} cannot be used: "
                f"{_words(error)}"
            ) from None
    if rules.certificate_path or rules.key_path:
        try:
            context.load_cert_chain(
                path_of(rules.certificate_path), path_of(rules.key_path), password=lambda: ""
            )
        except (ssl.SSLError, OSError, ValueError) as error:
            raise UnusableTls(
                f"brokerClientCertificateFilePath={rules.certificate_path} and "
                f"brokerClientKeyFilePath={rules.key_path} cannot be used: {_words(error)}"
            ) from None
    return context


def _words(error: Exception) -> str:
    if isinstance(error, OSError) and not isinstance(error, ssl.SSLError):
        return error.strerror or str(error)
    return reason_of(error)
