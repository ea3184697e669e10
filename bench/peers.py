"""`python -m bench.peers`: Vela beside NATS, Kafka and Pulsar.

All servers stay up, warm, and stopped by SIGSTOP but for the one that is measured. The peers of a
table take turns from round to round. Every round is written to the JSON file at once.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import time
from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from bench import fanout, oracle, peers_servers
from bench.disk_room import NoRoom, disk_of, shortage, used_bytes
from bench.fanout_report import USUAL_LOAD, Row
from bench.measurement import BrokerMeter, write_out
from bench.peers_report import (
    CONNECTIONS,
    FANOUT_CONSUMERS,
    FULL_SPEED,
    LOADS,
    MESSAGE_BYTES,
    PACED,
    PACED_RATE,
    PEERS,
    Peer,
    delivered,
    document,
    of_vela_fanout,
    published,
    table,
)
from bench.perf_client import PerfFailed
from bench.results import Origin, Results
from bench.rounds import Rounds, run_and_report, tell, wanted_scenarios
from bench.scenarios import is_warm
from bench.session import DISK_CONFIGURATION, RoundFailed, new_server, wait_freed
from bench.tree import QUICK_OUTPUT, commit, how_vela_runs, machine
from bench.victim import MeasureFailed, Program
from compat_tests.oracle.distribution import PULSAR_VERSION, OracleAbsent
from compat_tests.oracle.server_process import ServerFailed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from bench.fanout_report import Load
    from bench.results import Figures
    from compat_tests.oracle.server_process import ServerProcess

WARM_UP: Final = {"vela": "vela", "pulsar": "pulsar", "nats": "jetstream", "kafka": "kafka"}
"""Server -> the peer whose load warms it up."""
WARM_UP_WINDOWS_MAX: Final = 5
WINDOWS_BEFORE: Final = 2
"""In the first the client warms up, in the second it gets into its stride."""
LINE_SECONDS_MAX: Final = 180.0
READY_SECONDS_MAX: Final = 30.0
END_SECONDS_MAX: Final = 60.0
POLL_SECONDS: Final = 0.1
_numbers = count()


class LoadProgram(Program):
    """The Go or the Java program."""

    def figures(self) -> dict[str, float]:
        """Of its next line. Raises: MeasureFailed."""
        told: dict[str, float] = json.loads(self.line(LINE_SECONDS_MAX))
        return told

    def end(self) -> None:
        """End its input; it deletes its topic. Raises: MeasureFailed."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            code = self._process.wait(END_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            raise MeasureFailed("the program does not end") from None
        if code:
            raise MeasureFailed(f"the program ended with {code}")


