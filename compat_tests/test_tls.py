"""Stock clients over TLS see the same on both servers: the Python client, the Java client and
administrator of the distribution, and bare handshakes.

Two pairs of servers: one asks clients for a certificate, the other requires one.
"""

from __future__ import annotations

import json
import os
import socket
import ssl
import subprocess
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pulsar
import pytest

from compat_tests.oracle.comparison import play_on_all
from compat_tests.oracle.configuration import properties
from compat_tests.oracle.distribution import pulsar_home
from compat_tests.oracle.vela_server import VelaServer
from compat_tests.oracle_differences import what_differs
from compat_tests.servers import oracle, start_all, wanted
from runtime.testing.ports import free_ports
from security.testing.certificates import Authority

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from compat_tests.oracle.comparison import Trace
    from compat_tests.oracle.server_process import ServerProcess
    from compat_tests.servers import Servers

OPERATION_SECONDS = 6
TOOL_SECONDS_MAX = 120.0
HOST = "127.0.0.1"
CLUSTER_URLS = ("serviceUrl", "serviceUrlTls", "brokerServiceUrl", "brokerServiceUrlTls")
SMALL_JVM = {"PULSAR_MEM": "-Xms32m -Xmx256m", "PULSAR_EXTRA_OPTS": "-XX:TieredStopAtLevel=1"}


@dataclass(frozen=True)
class Files:
    """Paths of PEM files."""

    authority: str
    stranger: str
    server: tuple[str, str]
    """Of a certificate for 127.0.0.1 and not for localhost, signed by an intermediate authority."""
    client: tuple[str, str]
    foreign_client: tuple[str, str]
    """Signed by somebody whom the servers do not know."""
    expired_client: tuple[str, str]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    directory = tmp_path_factory.mktemp("certificates")
    root, stranger = Authority("root"), Authority("stranger")
    middle = Authority("middle", root)
    return Files(
        authority=root.write(directory),
        stranger=stranger.write(directory, "stranger"),
        server=middle.issue("broker", HOST, rsa_bits=2048).write(directory, "server"),
        client=root.issue("admin", rsa_bits=2048).write(directory, "client"),
        foreign_client=stranger.issue("admin", rsa_bits=2048).write(directory, "foreign"),
        expired_client=root.issue("admin", days=-2, rsa_bits=2048).write(directory, "expired"),
    )


@dataclass(frozen=True)
class Place:
    """One server with TLS."""

    server: ServerProcess
    files: Files
    mark: str

    def port(self, key: str) -> int:
        return int(self.server.configuration[key])

    @property
    def binary(self) -> str:
        return f"pulsar+ssl://{HOST}:{self.port('brokerServicePortTls')}"

    @property
    def web(self) -> str:
        return f"https://{HOST}:{self.port('webServicePortTls')}"

    def topic(self, name: str) -> str:
        return f"persistent://public/default/{name}{self.mark}"

    def plain(self, text: str) -> str:
        """A text without the numbers of ports."""
        numbers = {
            "PORT": self.server.broker_port,
            "WEB": self.server.web_port,
            "PORT-TLS": self.port("brokerServicePortTls"),
            "WEB-TLS": self.port("webServicePortTls"),
        }
        for name, number in numbers.items():
            text = text.replace(f":{number}", f":{name}")
        return text


def started(directory: Path, config: pytest.Config, files: Files, **more: str) -> Iterator[Servers]:
    def keys() -> dict[str, str]:
        binary, web = free_ports(2)
        return {
            "brokerServicePortTls": str(binary),
            "webServicePortTls": str(web),
            "tlsCertificateFilePath": files.server[0],
            "tlsKeyFilePath": files.server[1],
            "tlsTrustCertsFilePath": files.authority,
            **more,
        }

    chosen = wanted(config)
    servers: dict[str, ServerProcess] = {}
    if chosen.vela:
        servers["vela"] = VelaServer(directory / "vela", keys())
    for release in chosen.releases:
        servers[release.name] = oracle(directory, release, keys())
    start_all(servers)
    try:
        yield servers
    finally:
        for server in servers.values():
            server.close()


@pytest.fixture(scope="module")
def asking(
    tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config, files: Files
) -> Iterator[Servers]:
    """Clients may show a certificate."""
    yield from started(tmp_path_factory.mktemp("asking"), pytestconfig, files)


@pytest.fixture(scope="module")
def requiring(
    tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config, files: Files
) -> Iterator[Servers]:
    """Clients have to."""
    directory = tmp_path_factory.mktemp("requiring")
    keys = {
        "tlsRequireTrustedClientCertOnConnect": "true",
        # Pulsar's own client of its broker has no certificate by default.
        "brokerClientTlsEnabled": "false",
    }
    yield from started(directory, pytestconfig, files, **keys)


def compare(servers: Servers, files: Files, what: str, play: Callable[[Place], Trace]) -> None:
    """`what`: the scenario's name in the list of differences."""
    outcomes = play_on_all(servers, lambda server, mark: play(Place(server, files, mark)))
    for name, outcome in outcomes.items():
        print(name, json.dumps(outcome.trace, indent=1), outcome.failure or "")
    told = what_differs("tls", what, outcomes)
    if told:
        pytest.fail("\n".join(told), pytrace=False)


