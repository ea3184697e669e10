"""Mutated frames from many connections, beside one client that behaves well.

    python -m tests.bad_input.fuzz --seconds 600

starts a broker of its own, lets worker processes send it sessions of `tests.bad_input.mutation`,
and meanwhile publishes and consumes one message every 10 ms. It prints the longest time that client
waited, the tracebacks in the broker's log, and the broker's resident memory before, at its highest,
and after. Exit status 1: a traceback, or the broker ended, or the memory did not come back.

A connection takes what it is sent, or does not read at all, and ends with a FIN, or with a RST.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import os
import random
import socket
import struct
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from protocol import client as wire
from tests.bad_input.mutation import session
from tests.bad_input.steady_client import SteadyClient
from tests.server_process import VELA, ServerProcess

if TYPE_CHECKING:
    from multiprocessing.sharedctypes import Synchronized
    from multiprocessing.synchronize import Event

CONNECTIONS_PER_WORKER: Final = 16
"""Open at a time: what they hold is taken away by their ends, in any order."""
SETTLE_SECONDS_MAX: Final = 90.0
"""In which the memory has to come back: idle topics and flushed entries go by then."""
GROWTH_MAX: Final = 1.2
WARM_UP_SECONDS: Final = 120.0
"""The first sessions make the topics, and fill caches and the tables of RocksDB, which stay."""
SETTINGS: Final = """
# Holders of names do not answer PINGs here: they are given up sooner.
connectionLivenessCheckTimeoutMillis=100
# Damaged names of topics and subscriptions are names, too.
maxTopicsPerNamespace=200
maxSubscriptionsPerTopic=20
# tests.bad_input.mutation has a subscription of that name.
broadcastSubscriptionNamePattern=broadcast
# Caches that are soon as full as they get, so that memory which stays is not theirs.
managedLedgerCacheSizeMB=4
dbStorage_writeCacheMaxSizeMb=8
dbStorage_readAheadCacheMaxSizeMb=4
"""
RESET: Final = struct.pack("ii", 1, 0)


@dataclass(frozen=True)
class Outcome:
    """What a run has shown. Memory in MB, times in seconds."""

    seconds: float
    connections: int
    bystander_messages: int
    bystander_longest_wait: float
    tracebacks: int
    resident_before: float
    resident_highest: float
    resident_after: float
    broker_ended: bool

    @property
    def is_good(self) -> bool:
        """No traceback, the broker runs, and its memory is back."""
        returned = self.resident_after <= self.resident_before * GROWTH_MAX
        return not self.tracebacks and not self.broker_ended and returned


def attack(service_url: str, seed: int, stop: Event, connections: Synchronized[int]) -> None:
    """Open, misuse and close connections until told to stop (a worker process)."""
    chance = random.Random(seed)
    address = urlsplit(service_url)
    place = (address.hostname or "127.0.0.1", address.port or 6650)
    open_now: list[socket.socket] = []
    parent = os.getppid()
    while not stop.is_set() and os.getppid() == parent:  # a killed parent sets nothing
        if len(open_now) >= CONNECTIONS_PER_WORKER:
            _end(open_now.pop(chance.randrange(len(open_now))), chance)
        with contextlib.suppress(OSError):
            made = socket.create_connection(place, timeout=5)
            open_now.append(made)
            _misuse(made, chance)
        with connections.get_lock():
            connections.value += 1
    for each in open_now:
        each.close()


def _misuse(made: socket.socket, chance: random.Random) -> None:
    first, pieces = session(chance)
    if first:
        made.settimeout(0.5)
        made.sendall(b"".join(first))
        with contextlib.suppress(TimeoutError):
            _wait_answered(made, len(first))
    made.settimeout(0.05)
    reads = chance.random() < 0.8
    for piece in pieces:
        made.sendall(piece)
        if reads:
            with contextlib.suppress(TimeoutError):
                made.settimeout(chance.choice((0.001, 0.01)))
                made.recv(65536)
            made.settimeout(0.05)


def _wait_answered(made: socket.socket, count: int) -> None:
    client = wire.Client()
    while count > 0 and (data := made.recv(65536)):
        count -= len(client.receive(data))


def _end(made: socket.socket, chance: random.Random) -> None:
    with contextlib.suppress(OSError):
        how = chance.random()
        if how < 0.3:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        elif how < 0.5:
            made.shutdown(socket.SHUT_WR)
    made.close()


def new_server(directory: Path, settings: str = "") -> ServerProcess:
    """A broker of its own, with the settings for this and those given."""
    directory.mkdir(parents=True, exist_ok=True)
    config = directory / "fuzz.conf"
    config.write_text(SETTINGS + settings)
    return ServerProcess(directory, f"{VELA} --config {config}")


def run(
    server: ServerProcess,
    seconds: float,
    seed: int,
    workers: int = 2,
    settle_seconds_max: float = SETTLE_SECONDS_MAX,
) -> Outcome:
    """Fuzz a running broker."""
    context = multiprocessing.get_context("spawn")
    stop, connections = context.Event(), context.Value("q", 0)
    bystander = SteadyClient(server.service_url)
    processes = [
        context.Process(
            target=attack, args=(server.service_url, seed + number, stop, connections), daemon=True
        )
        for number in range(workers)
    ]
    for each in processes:
        each.start()
    started = time.monotonic()
    try:
        while not connections.value:
            bystander.one()
        bystander.go_on(min(WARM_UP_SECONDS, seconds / 4))
        before = highest = server.resident_mb()
        while time.monotonic() - started < seconds and not server.has_ended():
            bystander.go_on(min(1.0, seconds / 4))
            highest = max(highest, server.resident_mb())
    finally:
        stop.set()
        for each in processes:
            each.join(30)
            each.kill()
    after = _settled(server, bystander, before, settle_seconds_max)
    bystander.close()
    return Outcome(
        seconds=round(time.monotonic() - started, 1),
        connections=connections.value,
        bystander_messages=bystander.count,
        bystander_longest_wait=round(bystander.longest_wait, 3),
        tracebacks=server.count_of("Traceback (most recent call last)"),
        resident_before=round(before, 1),
        resident_highest=round(highest, 1),
        resident_after=round(after, 1),
        broker_ended=server.has_ended(),
    )


def _settled(
    server: ServerProcess, bystander: SteadyClient, before: float, seconds_max: float
) -> float:
    """The resident memory when it has come back, or at the end of the time for that."""
    deadline = time.monotonic() + seconds_max
    while True:
        bystander.go_on(0.2)
        after = server.resident_mb()
        if after <= before * GROWTH_MAX or time.monotonic() > deadline:
            return after


def main() -> None:
    """The long run."""
    parser = argparse.ArgumentParser(description="mutated frames beside a client that behaves")
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--directory", type=Path, help="kept, with the broker's log")
    arguments = parser.parse_args()
    directory = arguments.directory or Path(tempfile.mkdtemp(prefix="vela-fuzz-"))
    server = new_server(directory, "\n".join(arguments.set))
    server.start()
    try:
        server.wait_ready(60)
        outcome = run(server, arguments.seconds, arguments.seed, arguments.workers)
    finally:
        server.kill()
        server.wait_ended()
    for name, value in asdict(outcome).items():
        print(f"{name:>24} {value}")
    print(f"{'log':>24} {directory / 'server.log'}")
    sys.exit(0 if outcome.is_good else 1)


if __name__ == "__main__":
    main()
