"""What reads of the admin API cost a neighbour: how long its publishes wait meanwhile.

Vela with 10,000 topics, one more topic with 10,000 subscriptions, each with a consumer, one whose
Shared subscription has 10,000 consumers, and one whose broadcast has 100,000. A client publishes
every 10 ms and waits for each receipt; its longest wait is given for each read. Run as

    python -m tests.admin_reads [--tree DIRECTORY] [--topics N] [--subscriptions N]
        [--consumers N] [--broadcast-consumers N]

`--tree` is another checkout whose broker is measured with this interpreter.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, final
from urllib.request import Request, urlopen

from protocol import client as wire
from protocol import pulsar_api_pb2 as pb
from tests.bad_input.raw_connection import RawConnection
from tests.server_process import TREE, ServerProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Type = pb.BaseCommand
Shared = pb.CommandSubscribe.Shared
NAMESPACE: Final = "persistent://public/default"
WIDE: Final = f"{NAMESPACE}/wide"
CROWD: Final = f"{NAMESPACE}/crowd"
BROADCAST: Final = f"{NAMESPACE}/broadcast"
PUBLISH_SECONDS: Final = 0.01
QUIET_SECONDS: Final = 5.0
KEYS: Final = {"brokerDeleteInactiveTopicsEnabled": "false", "keepAliveIntervalSeconds": 3600}
"""The topics stay, and so do the connections of consumers, which answer no PING."""
AT_ONCE: Final = 500
PATHS: Final = {
    "/metrics": "/metrics",
    "statistics of a topic": "/admin/v2/persistent/public/default/wide/stats",
    "internal statistics of a topic": "/admin/v2/persistent/public/default/wide/internalStats",
    "names of subscriptions": "/admin/v2/persistent/public/default/wide/subscriptions",
    "topics of a namespace": "/admin/v2/persistent/public/default",
    "statistics, one Shared subscription": "/admin/v2/persistent/public/default/crowd/stats",
    "statistics, one broadcast": "/admin/v2/persistent/public/default/broadcast/stats",
}


class Row(NamedTuple):
    """One read: how long the neighbour waited at most, and how long the read took."""

    name: str
    neighbour_ms: float
    took_seconds: float
    size_bytes: int


@final
class Neighbour:
    """Publishes every 10 ms on a thread; `longest` is its longest wait since `reset`, in s."""

    def __init__(self, service_url: str) -> None:
        self._connection = connected(service_url)
        self._connection.send(wire.producer(f"{NAMESPACE}/neighbour", 1, 1))
        self._connection.expect(Type.PRODUCER_SUCCESS)
        self._stop = threading.Event()
        self.longest = 0.0
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def reset(self) -> None:
        """Begin again."""
        self.longest = 0.0

    def close(self) -> None:
        """Stop."""
        self._stop.set()
        self._thread.join(60)
        self._connection.close()

    def _run(self) -> None:
        number = 0
        while not self._stop.wait(PUBLISH_SECONDS):
            started = time.perf_counter()
            self._connection.send(wire.send(1, number, wire.message(b"x", sequence_id=number)))
            self._connection.expect(Type.SEND_RECEIPT)
            self.longest = max(self.longest, time.perf_counter() - started)
            number += 1


def connected(service_url: str) -> RawConnection:
    """A connection that is ready for commands."""
    connection = RawConnection(service_url, timeout_seconds=120)
    connection.connect()
    return connection


def populate(service_url: str, options: argparse.Namespace) -> list[RawConnection]:
    """Topics with a producer each, one with many subscriptions, and two with one subscription of
    many consumers; the connections stay open."""
    topics, subscriptions = options.topics, options.subscriptions
    producing, consuming = connected(service_url), connected(service_url)
    for numbers in _portions(topics):
        for number in numbers:
            name = f"{NAMESPACE}/topic-{number:06}"
            producing.send(wire.producer(name, number, producing.request_id()))
        for _ in numbers:
            producing.expect(Type.PRODUCER_SUCCESS)
    for numbers in _portions(subscriptions):
        for number in numbers:
            name = f"subscription-{number:06}"
            consuming.send(wire.subscribe(WIDE, name, number, consuming.request_id()))
        for _ in numbers:
            consuming.expect(Type.SUCCESS)
    return [
        producing,
        consuming,
        _crowd(service_url, CROWD, options.consumers, {}),
        _crowd(service_url, BROADCAST, options.broadcast_consumers, {"vela.broadcast": "true"}),
    ]


def _crowd(service_url: str, topic: str, consumers: int, metadata: dict[str, str]) -> RawConnection:
    """One Shared subscription with many consumers on one connection."""
    connection = connected(service_url)
    for numbers in _portions(consumers):
        for number in numbers:
            request_id = connection.request_id()
            name = f"consumer-{number:06}"
            connection.send(
                wire.subscribe(
                    topic, "all", number, request_id, Shared, consumer_name=name, metadata=metadata
                )
            )
        for _ in numbers:
            connection.expect(Type.SUCCESS)
    return connection


def _portions(count: int) -> Iterator[range]:
    for start in range(0, count, AT_ONCE):
        yield range(start, min(count, start + AT_ONCE))


def read(url: str, headers: dict[str, str]) -> int:
    """Bytes of the answer."""
    size = 0
    with urlopen(Request(url, headers=headers), timeout=300) as answer:
        while data := answer.read(1 << 16):
            size += len(data)
    return size


def measure(neighbour: Neighbour, name: str, act: Callable[[], int]) -> Row:
    """One read beside the neighbour."""
    time.sleep(1)  # what came before has been answered, and is over
    neighbour.reset()
    started = time.perf_counter()
    size = act()
    took = time.perf_counter() - started
    time.sleep(0.2)  # a publish that waited is counted when it is answered
    return Row(name, neighbour.longest * 1000, took, size)


def _quiet() -> int:
    time.sleep(QUIET_SECONDS)
    return 0


def rows(server: ServerProcess, options: argparse.Namespace) -> Iterator[Row]:
    """Every read, after a time without any."""
    neighbour = Neighbour(server.service_url)
    web = f"http://127.0.0.1:{server.web_port}"
    yield measure(neighbour, "nothing", _quiet)
    for name, path in PATHS.items():
        for again in range(options.rounds):
            yield measure(
                neighbour, f"{name} ({again + 1})", lambda path=path: read(web + path, {})
            )
    gzip = {"Accept-Encoding": "gzip"}
    yield measure(neighbour, "/metrics, gzip", lambda: read(f"{web}/metrics", gzip))
    yield measure(neighbour, "the minute's update of rates", lambda: _over_a_minute(options))
    neighbour.close()


def _over_a_minute(options: argparse.Namespace) -> int:
    time.sleep(options.minute_seconds)
    return 0


def main(arguments: list[str] | None = None) -> int:
    """Measure and print a table, or JSON with `--json`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tree", type=Path, default=TREE)
    parser.add_argument("--topics", type=int, default=10_000)
    parser.add_argument("--subscriptions", type=int, default=10_000)
    parser.add_argument("--consumers", type=int, default=10_000)
    parser.add_argument("--broadcast-consumers", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--minute-seconds", type=float, default=65.0)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    vela = (
        f"{sys.executable} -m cli standalone --data-dir {{data_dir}} "
        "--broker-port {broker_port} --web-port {web_port}"
    )
    keys = " ".join(f"PULSAR_PREFIX_{key}={value}" for key, value in KEYS.items())
    command = f"sh -c {shlex.quote(f'cd {options.tree} && {keys} exec {vela}')}"
    with tempfile.TemporaryDirectory() as directory:
        server = ServerProcess(Path(directory), command)
        server.start()
        try:
            server.wait_ready(60)
            kept = populate(server.service_url, options)
            found: list[Row] = []
            for row in rows(server, options):
                found.append(row)
                if not options.json:
                    print(
                        f"{row.name:36} neighbour {row.neighbour_ms:8.1f} ms, "
                        f"took {row.took_seconds:6.2f} s, {row.size_bytes:,} bytes",
                        flush=True,
                    )
            for connection in kept:
                connection.close()
        finally:
            server.kill()
            server.wait_ended()
    if options.json:
        table: list[dict[str, Any]] = [row._asdict() for row in found]
        print(json.dumps(table, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
