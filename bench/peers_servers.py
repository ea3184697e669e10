"""NATS and Kafka as servers of a benchmark, and the programs that load them.

Both are built once for what their sources say, from modules and jars with fixed versions. Each
keeps its distribution's defaults but for what a class here names.
"""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Final

from compat_tests.clients.builds import build
from compat_tests.oracle.configuration import properties
from compat_tests.oracle.distribution import OracleAbsent, require_java
from compat_tests.oracle.server_process import ServerFailed, ServerProcess
from runtime.testing.ports import free_ports

if TYPE_CHECKING:
    from collections.abc import Sequence

PEERS: Final = Path(__file__).resolve().parent / "peers"
GO: Final = PEERS / "go"
JAVA: Final = PEERS / "java"
KAFKA: Final = PEERS / "kafka"
LOAD_HEAP: Final = ("-Xms1g", "-Xmx1g", "-XX:+UseParallelGC")
KAFKA_HEAP: Final = (
    "-Xms1g",
    "-Xmx1g",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
)
"""As the scripts of its distribution start it."""
_LOG: Final = "-Dorg.slf4j.simpleLogger.defaultLogLevel"
FORMAT_SECONDS_MAX: Final = 120.0
CLUSTER_ID: Final = "AAAAAAAAAAAAAAAAAAAAAA"
KAFKA_CONFIGURATION: Final = {
    "process.roles": "broker,controller",
    "node.id": 1,
    "controller.listener.names": "CONTROLLER",
    "num.network.threads": 3,
    "num.io.threads": 8,
    "num.partitions": 1,
    "offsets.topic.replication.factor": 1,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
    # Space of deleted topics comes back soon, and a server that was stopped is not fenced.
    "file.delete.delay.ms": 1000,
    "broker.session.timeout.ms": 86_400_000,
}
"""The first ones as in its own `config/server.properties`."""


def versions(go_module: str, kafka_pom: str) -> dict[str, str]:
    """What the page names, of the texts of go.mod and pom.xml."""

    def of(pattern: str, text: str) -> str:
        found = re.search(pattern, text)
        assert found is not None, pattern
        return found[1]

    return {
        "nats-server": of(r"nats-server/v2 v(\S+)", go_module),
        "nats.go": of(r"nats\.go v(\S+)", go_module),
        "Kafka": of(r"<kafka\.version>([^<]+)", kafka_pom),
    }


def versions_built() -> dict[str, str]:
    """Those of this tree."""
    return versions((GO / "go.mod").read_text(), (KAFKA / "pom.xml").read_text())


def build_go() -> None:
    """The server of NATS and its load. Raises: OracleAbsent, RuntimeError."""
    go = _tool("go", "builds NATS and its load")
    sources = [GO / "go.mod", GO / "go.sum", GO / "main.go"]
    for name, package in (("load", "."), ("nats-server", "github.com/nats-io/nats-server/v2")):
        build([go, "build", "-o", f"bin/{name}", package], GO, sources, GO / "bin" / f"{name}.of")


def build_kafka() -> None:
    """Its jars. Raises: OracleAbsent, RuntimeError."""
    _build_jars(KAFKA, [])


def build_java() -> None:
    """The load on Kafka, Pulsar and Vela. Raises: OracleAbsent, RuntimeError."""
    _build_jars(JAVA, ["compile"])


def _build_jars(place: Path, goals: list[str]) -> None:
    require_java()
    maven = _tool("mvn", "fetches Kafka and builds its load")
    sources = [place / "pom.xml", *sorted(place.glob("src/**/*.java"))]
    copy = ["dependency:copy-dependencies", "-DoutputDirectory=target/lib"]
    build([maven, "-q", "-B", *goals, *copy], place, sources, place / "target" / "built-from")


def go_load() -> Sequence[str]:
    """The command of the program; `build_go` has made it."""
    return [str(GO / "bin" / "load")]


def java_load() -> Sequence[str]:
    """The command of the program; `build_java` has made it."""
    path = f"{JAVA / 'target' / 'classes'}:{JAVA / 'target' / 'lib'}/*"
    return ["java", *LOAD_HEAP, f"{_LOG}=error", "-cp", path, "vela.peers.Load"]


def _tool(name: str, what_for: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise OracleAbsent(f"no `{name}` on the path: it {what_for}")
    return found


class NatsServer(ServerProcess):
    """JetStream with a sync before each receipt; its core stores nothing."""

    name = "nats"

    def __init__(self, directory: Path) -> None:
        port, monitor = free_ports(2)
        super().__init__(directory, port, monitor)
        self._configuration_path = directory / "nats.conf"
        self._configuration_path.write_text(
            f"host: 127.0.0.1\nport: {port}\n"
            f"jetstream {{\n  store_dir: {directory / 'jetstream'}\n  sync_interval: always\n}}\n"
        )

    @property
    def service_url(self) -> str:
        return f"nats://127.0.0.1:{self.broker_port}"

    def command(self) -> list[str]:
        return [str(GO / "bin" / "nats-server"), "-c", str(self._configuration_path)]

    def environment(self) -> dict[str, str]:
        return {}

    def working_directory(self) -> Path:
        return self.directory

    def is_ready(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.broker_port), timeout=2.0) as peer:
                return peer.recv(4) == b"INFO"
        except OSError:
            return False


class KafkaServer(ServerProcess):
    """One broker that is its own controller."""

    name = "kafka"

    def __init__(self, directory: Path) -> None:
        port, controller = free_ports(2)
        super().__init__(directory, port, 0)
        self._configuration_path = directory / "server.properties"
        listeners = f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}"
        self._configuration_path.write_text(
            properties(
                {
                    **KAFKA_CONFIGURATION,
                    "listeners": listeners,
                    "advertised.listeners": listeners,
                    "controller.quorum.bootstrap.servers": f"127.0.0.1:{controller}",
                    "log.dirs": directory / "data",
                }
            )
        )

    @property
    def service_url(self) -> str:
        return f"127.0.0.1:{self.broker_port}"

    def start(self) -> None:
        """Format its directory first. Raises: ServerFailed."""
        if not (self.directory / "data").is_dir():
            self._format()
        super().start()

    def _format(self) -> None:
        wanted = ["format", "--standalone", "-t", CLUSTER_ID, "-c", str(self._configuration_path)]
        ran = subprocess.run(
            [*self._java(), "kafka.tools.StorageTool", *wanted],
            capture_output=True,
            text=True,
            timeout=FORMAT_SECONDS_MAX,
            check=False,
        )
        if ran.returncode:
            raise ServerFailed(f"Kafka could not format its directory: {ran.stdout}{ran.stderr}")

    def _java(self) -> list[str]:
        return ["java", *KAFKA_HEAP, f"{_LOG}=warn", "-cp", f"{KAFKA / 'target' / 'lib'}/*"]

    def command(self) -> list[str]:
        return [*self._java(), "kafka.Kafka", str(self._configuration_path)]

    def environment(self) -> dict[str, str]:
        return {}

    def working_directory(self) -> Path:
        return self.directory

    def is_ready(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.broker_port), timeout=2.0).close()
        except OSError:
            return False
        return True
