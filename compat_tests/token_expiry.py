"""Stock clients over very many ends of a token of three seconds, outside CI.

    python -m compat_tests.token_expiry                     # Vela, over 1,000 ends per client
    python -m compat_tests.token_expiry --server pulsar --connections 5 --seconds 30

The Python client (with the C++ client inside), the Java client and the Go client run at the same
time, each with `--connections` connections. Every connection publishes and receives on a topic of
its own, and has its token renewed whenever the server asks (`authenticationRefreshCheckSeconds=1`).
All these clients can renew: no message may be lost or doubled, and no connection may be another
one at the end than at the start. Exit status 1 if one is.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pulsar

from compat_tests.clients.builds import go_command, java_command
from compat_tests.clients.driver import Driver
from compat_tests.guarded_servers import (
    Issuer,
    configuration,
    own_client,
    renewed_file,
    show_to,
)
from compat_tests.oracle.pulsar_server import PulsarServer
from compat_tests.oracle.vela_server import VelaServer

if TYPE_CHECKING:
    from collections.abc import Callable

    from compat_tests.oracle.comparison import Trace
    from compat_tests.oracle.server_process import ServerProcess

CONNECTIONS: Final = 20
SECONDS: Final = 215
"""A token of three seconds is asked for again after at most four: over 50 times."""
PAUSE_MILLIS: Final = 200
SETTLED_SECONDS: Final = 8.0
"""After so long, and so long before the end, it is looked which connections there are."""


@dataclass(frozen=True)
class Figures:
    """Of one client."""

    client: str
    connections: int
    renewals: int
    fewest_renewals: int
    """Of one connection."""
    sent: int
    lost_or_out_of_order: int
    doubled: int
    told_disconnected: int
    """Producers and consumers of which the client itself tells it."""
    other_connections: int
    """Producers and consumers that the server has on another connection than at the start."""

    @property
    def is_flawless(self) -> bool:
        """Whether nothing was lost, doubled or connected again."""
        return not (
            self.lost_or_out_of_order
            or self.doubled
            or self.told_disconnected
            or self.other_connections
        )


def figures_of(client: str, trace: Trace, other_connections: int) -> Figures:
    """From one event per connection: sent, received in order, received beyond that, disconnected,
    renewals."""
    rows = [row for what, row in trace if what == "connection"]
    sent, in_order, more, disconnected, renewals = (list(each) for each in zip(*rows, strict=True))
    return Figures(
        client=client,
        connections=len(rows),
        renewals=sum(renewals),
        fewest_renewals=min(renewals),
        sent=sum(sent),
        lost_or_out_of_order=sum(sent) - sum(in_order),
        doubled=sum(more),
        told_disconnected=sum(disconnected),
        other_connections=other_connections,
    )


# --- the Python client ------------------------------------------------------------------


def play_python(server: ServerProcess, issuer: Issuer, topic: str, run: dict[str, int]) -> Trace:
    """All connections, a thread each."""
    with ThreadPoolExecutor(run["connections"]) as pool:
        rows = pool.map(
            lambda number: _play_connection(server, issuer, f"{topic}-{number}", run),
            range(run["connections"]),
        )
        return [["connection", row] for row in rows]


def _play_connection(
    server: ServerProcess, issuer: Issuer, topic: str, run: dict[str, int]
) -> list[int]:
    shown = 0

    def short() -> str:
        nonlocal shown
        shown += 1
        return issuer.short()

    client = pulsar.Client(
        server.service_url,
        authentication=pulsar.AuthenticationToken(short),
        operation_timeout_seconds=20,
        logger=pulsar.FileLogger(
            pulsar.LoggerLevel.Warn, str(server.directory / "python-client.log")
        ),
    )
    try:
        consumer = client.subscribe(topic, "s")
        producer = client.create_producer(topic)
        before, sent, in_order, more = shown, 0, 0, 0
        end = time.monotonic() + run["seconds"]
        while time.monotonic() < end:
            text = str(sent).encode()
            producer.send(text)
            sent += 1
            try:
                message = consumer.receive(10_000)
            except pulsar.Timeout:
                continue
            in_order += message.data() == text
            consumer.acknowledge(message)
            time.sleep(run["pause_millis"] / 1000)
        renewals = shown - before
        try:
            while True:
                consumer.receive(700)
                more += 1
        except pulsar.Timeout:
            pass
        return [sent, in_order, more, 0, renewals]
    finally:
        client.close()


# --- the run ----------------------------------------------------------------------------


def connections_of(server: ServerProcess, client: str) -> dict[str, Any]:
    """By topic: the address and the time of the connections of producers and consumers."""
    _, names = server.http("GET", "/admin/v2/persistent/public/default")
    found: dict[str, Any] = {}
    for name in sorted(names):
        if f"/{client}-" not in name:
            continue
        _, stats = server.http("GET", "/admin/v2/" + name.replace("://", "/") + "/stats")
        all_of = [*stats["publishers"], *stats["subscriptions"]["s"]["consumers"]]
        found[name] = [(each["address"], each["connectedSince"]) for each in all_of]
    return found


def changed(before: dict[str, Any], after: dict[str, Any]) -> int:
    """How many producers and consumers are not where they were."""
    return sum(
        len(set(there) ^ set(after.get(topic, ()))) for topic, there in before.items()
    ) + sum(len(there) for topic, there in after.items() if topic not in before)


def play_all(
    server: ServerProcess, issuer: Issuer, directory: Path, run: dict[str, int]
) -> list[Figures]:
    """The three clients at once."""
    (directory / "expiries.json").write_text(json.dumps(run))
    drivers = {
        name: Driver(name, command(), directory / f"{name}.log", directory, run["seconds"] + 120.0)
        for name, command in (("java", java_command), ("go", go_command))
    }
    base = "public/default/{}-expiries"

    def of_driver(name: str) -> Callable[[], Trace]:
        return lambda: drivers[name].play("expiries", server, topic=base.format(name))

    plays: dict[str, Callable[[], Trace]] = {
        "python": lambda: play_python(server, issuer, f"persistent://{base.format('python')}", run),
        **{name: of_driver(name) for name in drivers},
    }
    looked: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {}

    def look(client: str) -> None:
        time.sleep(SETTLED_SECONDS)
        before = connections_of(server, client)
        time.sleep(max(1.0, run["seconds"] - 2 * SETTLED_SECONDS))
        looked[client] = before, connections_of(server, client)

    try:
        with renewed_file(issuer, directory), ThreadPoolExecutor(len(plays)) as pool:
            watching = [threading.Thread(target=look, args=(name,)) for name in plays]
            for thread in watching:
                thread.start()
            playing = {name: pool.submit(play) for name, play in plays.items()}
            traces = {name: future.result() for name, future in playing.items()}
            for thread in watching:
                thread.join()
    finally:
        for driver in drivers.values():
            driver.close()
    for name, (before, _) in looked.items():
        assert len(before) == run["connections"], f"{name}: {len(before)} topics at the start"
    return [figures_of(name, trace, changed(*looked[name])) for name, trace in traces.items()]


def main() -> int:
    """The exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--server", choices=("vela", "pulsar"), default="vela")
    parser.add_argument("--connections", type=int, default=CONNECTIONS, help="of each client")
    parser.add_argument("--seconds", type=int, default=SECONDS)
    parser.add_argument("--pause-millis", type=int, default=PAUSE_MILLIS)
    parser.add_argument("--json", type=Path, help="write the figures")
    given = parser.parse_args()
    issuer = Issuer("HS256")
    with tempfile.TemporaryDirectory(prefix="token-expiry-") as name:
        directory = Path(name)
        keys = configuration(issuer, directory, "")
        server: ServerProcess = (
            VelaServer(directory / "vela", keys)
            if given.server == "vela"
            else PulsarServer(directory / "pulsar", keys | own_client(issuer))
        )
        show_to(server, issuer)
        run = {
            "connections": given.connections,
            "seconds": given.seconds,
            "pause_millis": given.pause_millis,
        }
        try:
            server.start()
            found = play_all(server, issuer, directory, run)
        finally:
            server.close()
    result = {"server": given.server, **run, "clients": [asdict(each) for each in found]}
    print(json.dumps(result, indent=1))
    if given.json is not None:
        given.json.write_text(json.dumps(result, indent=1) + "\n")
    return 0 if all(each.is_flawless for each in found) else 1


if __name__ == "__main__":
    sys.exit(main())
