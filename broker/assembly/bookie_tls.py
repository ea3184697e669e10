"""TLS from a broker to bookies: Pulsar's keys, with files in PEM form.

As in Pulsar, `bookkeeperTLSClientAuthentication=true` turns it on: the broker then requests TLS
from each bookie, and presents its certificate.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from bookie.process.tls import PEM, TLS_FACTORY, not_pem
from broker.assembly.parts import StartError
from ledgers.remote.start_tls import StartTls
from security.tls_client import TlsClientContexts
from security.tls_rules import TlsClientRules, TlsKeyNames, missing_file
from security.tls_suites import UnusableTls
from settings.kinds import Count  # noqa: TC001 - read at run time

if TYPE_CHECKING:
    from collections.abc import Callable

    from ledgers.remote.network import Connect

NAMES: Final = TlsKeyNames(
    "bookkeeperTLSCertificateFilePath",
    "bookkeeperTLSKeyFilePath",
    "bookkeeperTLSTrustCertsFilePath",
    "bookkeeperTLSClientAuthentication",
)


@dataclass(frozen=True, kw_only=True)
class BookieClientTlsConfig:
    """The keys. Paths may be `file:` URLs."""

    bookkeeperTLSProviderFactoryClass: str = TLS_FACTORY
    bookkeeperTLSClientAuthentication: bool = False
    bookkeeperTLSKeyFileType: str = PEM
    bookkeeperTLSTrustCertTypes: str = PEM
    bookkeeperTLSKeyFilePath: str = ""
    bookkeeperTLSCertificateFilePath: str = ""
    bookkeeperTLSTrustCertsFilePath: str = ""
    bookkeeperTlsCertFilesRefreshDurationSeconds: Count = 300
    bookkeeper_tlsHostnameVerificationEnabled: bool = False


PROTECTING: Final = frozenset(BookieClientTlsConfig.__dataclass_fields__)


def _rules(config: BookieClientTlsConfig) -> TlsClientRules:
    return TlsClientRules(
        names=NAMES,
        trusted_path=config.bookkeeperTLSTrustCertsFilePath,
        certificate_path=config.bookkeeperTLSCertificateFilePath,
        key_path=config.bookkeeperTLSKeyFilePath,
        verifies_host_name=config.bookkeeper_tlsHostnameVerificationEnabled,
        check_seconds=float(config.bookkeeperTlsCertFilesRefreshDurationSeconds),
    )


def secured(config: BookieClientTlsConfig) -> Callable[[Connect], Connect] | None:
    """Makes connections to bookies secure; None: they stay as they are.

    Raises: StartError: the files cannot be used.
    """
    if not config.bookkeeperTLSClientAuthentication:
        return None
    try:
        return partial(StartTls, TlsClientContexts(_rules(config)))
    except UnusableTls as error:
        raise StartError(str(error)) from None


def violated_bookie_tls_rule(config: BookieClientTlsConfig) -> str:
    """The sentence about keys that do not fit together, or an empty one. Reads no file."""
    if not config.bookkeeperTLSClientAuthentication:
        return ""
    factory = config.bookkeeperTLSProviderFactoryClass
    if factory != TLS_FACTORY:
        return (
            f"bookkeeperTLSProviderFactoryClass={factory} is not supported; Vela has {TLS_FACTORY}"
        )
    kinds = {
        "bookkeeperTLSKeyFileType": config.bookkeeperTLSKeyFileType,
        "bookkeeperTLSTrustCertTypes": config.bookkeeperTLSTrustCertTypes,
    }
    for key, kind in kinds.items():
        if violated := not_pem(key, kind, "a file"):
            return violated
    if not config.bookkeeperTLSCertificateFilePath:
        return (
            f"{NAMES.requires_certificate} needs {NAMES.certificate} and {NAMES.key}: PEM files of "
            "the certificate that is shown to bookies, and of its key"
        )
    return missing_file(_rules(config))
