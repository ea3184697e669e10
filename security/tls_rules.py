"""The TLS settings of ports and of clients in the configuration. Pure: no file is read."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, final
from urllib.parse import unquote, urlsplit

from security.tls_suites import ANY, TlsChoice


@final
@dataclass(frozen=True, slots=True)
class TlsKeyNames:
    """The keys of the configuration that name the files, for messages to users."""

    certificate: str
    key: str
    trusted: str
    requires_certificate: str = ""
    """The key that demands a certificate of clients."""


BROKER_NAMES: Final = TlsKeyNames(
    "tlsCertificateFilePath",
    "tlsKeyFilePath",
    "tlsTrustCertsFilePath",
    "tlsRequireTrustedClientCertOnConnect",
)
BROKER_CLIENT_NAMES: Final = TlsKeyNames(
    "brokerClientCertificateFilePath", "brokerClientKeyFilePath", "brokerClientTrustCertsFilePath"
)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class TlsRules:
    """The settings of one listening port. Paths may be `file:` URLs."""

    certificate_path: str
    """The chain of the server, its own certificate first (tlsCertificateFilePath)."""
    key_path: str
    """tlsKeyFilePath."""
    trusted_path: str = ""
    """The authorities of clients (tlsTrustCertsFilePath); empty: clients are not asked for a
    certificate."""
    requires_client_certificate: bool = False
    """tlsRequireTrustedClientCertOnConnect."""
    accepts_untrusted: bool = False
    """tlsAllowInsecureConnection: any client may connect, and none is asked for a certificate."""
    names: TlsKeyNames = BROKER_NAMES
    choice: TlsChoice = ANY
    """Versions and cipher suites."""
    check_seconds: float = 300.0
    """How often the files are looked at (tlsCertRefreshCheckDurationSec)."""


def path_of(path_or_url: str) -> str:
    """The path of a `file:` URL; any other text is a path."""
    if not path_or_url.startswith("file:"):
        return path_or_url
    return unquote(urlsplit(path_or_url).path)


def violated_rule(rules: TlsRules) -> str:
    """The sentence about keys that do not fit together, or an empty one. Reads no file."""
    for key, path in (
        (rules.names.certificate, rules.certificate_path),
        (rules.names.key, rules.key_path),
    ):
        if not path:
            return f"{key} is not set: a port for TLS needs a certificate and its key, in PEM files"
    if rules.requires_client_certificate and rules.accepts_untrusted:
        return (
            "tlsRequireTrustedClientCertOnConnect and tlsAllowInsecureConnection contradict each "
            "other: set one of them to false"
        )
    if rules.requires_client_certificate and not rules.trusted_path:
        return (
            f"{rules.names.requires_certificate} needs {rules.names.trusted}: the PEM file of the "
            "authorities that sign clients' certificates"
        )
    return rules.choice.violated_rule()


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class TlsClientRules:
    """The settings of TLS as a client. Paths may be `file:` URLs."""

    names: TlsKeyNames = BROKER_CLIENT_NAMES
    trusted_path: str = ""
    """The authorities of servers; empty: those of the system."""
    certificate_path: str = ""
    """The chain that is shown to servers which ask for it."""
    key_path: str = ""
    verifies_host_name: bool = False
    accepts_untrusted: bool = False
    choice: TlsChoice = ANY
    """Versions and cipher suites that are offered."""
    check_seconds: float = 300.0
    """How often the files are looked at."""

    def showing(self, certificate_path: str, key_path: str, names: TlsKeyNames) -> TlsClientRules:
        """The same with another certificate."""
        return replace(self, certificate_path=certificate_path, key_path=key_path, names=names)


def missing_file(rules: TlsClientRules) -> str:
    """The sentence about a key that is not set, among those of members of a cluster, who do not
    trust the authorities of the system; empty: none is missing."""
    names = rules.names
    if not rules.trusted_path:
        return f"{names.trusted} is not set: the PEM file of the authorities of servers"
    if rules.certificate_path and not rules.key_path:
        return f"{names.key} is not set: the PEM file of the key of {names.certificate}"
    if rules.key_path and not rules.certificate_path:
        return f"{names.certificate} is not set: the PEM file of the certificate of {names.key}"
    return ""
