"""Strangers at both ports of a broker with TLS and authentication, beside a client that is known.

    python -m tests.bad_input.guarded_fuzz [--seconds 600] [--half-open 10000] [--seed 1]

starts a broker. First so many handshakes are begun and left half-open; then a stream of TLS 1.3 key
updates is sent; then threads do everything of `tests.bad_input.strangers`, at random. Meanwhile a
client with a token publishes every 10 ms over TLS. Its waiting times are printed, with those
before, and so is the memory of the broker. Exit status 1: a stranger was told something, a
traceback, the broker ended, or the known client was not served.
"""

from __future__ import annotations

import argparse
import resource
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, final

from protocol import client as wire
from protocol import pulsar_api_pb2 as pb
from tests.bad_input.guarded_server import HOST, GuardedServer
from tests.bad_input.strangers import STRANGE, Stranger, first_flight, tls_socket

Type = pb.BaseCommand
ATTACKERS: Final = 4
PUBLISH_SECONDS: Final = 0.01
SETTLE_SECONDS: Final = 35.0
"""Connections without an answered CONNECT end after 30 s, and what is kept for them goes."""
KEY_UPDATES: Final = 20_000
TOLD_SHOWN_MAX: Final = 20


@dataclass
class Outcome:
    """What a run has shown. Times in milliseconds, memory in MB."""

    attempts: Counter[str] = field(default_factory=Counter)
    told: list[str] = field(default_factory=list)
    """What strangers were told that they should not have been."""
    publishes: int = 0
    failures: list[str] = field(default_factory=list)
    """Of the known client."""
    calm_p50: float = 0.0
    calm_p99: float = 0.0
    half_open_p99: float = 0.0
    half_open_longest: float = 0.0
    key_updates_p99: float = 0.0
    key_updates_longest: float = 0.0
    fuzz_p50: float = 0.0
    fuzz_p99: float = 0.0
    fuzz_longest: float = 0.0
    memory_calm: float = 0.0
    memory_half_open: float = 0.0
    memory_peak: float = 0.0
    memory_after: float = 0.0
    tracebacks: int = 0
    broker_ended: bool = False

    @property
    def is_good(self) -> bool:
        """Whether strangers got nothing, and the known client all that it wanted."""
        flaws = self.told or self.failures or self.tracebacks or self.broker_ended
        return not flaws and self.publishes > 0


@final
class KnownClient:
    """Publishes over TLS with a token, one message after the other."""

    def __init__(self, server: GuardedServer) -> None:
        self._socket = tls_socket(server, server.binary_port, timeout_seconds=60.0)
        self._client = wire.Client()
        self._commands: list[pb.BaseCommand] = []
        fields: dict[str, Any] = {
            "auth_method_name": "token",
            "auth_data": server.token.encode(),
        }
        self._socket.sendall(wire.connect(**fields))
        self._expect(Type.CONNECTED)
        self._socket.sendall(wire.producer("persistent://public/default/known", 1, 1))
        self._expect(Type.PRODUCER_SUCCESS)
        self._waits: list[float] = []
        self.publishes = 0
        self.failures: list[str] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def waits_ms(self) -> list[float]:
        """Sorted, since the last call."""
        found, self._waits = self._waits, []
        return sorted(1000 * each for each in found)

    def close(self) -> None:
        """Stop and join."""
        self._stop.set()
        self._thread.join(90)
        self._socket.close()

    def _run(self) -> None:
        try:
            while not self._stop.wait(PUBLISH_SECONDS):
                started = time.perf_counter()
                message = wire.message(b"x", sequence_id=self.publishes)
                self._socket.sendall(wire.send(1, self.publishes, message))
                self._expect(Type.SEND_RECEIPT)
                self._waits.append(time.perf_counter() - started)
                self.publishes += 1
        except (AssertionError, OSError) as error:
            self.failures.append(repr(error))

    def _expect(self, kind: int) -> None:
        while True:
            while not self._commands:
                data = self._socket.recv(65536)
                assert data, "the known client was disconnected"
                self._commands += [frame[0] for frame in self._client.receive(data)]
            command = self._commands.pop(0)
            if command.type == Type.PING:
                self._socket.sendall(wire.pong())
            else:
                assert command.type == kind, str(command)
                return


# --- the phases -------------------------------------------------------------------------


def half_open(server: GuardedServer, count: int) -> list[socket.socket]:
    """Handshakes that are begun and never finished."""
    hello = first_flight(server)
    found: list[socket.socket] = []
    for number in range(count):
        port = (server.binary_port, server.web_port)[number % 2]
        with suppress(OSError):
            connection = socket.create_connection((HOST, port), 60.0)
            connection.sendall(hello[:-1] if number % 3 else hello)
            found.append(connection)
    return found


