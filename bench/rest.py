"""Starts, and what a server costs at rest: nothing loaded, 100 topics and connections, very many
topics. Each measurement has a server of its own.

A server is ready when a client of the binary protocol can produce. HTTP is not asked before the
figures of rest are taken, because a broker may load that side with the first request.

Real Pulsar gets fewer topics where Vela gets very many, so that the run stays bounded; figures are
given per topic, or per 1,000 of them.
"""

from __future__ import annotations

import re
import socket
import time
import urllib.request
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import trio

from bench import oracle
from bench.expiry import Connection, fill
from bench.measurement import MEBIBYTE, idle_figures
from bench.session import VELA_CONFIGURATION
from compat_tests.oracle.pulsar_server import PulsarServer
from compat_tests.oracle.vela_server import VelaServer
from protocol import client as c
from protocol import pulsar_api_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from bench.results import Figures
    from compat_tests.oracle.server_process import ServerProcess

START: Final = "start and idle"
LOADED: Final = "topics at rest, loaded"
RESTART: Final = "restart on stored topics"

CONNECTIONS: Final = 100
BUNDLES_LOOKED_UP: Final = 64
"""Names of topics; among so many there is one of each bundle."""
TOPICS_PER_PROCESS: Final = 10_000
"""More are made by further starts, so that what is loaded fits into memory."""
PAGES: Final = 3
ANSWER_SECONDS_MAX: Final = 2.0
SETTLE_SECONDS: Final = 4.0
WATCH_SECONDS: Final = 10.0
TURN_SECONDS_MAX: Final = 0.005
_STALLS: Final = re.compile(
    r'^vela_event_loop_stall_cpu_seconds_bucket\{[^}]*kind="turn"[^}]*le="([^"]+)"[^}]*\} (\S+)$',
    re.MULTILINE,
)
_T = pb.BaseCommand


@dataclass(frozen=True)
class Counts:
    """How many topics each server gets, and how long it has to put them to rest."""

    loaded: int
    stored: int
    active: int
    until_rest_seconds: float
    """From the last use of the loaded topics until all of them are at rest."""


COUNTS: Final = {
    # topicRestAfterSeconds (60), up to a quarter more until it is noticed, and the work itself.
    "vela": Counts(loaded=10_000, stored=100_000, active=1_000, until_rest_seconds=90),
    # Real Pulsar has no such time; it gets what collections of garbage take.
    "pulsar": Counts(loaded=1_000, stored=2_000, active=200, until_rest_seconds=SETTLE_SECONDS),
}
QUICK_COUNTS: Final = Counts(loaded=200, stored=400, active=50, until_rest_seconds=SETTLE_SECONDS)


def can_produce(port: int) -> bool:
    """Whether a client gets a producer on a new topic."""
    topic = "persistent://public/default/ready"
    client, sent = c.Client(), [c.connect(), c.lookup(topic, 1), c.producer(topic, 1, 2)]
    answers = (_T.CONNECTED, _T.LOOKUP_RESPONSE, _T.PRODUCER_SUCCESS)
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=ANSWER_SECONDS_MAX) as server:
            for frame, wanted in zip(sent, answers, strict=True):
                server.sendall(frame)
                received: list[tuple[pb.BaseCommand, bytes | None]] = []
                while not received:
                    data = server.recv(65536)
                    if not data:
                        return False
                    received = list(client.receive(data))
                if received[0][0].type != wanted:
                    return False
    except OSError:
        return False
    return True


class VelaForClients(VelaServer):
    """Vela, ready for clients of the binary protocol."""

    def is_ready(self) -> bool:
        return can_produce(self.broker_port)


class PulsarForClients(PulsarServer):
    """Real Pulsar, ready for them."""

    def is_ready(self) -> bool:
        return can_produce(self.broker_port)


def own_server(name: str, directory: Path) -> ServerProcess:
    """A server for one measurement, not started yet."""
    if name == "vela":
        return VelaForClients(directory / "vela", VELA_CONFIGURATION)
    return PulsarForClients(directory / "pulsar", None, small=False, release=oracle.chosen())


def start_and_rest(server: ServerProcess, counts: Counts, watch_seconds: float) -> Figures:
    """A start with an empty directory, then nothing; then 100 topics and connections at rest."""
    del counts
    server.start()
    figures = {"ready s": server.ready_after_seconds}
    figures |= idle_figures(server, SETTLE_SECONDS, watch_seconds)
    with_clients = trio.run(_rest_with_clients, server, watch_seconds)
    figures |= {f"{name}, 100 topics, 100 connections": with_clients[name] for name in with_clients}
    status, _ = server.http("GET", "/metrics")
    assert status == 200, f"/metrics: {status}"
    figures["resident MB after a first /metrics"] = server.resident_bytes() / MEBIBYTE
    return figures


