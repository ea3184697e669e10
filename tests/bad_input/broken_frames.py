"""Connections that break within large frames, and what the broker's memory makes of it.

    python -m tests.bad_input.broken_frames --connections 2000

starts a broker of its own. First that many connections come one after the other, each sends nearly
5 MB of a 5 MB message, and ends. Then as many do the same and stay. Beside them one client
publishes and consumes a message every 10 ms. Printed are the highest resident memory the kernel has
seen in each part, and the longest wait. Exit status 1: the memory was above the bound.
"""

from __future__ import annotations

import argparse
import contextlib
import resource
import socket
import sys
import tempfile
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from protocol import client as wire
from tests.bad_input.steady_client import SteadyClient
from tests.server_process import VELA, ServerProcess

if TYPE_CHECKING:
    from collections.abc import Callable

MESSAGE_BYTES: Final = 5 * 1024 * 1024
MISSING_BYTES: Final = 1000
RESIDENT_MB_MAX: Final = 600.0
SEND_SECONDS_MAX: Final = 30.0


@dataclass(frozen=True)
class Outcome:
    """Memory in MB, as far as it got above nothing; times in seconds."""

    resident_before: float
    resident_peak_one_at_a_time: float
    resident_peak: float
    resident_after: float
    longest_wait: float
    tracebacks: int


def run(server: ServerProcess, connections: int, message_bytes: int = MESSAGE_BYTES) -> Outcome:
    """Both parts on a running broker."""
    steady = SteadyClient(server.service_url)
    steady.go_on(0.2)
    before = server.resident_mb()
    frame = wire.send(1, 0, wire.message(bytes(message_bytes)))[:-MISSING_BYTES]
    _beside(steady, lambda: _one_at_a_time(server.service_url, connections, frame))
    first_peak = server.resident_peak_mb()
    held: list[socket.socket] = []
    _beside(steady, lambda: _all_at_once(server.service_url, connections, frame, held))
    peak = server.resident_peak_mb()
    for each in held:
        each.close()
    steady.go_on(1.0)
    steady.close()
    return Outcome(
        resident_before=round(before, 1),
        resident_peak_one_at_a_time=round(first_peak, 1),
        resident_peak=round(peak, 1),
        resident_after=round(server.resident_mb(), 1),
        longest_wait=round(steady.longest_wait, 3),
        tracebacks=server.count_of("Traceback (most recent call last)"),
    )


def _beside(steady: SteadyClient, work: Callable[[], None]) -> None:
    """Do the work while the steady client goes on."""
    thread = threading.Thread(target=work)
    thread.start()
    while thread.is_alive():
        steady.go_on(0.1)
    thread.join()


def _connected(service_url: str, name: str) -> socket.socket:
    """A connection with a producer, so that its message would be taken."""
    address = urlsplit(service_url)
    made = socket.create_connection(
        (address.hostname or "127.0.0.1", address.port or 6650), timeout=SEND_SECONDS_MAX
    )
    topic = "persistent://public/default/broken"
    made.sendall(wire.connect() + wire.producer(topic, 1, 1, producer_name=name))
    made.recv(4096)
    return made


def _one_at_a_time(service_url: str, connections: int, frame: bytes) -> None:
    for number in range(connections):
        with _connected(service_url, f"one-{number}") as made, contextlib.suppress(OSError):
            made.sendall(frame)


def _all_at_once(
    service_url: str, connections: int, frame: bytes, held: list[socket.socket]
) -> None:
    """They stay until the caller closes them, as far as the broker has not."""
    for number in range(connections):
        made = _connected(service_url, f"held-{number}")
        held.append(made)
        with contextlib.suppress(OSError):
            made.sendall(frame)
    time.sleep(0.5)


def main() -> None:
    """The long run."""
    parser = argparse.ArgumentParser(description="connections that break within large frames")
    parser.add_argument("--connections", type=int, default=2000)
    parser.add_argument("--directory", type=Path, help="kept, with the broker's log")
    arguments = parser.parse_args()
    directory = arguments.directory or Path(tempfile.mkdtemp(prefix="vela-broken-frames-"))
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    server = ServerProcess(directory, VELA)
    server.start()
    try:
        server.wait_ready(60)
        outcome = run(server, arguments.connections)
    finally:
        server.kill()
        server.wait_ended()
    for name, value in asdict(outcome).items():
        print(f"{name:>28} {value}")
    sys.exit(outcome.resident_peak > RESIDENT_MB_MAX or outcome.tracebacks > 0)


if __name__ == "__main__":
    main()
