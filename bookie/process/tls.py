"""TLS of a bookie: BookKeeper's keys, with files in PEM form. Pure: no file is read.

The names are those of `TLSContextFactory` in BookKeeper 4.17, where a keystore in PEM form is the
file of a private key, and its certificate has a key of its own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from security.tls_rules import TlsKeyNames, TlsRules, violated_rule
from security.tls_suites import TlsChoice
from settings.kinds import Count  # noqa: TC001 - read at run time

TLS_FACTORY: Final = "org.apache.bookkeeper.tls.TLSContextFactory"
PEM: Final = "PEM"
NAMES: Final = TlsKeyNames("tlsCertificatePath", "tlsKeyStore", "tlsTrustStore",
                           "tlsClientAuthentication")  # fmt: skip
HOW_TO_CONVERT: Final = (
    "Vela reads PEM files. Make them of a keystore: keytool -importkeystore -srckeystore a.jks "
    "-destkeystore a.p12 -deststoretype PKCS12, then openssl pkcs12 -in a.p12 -out a.pem -nodes"
)


@dataclass(frozen=True, kw_only=True)
class BookieTlsConfig:
    """The keys. Paths may be `file:` URLs."""

    tlsProviderFactoryClass: str = ""
    """Empty: no TLS."""
    tlsClientAuthentication: bool = False
    """Whether clients must show a certificate that tlsTrustStore has signed. Nothing is served
    without."""
    tlsKeyStoreType: str = "JKS"
    tlsKeyStore: str = ""
    """The private key of tlsCertificatePath."""
    tlsCertificatePath: str = ""
    tlsTrustStoreType: str = "JKS"
    tlsTrustStore: str = ""
    """The authorities of clients."""
    tlsEnabledProtocols: tuple[str, ...] = ()
    tlsEnabledCipherSuites: tuple[str, ...] = ()
    tlsCertFilesRefreshDurationSeconds: Count = 300
    """How often the files are looked at; 0, BookKeeper's default: once."""


PROTECTING: Final = frozenset(BookieTlsConfig.__dataclass_fields__)


def server_tls(config: BookieTlsConfig) -> TlsRules | None:
    """The TLS of bookiePort; None: there is none."""
    if not config.tlsProviderFactoryClass:
        return None
    return TlsRules(
        certificate_path=config.tlsCertificatePath,
        key_path=config.tlsKeyStore,
        trusted_path=config.tlsTrustStore if config.tlsClientAuthentication else "",
        requires_client_certificate=config.tlsClientAuthentication,
        names=NAMES,
        choice=versions_and_suites(config),
        check_seconds=check_seconds(config),
    )


def versions_and_suites(config: BookieTlsConfig) -> TlsChoice:
    """The versions and cipher suites of bookies and their clients."""
    return TlsChoice(
        protocols=config.tlsEnabledProtocols,
        ciphers=config.tlsEnabledCipherSuites,
        protocols_key="tlsEnabledProtocols",
        ciphers_key="tlsEnabledCipherSuites",
    )


def check_seconds(config: BookieTlsConfig) -> float:
    """How often files are looked at."""
    return float(config.tlsCertFilesRefreshDurationSeconds) or math.inf


def violated_tls_rule(config: BookieTlsConfig) -> str:
    """The sentence about keys that do not fit together, or an empty one."""
    rules = server_tls(config)
    return "" if rules is None else violated_factory_rule(config) or violated_rule(rules)


def violated_factory_rule(config: BookieTlsConfig) -> str:
    """The same about the kind of TLS, and of files."""
    if config.tlsProviderFactoryClass != TLS_FACTORY:
        return (
            f"tlsProviderFactoryClass={config.tlsProviderFactoryClass} is not supported; Vela has "
            f"{TLS_FACTORY}"
        )
    return not_pem("tlsKeyStoreType", config.tlsKeyStoreType, config.tlsKeyStore) or not_pem(
        "tlsTrustStoreType", config.tlsTrustStoreType, config.tlsTrustStore
    )


def not_pem(kind_key: str, kind: str, path: str) -> str:
    """The sentence about a file of another form than PEM, or an empty one."""
    if path and kind != PEM:
        return f"{kind_key}={kind} is not supported, set {PEM}: {HOW_TO_CONVERT}"
    return ""