# --- the Python client --------------------------------------------------------------------------


def seen_by_python(
    place: Place,
    url: str,
    topic: str,
    *,
    authority: str | None = None,
    credentials: tuple[str, str] | None = None,
    verifies_host: bool = True,
    payloads: tuple[bytes, ...] = (b"hello",),
) -> Trace:
    """Publish and receive; the contents, or the kind of the error."""
    client = pulsar.Client(
        url,
        tls_trust_certs_file_path=authority or place.files.authority,
        tls_validate_hostname=verifies_host,
        authentication=pulsar.AuthenticationTLS(*credentials) if credentials else None,
        operation_timeout_seconds=OPERATION_SECONDS,
        connection_timeout_ms=5_000,
        logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, os.devnull),
    )
    try:
        consumer = client.subscribe(place.topic(topic), "s")
        producer = client.create_producer(place.topic(topic))
        for payload in payloads:
            producer.send(payload)
        got = [consumer.receive(20_000) for _ in payloads]
        for message in got:
            consumer.acknowledge(message)
        return [[len(each.data()), each.data()[:8].decode()] for each in got]
    except pulsar.PulsarException as error:
        return [type(error).__name__]
    finally:
        client.close()


def test_python_publishes_and_receives(asking: Servers, files: Files) -> None:
    sizes = (1, 1_000, 16_384, 70_000, 4_000_000)
    payloads = tuple(b"%d" % number * size for number, size in enumerate(sizes))

    def play(place: Place) -> Trace:
        return [
            ["by pulsar+ssl", seen_by_python(place, place.binary, "p1", payloads=payloads)],
            ["by https", seen_by_python(place, place.web, "p2", payloads=payloads)],
            [
                "with a certificate",
                seen_by_python(place, place.binary, "p3", credentials=files.client),
            ],
        ]

    compare(asking, files, "python", play)


def test_python_is_refused_or_refuses(asking: Servers, files: Files) -> None:
    def play(place: Place) -> Trace:
        other_name = place.binary.replace(HOST, "localhost")
        foreign, expired = files.foreign_client, files.expired_client
        return [
            ["wrong CA", seen_by_python(place, place.binary, "r1", authority=files.stranger)],
            ["wrong CA, https", seen_by_python(place, place.web, "r2", authority=files.stranger)],
            ["host name", seen_by_python(place, other_name, "r3")],
            ["host name, unverified", seen_by_python(place, other_name, "r4", verifies_host=False)],
            ["foreign certificate", seen_by_python(place, place.binary, "r5", credentials=foreign)],
            ["expired certificate", seen_by_python(place, place.binary, "r6", credentials=expired)],
        ]

    compare(asking, files, "python-refused", play)


def test_python_needs_a_certificate_where_one_is_required(requiring: Servers, files: Files) -> None:
    def play(place: Place) -> Trace:
        own, foreign = files.client, files.foreign_client
        return [
            ["none", seen_by_python(place, place.binary, "q1")],
            ["none, https", seen_by_python(place, place.web, "q2")],
            ["its own", seen_by_python(place, place.binary, "q3", credentials=own)],
            ["its own, https", seen_by_python(place, place.web, "q4", credentials=own)],
            ["foreign", seen_by_python(place, place.binary, "q5", credentials=foreign)],
        ]

    compare(requiring, files, "python-required", play)


# --- the Java client and administrator ----------------------------------------------------------


class Tools:
    """The distribution's command line tools, with a client.conf of their own."""

    def __init__(self, place: Place, directory: Path) -> None:
        self._place = place
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True)

    def run(self, tool: str, *arguments: str, **keys: str) -> tuple[int, str]:
        """Exit status and output."""
        place = self._place
        path = self._directory / f"client-{len(os.listdir(self._directory))}.conf"
        given = {
            "webServiceUrl": place.web,
            "brokerServiceUrl": place.binary,
            "tlsTrustCertsFilePath": place.files.authority,
            "tlsEnableHostnameVerification": "true",
            **keys,
        }
        path.write_text(properties(given))
        done = subprocess.run(
            [str(pulsar_home() / "bin" / tool), *arguments],
            env=os.environ
            | SMALL_JVM
            | {"PULSAR_CLIENT_CONF": str(path), "PULSAR_LOG_DIR": str(self._directory)},
            cwd=self._directory,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=TOOL_SECONDS_MAX,
            check=False,
        )
        return done.returncode, done.stdout.decode(errors="replace")

    def seen(self, topic: str, **keys: str) -> Trace:
        """A message is published and received."""
        name = self._place.topic(topic)
        sent, _ = self.run("pulsar-client", "produce", name, "-m", "hello", "-n", "3", **keys)
        if sent:
            return ["cannot publish"]
        consume = ("consume", "-s", "s", "-n", "3", "-p", "Earliest", name)
        status, printed = self.run("pulsar-client", *consume, **keys)
        return [status, printed.count("content:hello")]

    def administers(self, **keys: str) -> Trace:
        """Health, and where the cluster is."""
        status, printed = self.run("pulsar-admin", "brokers", "healthcheck", **keys)
        return [status, printed.strip() if not status else ""]


