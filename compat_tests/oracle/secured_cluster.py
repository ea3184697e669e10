"""A cluster of this tree in which nobody is served who has not shown who it is.

ZooKeeper has TLS with certificates of clients, and its nodes belong to one user. Bookies have TLS,
and demand certificates. Brokers have no ports without TLS, reach each other with TLS and a token
from a file, and have authorization.
"""

from __future__ import annotations

import json
import os
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any

import pulsar

from compat_tests.authorized_servers import SECRET, token
from compat_tests.cluster_certificates import ClusterCertificates
from compat_tests.oracle.bookkeeper_shell import small_jvm
from compat_tests.oracle.configuration import properties
from compat_tests.oracle.distribution import TREE, pulsar_home
from compat_tests.oracle.vela_autorecovery import VelaAutorecovery
from compat_tests.oracle.vela_bookie import VelaBookie
from compat_tests.oracle.vela_broker import VelaBroker
from compat_tests.oracle.zookeeper_server import ZooKeeperServer
from runtime.testing.ports import free_ports

if TYPE_CHECKING:
    from pathlib import Path

ADMIN, BROKER, APPLICATION, STRANGER = "admin", "broker", "application", "stranger"
SESSION_MS = 4_000
REDIRECTS_MAX = 5
TOOL_SECONDS_MAX = 120.0
_BEGINS_JSON = (b"{", b"[", b'"')
_PULSAR = "org.apache.pulsar."


class SecuredBroker(VelaBroker):
    """A broker with ports for TLS only."""

    def __init__(self, directory: Path, hosts: str, keys: dict[str, object]) -> None:
        binary, web = free_ports(2)
        ports = {
            "brokerServicePort": "",
            "webServicePort": "",
            "brokerServicePortTls": binary,
            "webServicePortTls": web,
        }
        super().__init__(directory, hosts, ports | keys, (binary, web))
        self.secure_service_url = f"pulsar+ssl://127.0.0.1:{binary}"
        self.secure_web_url = f"https://127.0.0.1:{web}"