async def _rest_with_clients(server: ServerProcess, watch_seconds: float) -> Figures:
    await _own_all_bundles(server)
    async with trio.open_nursery() as nursery:
        for number in range(CONNECTIONS):
            connection = await Connection.to(server.service_url)
            topic = f"persistent://public/default/rest-{number}"
            await connection.ask(c.producer(topic, 1, 1), _T.PRODUCER_SUCCESS)
            await connection.ask(c.subscribe(topic, "s", 1, 2), _T.SUCCESS)
            nursery.start_soon(connection.answer_pings)
        figures = await trio.to_thread.run_sync(idle_figures, server, SETTLE_SECONDS, watch_seconds)
        nursery.cancel_scope.cancel()
    return figures


async def _own_all_bundles(server: ServerProcess) -> None:
    connection = await Connection.to(server.service_url)
    for number in range(BUNDLES_LOOKED_UP):
        asked = c.lookup(f"persistent://public/default/t{number}", number)
        await connection.ask(asked, _T.LOOKUP_RESPONSE)
    connection.close()


async def _make_topics(server: ServerProcess, topics: range) -> None:
    await _own_all_bundles(server)
    connection = await Connection.to(server.service_url)
    await fill(connection, topics, 1)
    connection.close()


def loaded_topics(server: ServerProcess, counts: Counts, watch_seconds: float) -> Figures:
    """Topics with a subscription and a message each, all loaded, none in use."""
    server.start()
    server.http("GET", "/metrics")
    before = server.resident_bytes()
    trio.run(_make_topics, server, range(counts.loaded))
    idle = idle_figures(server, counts.until_rest_seconds, watch_seconds)
    grown = server.resident_bytes() - before
    url = f"{server.web_url}/metrics"
    stalls, seconds = turns_over(_page(url)), []
    for _ in range(PAGES):
        begun = time.monotonic()
        page = _page(url)
        seconds.append(time.monotonic() - begun)
    figures = {
        "topics": float(counts.loaded),
        "resident KB per idle topic": grown / counts.loaded / 1024,
        "idle CPU %": idle["idle CPU %"],
        "/metrics s per 1,000 topics": sorted(seconds)[PAGES // 2] * 1_000 / counts.loaded,
    }
    if server.name == "vela":
        figures["turns over 5 ms of CPU in three /metrics"] = turns_over(page) - stalls
    return figures


def _page(url: str) -> str:
    with urllib.request.urlopen(url, timeout=300) as answer:
        return str(answer.read(), "utf-8")


def turns_over(page: str) -> float:
    """Turns of the event loop with more CPU time than their budget, so far, from /metrics."""
    below = above = 0.0
    for bound, count in _STALLS.findall(page):
        if bound == "+Inf":
            above += float(count)
        elif float(bound) == TURN_SECONDS_MAX:
            below += float(count)
    return above - below


def restart_with_topics(server: ServerProcess, counts: Counts, watch_seconds: float) -> Figures:
    """A start after SIGTERM on very many topics; then a few of them are used."""
    at_once = min(TOPICS_PER_PROCESS, counts.stored)
    empty_bytes = 0
    for first in range(0, counts.stored, at_once):
        server.start()
        empty_bytes = empty_bytes or server.resident_bytes()
        trio.run(_make_topics, server, range(first, first + at_once))
        server.stop()
    server.start()
    figures = {"topics": float(counts.stored), "ready s": server.ready_after_seconds}
    resting = idle_figures(server, SETTLE_SECONDS, watch_seconds)
    trio.run(_make_topics, server, range(counts.active))
    figures["idle resident MB"] = resting["idle resident MB"]
    figures["resident MB with 1 in 100 in use"] = server.resident_bytes() / MEBIBYTE
    grown = resting["idle resident MB"] - empty_bytes / MEBIBYTE
    figures["resident KB per topic not in use"] = grown * 1024 / counts.stored
    return figures


SCENARIOS: Final[dict[str, Callable[[ServerProcess, Counts, float], Figures]]] = {
    START: start_and_rest,
    LOADED: loaded_topics,
    RESTART: restart_with_topics,
}
