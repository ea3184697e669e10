"""Certificates of the members of a cluster, and the keys of each kind of member that name them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from security.testing.certificates import Authority
from security.tls_client_rules import TlsClientRules

if TYPE_CHECKING:
    from pathlib import Path

FACTORY = "org.apache.bookkeeper.tls.TLSContextFactory"


class ClusterCertificates:
    """Of bookies and of their clients, of one authority, for 127.0.0.1."""

    def __init__(self, directory: Path) -> None:
        self.authority = Authority("cluster")
        hosts = ("127.0.0.1", "localhost")
        self.bookie = self.authority.issue("bookie", *hosts, rsa_bits=2048).write(
            directory, "bookie"
        )
        self.broker = self.authority.issue("broker", *hosts, rsa_bits=2048).write(
            directory, "broker"
        )
        self.trusted = self.authority.write(directory)

    def bookie_keys(self) -> dict[str, object]:
        """Of a bookie of either kind, and of its clients: nobody is served without TLS."""
        certificate, key = self.bookie
        return {
            "tlsProviderFactoryClass": FACTORY,
            "tlsClientAuthentication": "true",
            "tlsCertificatePath": certificate,
            "tlsKeyStoreType": "PEM",
            "tlsKeyStore": key,
            "tlsTrustStoreType": "PEM",
            "tlsTrustStore": self.trusted,
        }

    def tool_keys(self) -> dict[str, object]:
        """Of a tool or of autorecovery: clients of bookies."""
        return self.bookie_keys() | {
            "clientKeyStoreType": "PEM",
            "clientKeyStore": self.bookie[1],
            "clientTrustStoreType": "PEM",
            "clientTrustStore": self.trusted,
        }

    def broker_keys(self) -> dict[str, object]:
        """Of a broker: TLS to bookies."""
        certificate, key = self.broker
        return {
            "bookkeeperTLSClientAuthentication": "true",
            "bookkeeperTLSCertificateFilePath": certificate,
            "bookkeeperTLSKeyFilePath": key,
            "bookkeeperTLSTrustCertsFilePath": self.trusted,
        }

    def client_rules(self) -> TlsClientRules:
        """Of a ledger client in this process."""
        certificate, key = self.broker
        return TlsClientRules(trusted_path=self.trusted, certificate_path=certificate, key_path=key)
