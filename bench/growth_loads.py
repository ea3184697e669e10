"""How a server is made to grow, and one measurement of it then."""

from __future__ import annotations

import http.client
import os
import shutil
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from bench import fanout
from bench.disk_room import GIBIBYTE, disk_of, refusal
from bench.fanout_report import Load, Row
from bench.growth_report import (
    ACTIVE_TOPICS_MAX,
    BACKLOG,
    CONSUMERS,
    CPU,
    FANOUT_BYTES,
    P99,
    RATE,
    RESIDENT,
    SIZE,
    connections_of,
    messages_of_fanout,
    of_fanout,
    rate_of_fanout,
    rate_of_size,
)
from bench.measurement import per_million
from bench.perf_client import PerfFailed
from bench.scenarios import FULL_SPEED, UNBATCHED, Bench, fresh_topic, publish_to
from bench.session import DISK_CONFIGURATION, RoundFailed, new_server

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from bench.results import Figures
    from bench.subject import Subject
    from compat_tests.oracle.server_process import ServerProcess

CONFIGURATION: Final = DISK_CONFIGURATION | {
    "brokerDeleteInactiveTopicsEnabled": "false",
    # The standalone.conf of the distribution bounds a backlog to 10 GiB. Pulsar looks once a
    # minute, so a producer that is faster can pass that bound in one run and not in the next.
    "backlogQuotaDefaultLimitGB": "-1",
}
NAMESPACE: Final = "public/growth"
BACKLOG_BYTES: Final = 100_000
MAKERS: Final = 32
"""Connections that make topics at the same time."""
FANOUT_SECONDS: Final = 10
QUICK_FANOUT_SECONDS: Final = 2
SETTLE_SECONDS: Final = 2.0
SPARE_BYTES: Final = 4 * GIBIBYTE
"""Journals and what is published beside a backlog."""


