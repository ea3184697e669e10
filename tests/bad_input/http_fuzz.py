"""Hostile HTTP of all kinds, from many connections at once, beside a well-behaved client.

    python -m tests.bad_input.http_fuzz [--seconds 600] [--seed 1] [--tree DIRECTORY]

starts a broker, and prints how long the well-behaved client waited at most, resident memory before
and after, and what the log says. `http_attacks` has the kinds of misbehaviour.
"""

from __future__ import annotations

import argparse
import shlex
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, final
from urllib.request import urlopen

from protocol import client as wire
from protocol import pulsar_api_pb2 as pb
from tests.bad_input.http_attacks import HOSTILE, Attacker
from tests.bad_input.raw_connection import RawConnection
from tests.server_process import TREE, ServerProcess

if TYPE_CHECKING:
    from collections.abc import Callable

Type = pb.BaseCommand
ATTACKERS: Final = 6
PUBLISH_SECONDS: Final = 0.01
HEALTH_EVERY: Final = 20
SETTLE_SECONDS: Final = 10.0
WARM_SECONDS: Final = 20.0


class Result(NamedTuple):
    """What the well-behaved client and the process showed."""

    requests: int
    publishes: int
    longest_publish_ms: float
    longest_health_ms: float
    cold_kb: int
    before_kb: int
    peak_kb: int
    after_kb: int
    tracebacks: int
    failures: list[str]


@final
class Bystander:
    """Publishes every 10 ms, and asks for the health now and then."""

    def __init__(self, server: ServerProcess) -> None:
        self._connection = RawConnection(server.service_url, timeout_seconds=60)
        self._connection.connect()
        topic = "persistent://public/default/bystander"
        self._connection.send(wire.producer(topic, 1, 1))
        self._connection.expect(Type.PRODUCER_SUCCESS)
        self._health = f"http://127.0.0.1:{server.web_port}/admin/v2/brokers/health"
        self._stop = threading.Event()
        self.publishes = 0
        self.longest_publish = 0.0
        self.longest_health = 0.0
        self.failures: list[str] = []
        self._threads = [
            threading.Thread(target=self._guarded, args=(each,), daemon=True)
            for each in (self._publish, self._ask)
        ]
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Stop and join."""
        self._stop.set()
        for thread in self._threads:
            thread.join(90)
        self._connection.close()

    def _guarded(self, act: Callable[[], None]) -> None:
        try:
            while not self._stop.is_set():
                act()
        except (AssertionError, OSError) as error:
            self.failures.append(f"{act.__name__}: {error!r}")

    def _publish(self) -> None:
        started = time.perf_counter()
        message = wire.message(b"x", sequence_id=self.publishes)
        self._connection.send(wire.send(1, self.publishes, message))
        self._connection.expect(Type.SEND_RECEIPT)
        self.longest_publish = max(self.longest_publish, time.perf_counter() - started)
        self.publishes += 1
        self._stop.wait(PUBLISH_SECONDS)

    def _ask(self) -> None:
        started = time.perf_counter()
        with urlopen(self._health, timeout=60) as answer:
            assert answer.read() == b"ok"
        self.longest_health = max(self.longest_health, time.perf_counter() - started)
        self._stop.wait(PUBLISH_SECONDS * HEALTH_EVERY)


def fuzz(
    server: ServerProcess, seconds: float, seed: int, warm_seconds: float = 0.0
) -> tuple[Result, Counter[str]]:
    """Everything, against a running server. What is loaded and cached once is not what grows, so
    memory is measured after `warm_seconds` of the same."""
    cold = resident_kb(server.pid)
    if warm_seconds:
        warm = [Attacker(server.web_port, seed * 999 + number) for number in range(ATTACKERS)]
        _attack_all(server, warm, warm_seconds)
        time.sleep(SETTLE_SECONDS)
    bystander = Bystander(server)
    before = resident_kb(server.pid)
    attackers = [Attacker(server.web_port, seed * 1_000 + number) for number in range(ATTACKERS)]
    peak = _attack_all(server, attackers, seconds)
    bystander.close()
    time.sleep(min(SETTLE_SECONDS, seconds))
    counts = sum((attacker.count for attacker in attackers), Counter[str]())
    return Result(
        counts.total(),
        bystander.publishes,
        bystander.longest_publish * 1000,
        bystander.longest_health * 1000,
        cold,
        before,
        peak,
        resident_kb(server.pid),
        server.count_of("Traceback"),
        bystander.failures,
    ), counts


def _attack_all(server: ServerProcess, attackers: list[Attacker], seconds: float) -> int:
    """All at once; the most resident memory meanwhile, in KB."""
    deadline = time.monotonic() + seconds
    threads = [threading.Thread(target=_attack, args=(each, deadline)) for each in attackers]
    for thread in threads:
        thread.start()
    peak = 0
    while any(thread.is_alive() for thread in threads) and not server.has_ended():
        time.sleep(0.2)
        peak = max(peak, resident_kb(server.pid))
    for thread in threads:
        thread.join()
    for attacker in attackers:
        _close(attacker)
    return peak


def _attack(attacker: Attacker, deadline: float) -> None:
    names = list(HOSTILE)
    while time.monotonic() < deadline:
        name = attacker.chance.choice(names)
        attacker.count[name] += 1
        with suppress(OSError):
            HOSTILE[name](attacker)


def _close(attacker: Attacker) -> None:
    for connection in attacker.held:
        connection.close()
    attacker.held.clear()


def resident_kb(pid: int) -> int:
    """Resident memory of a process, in KB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    return 0


def main(arguments: list[str] | None = None) -> int:
    """Run and print; status 1 if anything did not hold."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tree", type=Path, default=TREE)
    options = parser.parse_args(arguments)
    vela = (
        f"{sys.executable} -m cli standalone --data-dir {{data_dir}} "
        "--broker-port {broker_port} --web-port {web_port}"
    )
    with tempfile.TemporaryDirectory() as directory:
        command = f"sh -c {shlex.quote(f'cd {options.tree} && exec {vela}')}"
        server = ServerProcess(Path(directory), command)
        server.start()
        try:
            server.wait_ready(60)
            result, counts = fuzz(server, options.seconds, options.seed, WARM_SECONDS)
            if result.tracebacks:
                print((Path(directory) / "server.log").read_text(errors="replace"))
        finally:
            server.kill()
            server.wait_ended()
    for name, count in sorted(counts.items()):
        print(f"{name:20} {count}")
    for name, value in result._asdict().items():
        print(f"{name:20} {value}")
    return int(bool(result.tracebacks or result.failures))


if __name__ == "__main__":
    sys.exit(main())