class Session:
    """The servers of a run."""

    def __init__(self, directory: Path, *, quick: bool) -> None:
        self._directory = directory
        self._quick = quick
        self._window_seconds = 2.0 if quick else 5.0
        self._windows = 1 if quick else 2
        self._servers: dict[str, ServerProcess] = {}

    def start(self, names: Sequence[str]) -> None:
        """Start and warm up; each is stopped by SIGSTOP then. Raises: ServerFailed, NoRoom."""
        for name in names:
            self._bring_up(name)

    def close(self) -> None:
        """kill -9."""
        for server in self._servers.values():
            server.kill()

    def measure(self, peer: Peer, load: str) -> Figures:
        """One round. Raises: RoundFailed, ServerFailed, NoRoom."""
        server = self._servers[peer.server]
        server.resume()
        try:
            _wait_ready(server)
            figures = self._figures(peer, server, load)
        except (MeasureFailed, PerfFailed, fanout.RoundFailed, NoRoom) as failure:
            self._replace(peer.server)
            raise RoundFailed(str(failure)) from failure
        wait_freed(server, tell)
        server.pause()
        write_out()
        return figures

    def _figures(self, peer: Peer, server: ServerProcess, load: str) -> Figures:
        if load == FULL_SPEED:
            return self._publish(peer, server, 0, batched=True)
        if load == PACED:
            return self._publish(peer, server, PACED_RATE, batched=False)
        fanned_out = fanout.QUICK_LOAD if self._quick else USUAL_LOAD
        consumers = FANOUT_CONSUMERS[peer.name] // (10 if self._quick else 1)
        if peer.name == "vela":
            row = Row("vela", "broadcast", consumers, CONNECTIONS, 1, load=fanned_out)
            return of_vela_fanout(consumers, fanout.measure(row, server, self._directory))
        return _fan_out(peer, server, consumers, fanned_out)

    def _publish(self, peer: Peer, server: ServerProcess, rate: int, *, batched: bool) -> Figures:
        seconds = self._window_seconds
        with (
            _publishing(peer, server, rate, seconds, batched=batched) as program,
            BrokerMeter(server) as meter,
        ):
            for _ in range(WINDOWS_BEFORE):
                windows = [program.figures()]
            cpu_before = server.cpu_seconds()
            for _ in range(self._windows):
                windows.append(program.figures())
                self._look(server)
            spent = server.cpu_seconds() - cpu_before
        resident = max(meter.resident_mebibytes_max, server.resident_bytes() / 2**20)
        return published(windows, spent, resident)

    def _bring_up(self, name: str) -> None:
        server = self._servers[name] = _new_server(name, self._directory)
        server.start()
        if not self._quick:
            begun = time.monotonic()
            for rate, batched in ((0, True), (PACED_RATE, False)):
                try:
                    self._warm_up(server, rate, batched=batched)
                except MeasureFailed as failure:
                    raise ServerFailed(f"{name} could not be warmed up: {failure}") from failure
            tell(f"{name} is warm after {time.monotonic() - begun:.0f} s of load")
        wait_freed(server, tell)
        server.pause()
        write_out()

    def _warm_up(self, server: ServerProcess, rate: int, *, batched: bool) -> None:
        peer = PEERS[WARM_UP[server.name]]
        with _publishing(peer, server, rate, self._window_seconds, batched=batched) as program:
            rates: list[float] = []
            messages = program.figures()["messages"]
            while not is_warm(rates) and len(rates) < WARM_UP_WINDOWS_MAX:
                now = program.figures()["messages"]
                rates.append(now - messages)
                messages = now
                self._look(server)

    def _look(self, server: ServerProcess) -> None:
        short = shortage(disk_of(self._directory), server.name, used_bytes(server))
        if short is not None:
            raise NoRoom(short)

    def _replace(self, name: str) -> None:
        """With an empty directory."""
        server = self._servers[name]
        server.kill()
        shutil.rmtree(server.directory, ignore_errors=True)
        tell(f"{name} is started again, with an empty directory")
        self._bring_up(name)


def _new_server(name: str, directory: Path) -> ServerProcess:
    if name == "nats":
        return peers_servers.NatsServer(directory / name)
    if name == "kafka":
        return peers_servers.KafkaServer(directory / name)
    return new_server(name, directory, DISK_CONFIGURATION)


def _wait_ready(server: ServerProcess) -> None:
    """Until one that was stopped answers."""
    deadline = time.monotonic() + READY_SECONDS_MAX
    while not server.is_ready():
        if not server.is_running() or time.monotonic() > deadline:
            raise MeasureFailed(f"{server.name} does not answer:\n{server.log_tail()}")
        time.sleep(POLL_SECONDS)


@contextmanager
def _publishing(
    peer: Peer, server: ServerProcess, rate: int, window_seconds: float, *, batched: bool
) -> Iterator[LoadProgram]:
    """A program that publishes to a new topic, which is deleted at the end."""
    topic = f"bench-{peer.name}-{next(_numbers)}"
    numbers = [str(MESSAGE_BYTES), str(rate)]
    if peer.server == "nats":
        arguments = ["publish", server.service_url, topic, *numbers, str(window_seconds)]
        program = LoadProgram(*arguments, command=peers_servers.go_load())
    else:
        make = "kafka" if peer.server == "kafka" else "pulsar"
        arguments = ["publish", make, server.service_url, topic, *numbers]
        arguments += ["batched" if batched else "unbatched", str(window_seconds)]
        arguments += ["flush"] if peer.name == "kafka-flush" else []
        program = LoadProgram(*arguments, command=peers_servers.java_load())
    try:
        yield program
        program.end()
    finally:
        program.close()
    if peer.server in ("vela", "pulsar"):
        path = f"/admin/v2/persistent/public/default/{topic}?force=true"
        status, answer = server.http("DELETE", path, timeout_seconds=60.0)
        if status not in (204, 404):
            tell(f"{server.name} did not delete {topic}: {status} {answer}")