class Growing:
    """What one server has of the things that grow."""

    def __init__(self, seconds_max: float) -> None:
        self._seconds_max = seconds_max
        self._reached = 0
        self.ended: str | None = None
        """Why it grows no more."""

    def topics(self, server: Subject, count: int) -> None:
        """Make topics until there are so many. Raises: PerfFailed."""
        paths = [_path(f"t-{index}") for index in range(self._reached, count)]
        _put(server, f"/admin/v2/namespaces/{NAMESPACE}")
        left = make_all(server, paths, self._seconds_max)
        if left:
            self._end(f"{count:,} topics were not made in {self._seconds_max:g} s: {left} are left")
        self._reached = count
        time.sleep(SETTLE_SECONDS)

    def backlog(self, bench: Bench, server: Subject, megabytes: int) -> None:
        """Publish until a subscription has so much to read. Raises: PerfFailed."""
        more = (megabytes - self._reached) * 1_000_000
        full = refusal(disk_of(server.directory), more + SPARE_BYTES)
        if full is not None:
            self._end(full)
        if not self._reached:
            _put(server, f"/admin/v2/namespaces/{NAMESPACE}")
            _put(server, _path("backlog"))
            _put(server, f"{_path('backlog')}/subscription/s")
        number = str(more // BACKLOG_BYTES)
        topic = f"persistent://{NAMESPACE}/backlog"
        arguments = ["-s", str(BACKLOG_BYTES), "-r", FULL_SPEED, "-m", number, *UNBATCHED, topic]
        with bench.perf(server, "produce", *arguments) as producer:
            try:
                producer.wait_line("DONE", self._seconds_max)
            except PerfFailed as failure:
                self._end(f"{megabytes:,} MB were not written: {failure}")
        self._reached = megabytes
        os.sync()
        time.sleep(SETTLE_SECONDS)

    def _end(self, why: str) -> None:
        self.ended = why
        raise PerfFailed(why)


def _path(topic: str) -> str:
    return f"/admin/v2/persistent/{NAMESPACE}/{topic}"


def _put(server: Subject, path: str) -> None:
    status, answer = server.http("PUT", path, timeout_seconds=60.0)
    if status not in (204, 409):
        raise PerfFailed(f"{server.name} answered {path} with {status} {answer}")


def make_all(server: Subject, paths: Sequence[str], seconds_max: float) -> int:
    """PUT all these on a few connections; how many are left when the time is over.

    Raises: PerfFailed: one was refused.
    """
    deadline = time.monotonic() + seconds_max
    left = list(reversed(paths))
    refused: list[str] = []

    def make() -> None:
        connection = http.client.HTTPConnection(f"127.0.0.1:{server.parts[0].web_port}", timeout=60)
        try:
            while not refused and time.monotonic() < deadline:
                try:
                    path = left.pop()
                except IndexError:
                    return
                connection.request("PUT", path)
                answer = connection.getresponse()
                text = answer.read()
                if answer.status not in (204, 409):
                    refused.append(f"{path}: {answer.status} {text.decode()[:200]}")
        except (OSError, http.client.HTTPException) as failure:
            refused.append(str(failure))
        finally:
            connection.close()

    makers = [threading.Thread(target=make) for _ in range(MAKERS)]
    for maker in makers:
        maker.start()
    for maker in makers:
        maker.join()
    if refused:
        raise PerfFailed(f"{server.name}: {refused[0]}")
    return len(left)


def _published(
    bench: Bench, server: Subject, topic: str, topics: int, rate: int, size_bytes: int
) -> Figures:
    found = publish_to(bench, server, topic, UNBATCHED, topics, str(rate), size_bytes)
    return {
        CPU: per_million(sum(found.cpu_seconds.values()), found.messages),
        P99: found.p99_ms,
        RESIDENT: found.resident_mebibytes_max,
    }


def publishing(axis: str, value: int, growing: Growing, bench: Bench, server: Subject) -> Figures:
    """Grow, and measure a publisher. Raises: PerfFailed."""
    if axis == SIZE:
        topic = fresh_topic("size")
        return _published(bench, server, topic, 1, rate_of_size(value), value)
    if axis == BACKLOG:
        growing.backlog(bench, server, value)
        return _published(bench, server, fresh_topic("beside"), 1, RATE, 1_024)
    growing.topics(server, value)
    active = min(value, ACTIVE_TOPICS_MAX)
    topic = f"persistent://{NAMESPACE}/t" + ("-0" if active == 1 else "")
    return _published(bench, server, topic, active, RATE, 1_024)


class Fanouts:
    """Servers of the fan-outs."""

    def __init__(self, directory: Path, *, quick: bool) -> None:
        self._directory = directory
        self._quick = quick
        self._kept: ServerProcess | None = None

    def measure(self, axis: str, name: str, value: int) -> Figures:
        """One round. Raises: RoundFailed, ServerFailed."""
        mode = "broadcast" if axis == CONSUMERS else "own"
        row = Row(name, mode, value, connections_of(value), 1)
        if name == "pulsar":
            server = self._pulsar()
            server.resume()
            try:
                return self._round(row, server)
            finally:
                server.pause()
        server = new_server(name, self._directory, CONFIGURATION)
        try:
            server.start()
            return self._round(row, server)
        finally:
            server.kill()
            shutil.rmtree(server.directory, ignore_errors=True)

    def close(self) -> None:
        """kill -9."""
        if self._kept is not None:
            self._kept.kill()

    def _pulsar(self) -> ServerProcess:
        if self._kept is None:
            self._kept = new_server("pulsar", self._directory, CONFIGURATION)
            self._kept.start()
            if not self._quick:
                self._round(fanout.WARM_UP, self._kept)
            self._kept.pause()
        return self._kept

    def _round(self, row: Row, server: ServerProcess) -> Figures:
        rate = rate_of_fanout(row.consumers)
        seconds = QUICK_FANOUT_SECONDS if self._quick else FANOUT_SECONDS
        load = Load(messages_of_fanout(rate, seconds), FANOUT_BYTES, rate)
        try:
            told = fanout.measure(replace(row, load=load), server, self._directory)
        except fanout.RoundFailed as failure:
            raise RoundFailed(str(failure)) from failure
        figures = of_fanout(told)
        if figures is None:
            raise RoundFailed(f"{told['lost']} deliveries were lost")
        return figures
