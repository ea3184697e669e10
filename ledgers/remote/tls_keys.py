"""TLS from autorecovery and tools to bookies: BookKeeper's keys of its client, with files in PEM
form.

Without a file for a key that only clients have, the file of the bookie with the same configuration
is used.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from bookie.process.tls import (
    BookieTlsConfig,
    check_seconds,
    not_pem,
    versions_and_suites,
    violated_factory_rule,
)
from security.tls_rules import TlsClientRules, TlsKeyNames, missing_file

if TYPE_CHECKING:
    from collections.abc import Callable

    from ledgers.remote.network import Connect

NAMES: Final = TlsKeyNames("tlsCertificatePath", "clientKeyStore", "clientTrustStore")


@dataclass(frozen=True, kw_only=True)
class ClientTlsConfig(BookieTlsConfig):
    """The keys. Paths may be `file:` URLs."""

    clientKeyStoreType: str = "JKS"
    clientKeyStore: str = ""
    """The key of tlsCertificatePath; empty: tlsKeyStore."""
    clientTrustStoreType: str = "JKS"
    clientTrustStore: str = ""
    """The authorities of bookies; empty: tlsTrustStore."""
    tlsHostnameVerificationEnabled: bool = False


PROTECTING: Final = frozenset(ClientTlsConfig.__dataclass_fields__)


def client_tls(config: ClientTlsConfig) -> TlsClientRules | None:
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
        choice=versions_and_suites(config),
        check_seconds=check_seconds(config),
    )


def violated_client_rule(config: ClientTlsConfig) -> str:
    """The sentence about keys that do not fit together, or an empty one."""
    rules = client_tls(config)
    if rules is None:
        return ""
    return (
        violated_factory_rule(config)
        or not_pem("clientKeyStoreType", config.clientKeyStoreType, config.clientKeyStore)
        or not_pem("clientTrustStoreType", config.clientTrustStoreType, config.clientTrustStore)
        or missing_file(rules)
        or rules.choice.violated_rule()
    )


def secured(config: ClientTlsConfig) -> Callable[[Connect], Connect] | None:
    """Makes connections to bookies secure; None: they stay as they are. Reads the files.

    Raises: UnusableTls.
    """
    rules = client_tls(config)
    if rules is None:
        return None
    # Loads libraries of which a process without TLS has no use.
    from ledgers.remote.start_tls import StartTls
    from security.tls_client import TlsClientContexts

    return partial(StartTls, TlsClientContexts(rules))
