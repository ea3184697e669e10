"""Certificates of the members of a cluster, and the keys of each kind of member that name them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from security.testing.certificates import Authority
from security.tls_rules import TlsClientRules

if TYPE_CHECKING:
    from pathlib import Path

FACTORY = "org.apache.bookkeeper.tls.TLSContextFactory"


class ClusterCertificates:
    """Of bookies and of their clients, of one authority, for 127.0.0.1."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
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

    def zookeeper_tls(self) -> tuple[str, str]:
        """Of a ZooKeeper server: its certificate with its key, and the authorities of clients."""
        return self._both("zookeeper"), self.trusted

    def zookeeper_access(self, user: str, password: str, *, tls: bool = True) -> str:
        """The path of a file for clients of ZooKeeper."""
        lines = {}
        if tls:
            lines = {
                "zookeeper.client.secure": "true",
                "zookeeper.ssl.keyStore.location": self._both("client"),
                "zookeeper.ssl.trustStore.location": self.trusted,
            }
        if user:
            lines |= {
                "vela.zookeeper.digest.username": user,
                "vela.zookeeper.digest.password": password,
            }
        path = self.directory / f"zookeeper-client-{user or 'nobody'}-{tls}.conf"
        path.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
        return str(path)

    def _both(self, name: str) -> str:
        """The path of a file with a certificate and its key."""
        made = self.authority.issue(name, "127.0.0.1", "localhost", rsa_bits=2048)
        path = self.directory / f"{name}.pem"
        path.write_bytes(made.chain_pem + made.key_pem())
        return str(path)

    def client_rules(self) -> TlsClientRules:
        """Of a ledger client in this process."""
        certificate, key = self.broker
        return TlsClientRules(trusted_path=self.trusted, certificate_path=certificate, key_path=key)