def key_updates(server: GuardedServer, count: int) -> None:
    """A stream of TLS 1.3 key updates, each of which asks for another one."""
    command = ["openssl", "s_client", "-connect", f"{HOST}:{server.binary_port}", "-tls1_3"]
    with suppress(subprocess.TimeoutExpired):
        subprocess.run(
            command,
            input=b"K\n" * count,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=30.0,
            check=False,
        )


def percentile(sorted_values: list[float], fraction: float) -> float:
    """Of values in order; 0: there are none."""
    return sorted_values[int(fraction * (len(sorted_values) - 1))] if sorted_values else 0.0


def attack(server: GuardedServer, seconds: float, seed: int, outcome: Outcome) -> None:
    """Everything at random, from several threads."""
    end = time.monotonic() + seconds
    lock = threading.Lock()

    def run(number: int) -> None:
        stranger = Stranger(server, seed * 1_000 + number)
        count: Counter[str] = Counter()
        while time.monotonic() < end and not server.process.has_ended():
            name, act = stranger.chance.choice(list(STRANGE.items()))
            with suppress(OSError):
                act(stranger)
            count[name] += 1
        for connection in stranger.held:
            connection.close()
        with lock:
            outcome.attempts.update(count)
            outcome.told.extend(stranger.told)

    threads = [threading.Thread(target=run, args=(each,)) for each in range(ATTACKERS)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        if not server.process.has_ended():
            outcome.memory_peak = max(outcome.memory_peak, server.process.resident_mb())
        time.sleep(0.1)


def fuzz(
    server: GuardedServer,
    seconds: float,
    *,
    half_open_count: int,
    key_update_count: int,
    seed: int,
    settle_seconds: float = SETTLE_SECONDS,
) -> Outcome:
    """All phases, against a running broker."""
    outcome = Outcome()
    known = KnownClient(server)
    time.sleep(2.0)
    calm = known.waits_ms()
    outcome.calm_p50, outcome.calm_p99 = percentile(calm, 0.5), percentile(calm, 0.99)
    outcome.memory_calm = server.process.resident_mb()

    begun = half_open(server, half_open_count)
    outcome.attempts["half_open"] = len(begun)
    waits = known.waits_ms()
    outcome.half_open_p99, outcome.half_open_longest = (
        percentile(waits, 0.99),
        max(waits, default=0),
    )
    outcome.memory_half_open = outcome.memory_peak = server.process.resident_mb()
    with tls_socket(server, server.binary_port, timeout_seconds=60.0):
        pass  # one more is served
    for connection in begun:
        connection.close()

    known.waits_ms()
    key_updates(server, key_update_count)
    outcome.attempts["key_updates"] = key_update_count
    waits = known.waits_ms()
    outcome.key_updates_p99 = percentile(waits, 0.99)
    outcome.key_updates_longest = max(waits, default=0)

    attack(server, seconds, seed, outcome)
    waits = known.waits_ms()
    outcome.fuzz_p50, outcome.fuzz_p99 = percentile(waits, 0.5), percentile(waits, 0.99)
    outcome.fuzz_longest = max(waits, default=0)
    time.sleep(settle_seconds)
    known.close()
    outcome.publishes, outcome.failures = known.publishes, known.failures
    outcome.broker_ended = server.process.has_ended()
    if not outcome.broker_ended:
        outcome.memory_after = server.process.resident_mb()
    outcome.tracebacks = server.process.count_of("Traceback")
    return outcome


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--half-open", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    wanted = given.half_open + 1_000
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(wanted, hard), hard))
    directory = Path(tempfile.mkdtemp(prefix="guarded-fuzz-"))
    server = GuardedServer(directory)
    server.process.start()
    try:
        server.process.wait_ready(60)
        outcome = fuzz(
            server,
            given.seconds,
            half_open_count=given.half_open,
            key_update_count=KEY_UPDATES,
            seed=given.seed,
        )
    finally:
        server.process.kill()
        server.process.wait_ended()
    shown = asdict(outcome) | {
        "attempts": dict(outcome.attempts),
        "told": list(dict.fromkeys(outcome.told))[:TOLD_SHOWN_MAX],
    }
    for name, value in shown.items():
        print(f"{name:>20} {value}")
    print(f"{'log':>20} {directory / 'server.log'}")
    sys.exit(0 if outcome.is_good else 1)


if __name__ == "__main__":
    main()