def _fan_out(peer: Peer, server: ServerProcess, consumers: int, load: Load) -> Figures:
    topic = f"bench-{peer.name}-{next(_numbers)}"
    numbers = [str(load.messages), str(load.size_bytes)]
    if peer.server == "nats":
        kind = "core" if peer.name == "nats-core" else "jetstream"
        arguments = ["fanout", server.service_url, topic, kind, str(consumers), str(CONNECTIONS)]
        program = LoadProgram(*arguments, *numbers, command=peers_servers.go_load())
    else:
        arguments = ["fanout", server.service_url, topic, str(consumers)]
        program = LoadProgram(*arguments, *numbers, command=peers_servers.java_load())
    try:
        with BrokerMeter(server) as meter:
            subscribed = program.figures()["subscribed s"]
            program.tell("warm up")
            program.figures()
            cpu_before = server.cpu_seconds()
            program.tell("measure")
            line = program.figures()
            spent = server.cpu_seconds() - cpu_before
        resident = max(meter.resident_mebibytes_max, server.resident_bytes() / 2**20)
        program.end()
    finally:
        program.close()
    return delivered(consumers, subscribed, line, spent, resident)


def _built() -> dict[str, str]:
    """Build all there is; server -> why it cannot be had.

    Raises: OracleAbsent: Vela itself cannot be measured without the program that loads it."""
    peers_servers.build_java()
    absent = {}
    for name, make in (
        ("nats", peers_servers.build_go),
        ("kafka", peers_servers.build_kafka),
        ("pulsar", oracle.chosen().fetch),
    ):
        try:
            make()
        except (OracleAbsent, RuntimeError) as why:
            absent[name] = " ".join(str(why).split())[:300]
            tell(f"{name} is left out: {absent[name]}")
    return absent


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.peers")
    parser.add_argument("--rounds", type=int, default=3, help="of each load and peer (3)")
    parser.add_argument("--only", nargs="+", metavar="TEXT", help="loads with this in the name")
    parser.add_argument("--peers", nargs="+", choices=PEERS, default=list(PEERS), help="only these")
    parser.add_argument(
        "--resume", action="store_true", help="go on with what this commit has begun to measure"
    )
    parser.add_argument(
        "--quick", action="store_true", help=f"one short round, no warm-up; into {QUICK_OUTPUT}"
    )
    parser.add_argument("--report", action="store_true", help="write the page again, and end")
    options = oracle.parsed(parser)
    if options.quick:
        options.rounds = 1
    return options


def _about() -> dict[str, Any]:
    own = {"Pulsar": oracle.chosen().version, "Pulsar's client": PULSAR_VERSION}
    return {"machine": machine(), "versions": own | peers_servers.versions_built()}


def _measure(
    wanted: list[str], directory: Path, results: Results, options: argparse.Namespace
) -> bool:
    """Whether each load has all its rounds."""
    absent = _built()
    vela = how_vela_runs()
    session = Session(directory, quick=options.quick)
    runs = []
    for load in wanted:
        peers = tuple(name for name in LOADS[load].peers if PEERS[name].server not in absent)
        names = [name for name in peers if name in options.peers]
        origin = Origin(commit(), vela, options.rounds, peers)
        rounds = Rounds(
            results, origin, names, lambda: results.save(absent=absent, **_about()), options.resume
        )
        runs += [(each, rounds) for each in rounds.left([load])]
    needed = {PEERS[name].server for _, rounds in runs for name in rounds.names}
    complete = True
    try:
        session.start([name for name in WARM_UP if name in needed])
        for load, rounds in runs:
            complete &= rounds.scenario(
                load, lambda name, _, load=load: session.measure(PEERS[name], load)
            )
    finally:
        session.close()
    return complete


def _write_report(results: Results) -> None:
    records = results.shown()
    if not records:
        print("nothing was measured, nothing is written")
        return
    written = json.loads(results.path.read_text())
    absent = written["absent"]
    path = results.path.with_suffix(".md")
    path.write_text(document(records, absent, written))
    for name in LOADS:
        print(f"\n{name}\n\n{table(name, records.get(name), absent)}")
    print(f"\nwritten: {path}\nwritten: {results.path}")


def main() -> int:
    """Run, print the tables, write the files; 1 when something could not be measured."""
    options = _arguments()
    output = oracle.output(options)
    results = Results(output / "peers.json", list(LOADS))
    if options.report:
        _write_report(results)
        return 0
    try:
        wanted = wanted_scenarios(list(LOADS), options.only)
    except ValueError as unknown:
        print(unknown, file=sys.stderr)
        return 2
    return run_and_report(
        lambda directory: _measure(wanted, directory, results, options),
        lambda: _write_report(results),
        is_quick=options.quick,
    )


if __name__ == "__main__":
    sys.exit(main())
