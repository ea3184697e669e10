"""What the configuration says of TLS as a client. Pure: no file is read."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, final

from security.tls_rules import TlsKeyNames
from security.tls_suites import ANY, TlsChoice

BROKER_CLIENT_NAMES: Final = TlsKeyNames(
    "brokerClientCertificateFilePath", "brokerClientKeyFilePath", "brokerClientTrustCertsFilePath"
)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class TlsClientRules:
    """What the configuration says. Paths may be `file:` URLs."""

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