class SecuredCluster:
    """Two brokers, three bookies and autorecovery."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.certificates = certificates = ClusterCertificates(directory)
        self.access = certificates.zookeeper_access("vela", "sesame")
        self.zookeeper = ZooKeeperServer(directory / "zookeeper", tls=certificates.zookeeper_tls())
        self.hosts = f"{self.zookeeper.tls_hosts}/secured"
        of_store: dict[str, object] = {"metadataStoreConfigPath": self.access}
        own = of_store | {"zkEnableSecurity": "true"} | certificates.bookie_keys()
        self.bookies = [
            VelaBookie(directory / f"bookie-{number}", self.hosts, own) for number in range(3)
        ]
        for_clients = of_store | certificates.tool_keys()
        recovery = {key: str(value) for key, value in for_clients.items()}
        self.autorecovery = VelaAutorecovery(
            directory / "autorecovery", "vela-recovery:1", self.hosts, recovery
        )
        self.tool_configuration = directory / "tools.conf"
        self.tool_configuration.write_text(properties(for_clients))
        self.brokers = [
            SecuredBroker(directory / f"broker-{number}", self.hosts, of_store | self._of_brokers())
            for number in range(2)
        ]
        self.context = ssl.create_default_context(cadata=certificates.authority.pem.decode())

    def _of_brokers(self) -> dict[str, object]:
        certificate, key = self.certificates.broker
        secret, own = self.directory / "secret.key", self.directory / "broker.token"
        secret.write_bytes(SECRET)
        own.write_text(token(BROKER))
        return self.certificates.broker_keys() | {
            "metadataStoreSessionTimeoutMillis": SESSION_MS,
            "managedLedgerDefaultEnsembleSize": 2,
            "managedLedgerDefaultWriteQuorum": 2,
            "managedLedgerDefaultAckQuorum": 2,
            "loadBalancerReportUpdateMinIntervalMillis": 500,
            "defaultRetentionTimeInMinutes": -1,
            "defaultRetentionSizeInMB": -1,
            "tlsCertificateFilePath": certificate,
            "tlsKeyFilePath": key,
            "brokerClientTlsEnabled": "true",
            "brokerClientTrustCertsFilePath": self.certificates.trusted,
            "tlsHostnameVerificationEnabled": "true",
            "authenticationEnabled": "true",
            "authenticationProviders": f"{_PULSAR}broker.authentication."
            "AuthenticationProviderToken",
            "tokenSecretKey": f"file://{secret}",
            "brokerClientAuthenticationPlugin": f"{_PULSAR}client.impl.auth.AuthenticationToken",
            "brokerClientAuthenticationParameters": f"file://{own}",
            "authorizationEnabled": "true",
            "superUserRoles": f"{ADMIN},{BROKER}",
        }

    # --- life ---------------------------------------------------------------------------

    def start(self) -> None:
        """All of it, in order."""
        self.zookeeper.start()
        done = self.vela(
            "initialize-cluster-metadata",
            *("--cluster", "test", "--metadata-store", f"zk:{self.hosts}"),
            *("--metadata-store-config-path", self.access),
            *("--web-service-url", "http://127.0.0.1:8080"),
            *("--default-namespace-bundle-number", "4"),
        )
        assert done.returncode == 0, done.stderr
        for server in (*self.bookies, *self.brokers, self.autorecovery):
            server.start()

    def kill(self) -> None:
        """End what runs."""
        for server in (self.autorecovery, *self.brokers, *self.bookies, self.zookeeper):
            server.kill()

    def logs(self) -> str:
        """What all servers of this tree have written."""
        servers = (*self.brokers, *self.bookies, self.autorecovery)
        return "".join(each.log_path.read_text(errors="replace") for each in servers)

    # --- clients ------------------------------------------------------------------------

    def vela(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """A command of this tree."""
        return subprocess.run(
            [sys.executable, "-m", "cli", *arguments],
            cwd=TREE,
            capture_output=True,
            text=True,
            timeout=TOOL_SECONDS_MAX,
            check=False,
        )

    def client(self, role: str) -> pulsar.Client:
        """The stock client in Python; an empty role shows nothing."""
        urls = ",".join(broker.secure_service_url.partition("//")[2] for broker in self.brokers)
        return pulsar.Client(
            f"pulsar+ssl://{urls}",
            authentication=pulsar.AuthenticationToken(token(role)) if role else None,
            tls_trust_certs_file_path=self.certificates.trusted,
            tls_validate_hostname=True,
            operation_timeout_seconds=60 if role in (ADMIN, APPLICATION) else 3,
            logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error),
        )

    def pulsar_admin(self, *arguments: str) -> tuple[int, str]:
        """The stock tool, as the administrator: exit status, and what it prints."""
        path = self.directory / "client.conf"
        path.write_text(
            properties(
                {
                    "webServiceUrl": self.brokers[0].secure_web_url,
                    "tlsTrustCertsFilePath": self.certificates.trusted,
                    "tlsEnableHostnameVerification": "true",
                    "authPlugin": f"{_PULSAR}client.impl.auth.AuthenticationToken",
                    "authParams": f"token:{token(ADMIN)}",
                }
            )
        )
        done = subprocess.run(
            [str(pulsar_home() / "bin" / "pulsar-admin"), *arguments],
            env=os.environ | small_jvm(self.directory) | {"PULSAR_CLIENT_CONF": str(path)},
            cwd=self.directory,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TOOL_SECONDS_MAX,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr

    def ask(
        self, broker: SecuredBroker, method: str, path: str, body: Any = None, role: str = ADMIN
    ) -> tuple[int, Any]:
        """An HTTP request, sent on to the broker that it belongs to: status and JSON."""
        url = f"{broker.secure_web_url}{path}"
        data = None if body is None else json.dumps(body).encode()
        for _ in range(REDIRECTS_MAX):
            request = urllib.request.Request(url, data, method=method)
            request.add_header("Content-Type", "application/json")
            if role:
                request.add_header("Authorization", f"Bearer {token(role)}")
            opener = urllib.request.build_opener(
                urllib.request.HTTPSHandler(context=self.context), _NoRedirects
            )
            try:
                with opener.open(request, timeout=30) as answer:
                    status, content = answer.status, answer.read()
            except urllib.error.HTTPError as error:
                with error:
                    status, content = error.code, error.read()
                    url = error.headers.get("Location", "")
            if status != 307:
                return status, json.loads(content) if content[:1] in _BEGINS_JSON else content
        raise AssertionError(f"{method} {path} is sent around")

    def owner_of(self, topic: str, asked: SecuredBroker | None = None) -> SecuredBroker | None:
        """The broker that owns a topic; it is assigned if it has none. None: there is none now, or
        the question is sent on to a broker that has just ended."""
        asked = asked or next(broker for broker in self.brokers if broker.is_running())
        try:
            status, found = self.ask(asked, "GET", f"/lookup/v2/topic/{topic.replace('://', '/')}")
        except urllib.error.URLError:
            if not asked.is_running():
                raise
            return None
        if status != 200:
            return None
        (owner,) = (
            each for each in self.brokers if each.secure_service_url == found["brokerUrlTls"]
        )
        return owner

    def topic_on(self, broker: SecuredBroker, prefix: str) -> str:
        """The full name of a topic that this broker owns. Bundles are assigned again until it has
        some."""
        for _turn in range(20):
            for number in range(50):
                name = f"persistent://public/default/{prefix}-{number}"
                if self.owner_of(name) is broker:
                    return name
            self.ask(broker, "PUT", "/admin/v2/namespaces/public/default/unload")
        raise AssertionError(f"{broker.broker_id} owns nothing")


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_arguments: object) -> None:
        return None
