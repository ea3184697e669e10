"""TLS from autorecovery to bookies: BookKeeper's keys of its client, with files in PEM form. Pure:
no file is read.

A file that only clients have a key for may be left out: it is that of the bookie with the same
configuration.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from bookie.process.tls import (
    BookieTlsConfig,
    check_seconds,
    not_pem,
    violated_factory_rule,
)
from security.tls_client_rules import TlsClientRules, missing_file
from security.tls_rules import TlsKeyNames

NAMES: Final = TlsKeyNames("tlsCertificatePath", "clientKeyStore", "clientTrustStore")


@dataclass(frozen=True, kw_only=True)
class AutorecoveryTlsConfig(BookieTlsConfig):
    """The keys. Paths may be `file:` URLs."""

    clientKeyStoreType: str = "JKS"
    clientKeyStore: str = ""
    """The key of tlsCertificatePath; empty: tlsKeyStore."""
    clientTrustStoreType: str = "JKS"
    clientTrustStore: str = ""
    """The authorities of bookies; empty: tlsTrustStore."""
    tlsHostnameVerificationEnabled: bool = False


PROTECTING: Final = frozenset(AutorecoveryTlsConfig.__dataclass_fields__)


def client_tls(config: AutorecoveryTlsConfig) -> TlsClientRules | None:
    """How bookies are reached; None: without TLS."""
    if not config.tlsProviderFactoryClass:
        return None
    shows = config.tlsClientAuthentication
    return TlsClientRules(
        names=NAMES,
        trusted_path=config.clientTrustStore or config.tlsTrustStore,
        certificate_path=config.tlsCertificatePath if shows else "",
        key_path=(config.clientKeyStore or config.tlsKeyStore) if shows else "",
        verifies_host_name=config.tlsHostnameVerificationEnabled,
        check_seconds=check_seconds(config),
    )


def violated_client_rule(config: AutorecoveryTlsConfig) -> str:
    """The sentence about keys that do not fit together, or an empty one."""
    rules = client_tls(config)
    if rules is None:
        return ""
    return (
        violated_factory_rule(config)
        or not_pem("clientKeyStoreType", config.clientKeyStoreType, config.clientKeyStore)
        or not_pem("clientTrustStoreType", config.clientTrustStoreType, config.clientTrustStore)
        or missing_file(rules)
    )