def with_certificate(credentials: tuple[str, str]) -> Mapping[str, str]:
    """Keys of client.conf."""
    return {
        "authPlugin": "org.apache.pulsar.client.impl.auth.AuthenticationTls",
        "authParams": f"tlsCertFile:{credentials[0]},tlsKeyFile:{credentials[1]}",
    }


@pytest.mark.slow
def test_java_publishes_receives_and_administers(
    asking: Servers, files: Files, tmp_path: Path
) -> None:
    def play(place: Place) -> Trace:
        tools = Tools(place, tmp_path / place.server.name)
        own = with_certificate(files.client)
        return [
            ["by pulsar+ssl", tools.seen("j1")],
            ["by https", tools.seen("j2", brokerServiceUrl=place.web)],
            ["with a certificate", tools.seen("j3", **own)],
            ["administrator", tools.administers()],
            ["administrator with a certificate", tools.administers(**own)],
        ]

    compare(asking, files, "java", play)


@pytest.mark.slow
def test_java_is_refused_or_refuses(asking: Servers, files: Files, tmp_path: Path) -> None:
    def play(place: Place) -> Trace:
        tools = Tools(place, tmp_path / place.server.name)
        foreign = with_certificate(files.foreign_client)
        other_web = place.web.replace(HOST, "localhost")
        return [
            ["wrong CA", tools.administers(tlsTrustCertsFilePath=files.stranger)],
            ["host name", tools.administers(webServiceUrl=other_web)],
            [
                "host name, unverified",
                tools.administers(webServiceUrl=other_web, tlsEnableHostnameVerification="false"),
            ],
            # Not by https: there Java's client is told which authorities Pulsar trusts, and then
            # shows no certificate of another (docs/security.md).
            ["foreign certificate, pulsar+ssl", tools.seen("k1", **foreign)],
        ]

    compare(asking, files, "java-refused", play)


def test_java_needs_a_certificate_where_one_is_required(
    requiring: Servers, files: Files, tmp_path: Path
) -> None:
    def play(place: Place) -> Trace:
        tools = Tools(place, tmp_path / place.server.name)
        own = with_certificate(files.client)
        return [
            ["none", tools.administers()],
            ["its own", tools.administers(**own)],
            ["its own, pulsar+ssl", tools.seen("l1", **own)],
        ]

    compare(requiring, files, "java-required", play)


# --- bare handshakes and requests ---------------------------------------------------------------


def shaken(place: Place, port: int, version: ssl.TLSVersion, **options: Any) -> str:
    """The version that was agreed on, or that it failed."""
    context = ssl.create_default_context(cafile=place.files.authority)
    context.minimum_version = context.maximum_version = version
    if "ciphers" in options:
        context.set_ciphers(options["ciphers"])
    try:
        with (
            socket.create_connection((HOST, port), 10) as plain,
            context.wrap_socket(plain, server_hostname=HOST) as secure,
        ):
            return str(secure.version())
    except (ssl.SSLError, ConnectionError):
        return "refused"


def ends_plain_text(port: int, data: bytes) -> bool:
    """Whether the server ends a connection that does not speak TLS."""
    with socket.create_connection((HOST, port), 10) as plain:
        plain.sendall(data)
        try:
            while plain.recv(4_096):
                pass
        except ConnectionError:
            pass
        except TimeoutError:
            return False
    return True


def asked(place: Place, path: str) -> Any:
    """The JSON of an answer by https."""
    context = ssl.create_default_context(cafile=place.files.authority)
    try:
        with urllib.request.urlopen(f"{place.web}{path}", timeout=20, context=context) as answer:
            return json.loads(place.plain(answer.read().decode()))
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def test_handshakes_and_requests(asking: Servers, files: Files) -> None:
    def play(place: Place) -> Trace:
        trace: Trace = []
        for key in ("brokerServicePortTls", "webServicePortTls"):
            port = place.port(key)
            trace += [
                [key, name, shaken(place, port, getattr(ssl.TLSVersion, name))]
                for name in ("TLSv1_2", "TLSv1_3")
            ]
            trace.append([key, "HTTP", ends_plain_text(port, b"GET / HTTP/1.1\r\n\r\n")])
            connect = bytes.fromhex("0000000c0000000808021204") + b"abcd"
            trace.append([key, "a frame", ends_plain_text(port, connect)])
        place.server.http("PUT", "/admin/v2/persistent/public/default/looked-up")
        path = "/lookup/v2/topic/persistent/public/default/looked-up"
        trace.append(["lookup", asked(place, path)])
        cluster = asked(place, "/admin/v2/clusters/standalone")
        trace.append(["cluster", {key: cluster.get(key) for key in CLUSTER_URLS}])
        trace.append(["brokers", asked(place, "/admin/v2/brokers/standalone")])
        trace.append(["leader", asked(place, "/admin/v2/brokers/leaderBroker")])
        return trace

    compare(asking, files, "handshakes", play)
