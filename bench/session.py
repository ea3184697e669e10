"""The servers of a benchmark run, and how one round on one of them is made to count.

Invariants: one server at a time is under load, the other is stopped by SIGSTOP; a round counts only
when neither pulsar-perf nor the server told of an error; after a round its topics are gone and
their disk space has come back, so that the disk bounds a round, not the run.
"""

from __future__ import annotations

import re
import shutil
import time
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from bench import oracle
from bench.disk_room import (
    KEPT_BYTES_MAX,
    REMOVED_BYTES_MAX,
    NoRoom,
    disk_of,
    removed_bytes,
    shortage,
    used_bytes,
)
from bench.measurement import write_out
from bench.perf_client import PerfFailed
from bench.scenarios import TOPIC_PREFIX, Bench, warm_up
from compat_tests.oracle.pulsar_server import PulsarServer
from compat_tests.oracle.server_process import ServerFailed
from compat_tests.oracle.vela_server import VelaServer

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from bench.subject import Subject
    from compat_tests.oracle.server_process import ServerProcess

NAMESPACE_PATH = "/admin/v2/persistent/public/default"
RECLAIM_SECONDS_MAX = 40.0
FREE_SECONDS_MAX = 120.0
"""For what was removed to be freed. Vela frees some hundred MB a second at most."""
SETTLE_SECONDS_MAX = 10.0
POLL_SECONDS = 0.1
# Given to both: space of deleted topics comes back soon, and old journal files do not pile up.
DISK_CONFIGURATION = {"gcWaitTime": "5000", "journalMaxBackups": "0"}
VELA_CONFIGURATION = {"journalSyncData": "true"}
_ERRORS_OF_VELA = re.compile(r"\[(?:error|critical)\s*\]|^Traceback")
_ERRORS_OF_PULSAR = re.compile(r"^\S+ \[[^\]]*\] (?:ERROR|FATAL) ")


class RoundFailed(Exception):
    """The round does not count; the text says which error was seen."""


def new_server(name: str, directory: Path, disk: dict[str, str] | None = None) -> ServerProcess:
    """A server of the benchmark, not started yet; `disk` is added to its configuration."""
    if name == "vela":
        return VelaServer(directory / "vela", VELA_CONFIGURATION | (disk or {}))
    return PulsarServer(directory / "pulsar", disk, small=False, release=oracle.chosen())


_server_with_little_disk = partial(new_server, disk=DISK_CONFIGURATION)


def server_problems(name: str, log: str) -> list[str]:
    """The lines of a server's log that tell of errors."""
    wanted = _ERRORS_OF_VELA if name.startswith("vela") else _ERRORS_OF_PULSAR
    return [line for line in log.splitlines() if wanted.search(line)]


def bench_topics(names: list[str]) -> list[str]:
    """Those of these topic names that a benchmark made, without their domain."""
    local = [name.partition("://")[2] for name in names]
    return [name for name in local if name.rpartition("/")[2].startswith(TOPIC_PREFIX)]


def in_use(stats: dict[str, Any]) -> bool:
    """Whether a topic's statistics show a producer or a consumer."""
    subscriptions = stats["subscriptions"].values()
    return bool(stats["publishers"]) or any(each["consumers"] for each in subscriptions)


def log_sizes(server: Subject) -> list[int]:
    """In bytes, of each part."""
    return [part.log_path.stat().st_size for part in server.parts]


def wait_freed(
    server: Subject, tell: Callable[[str], None], kept_bytes_max: int = KEPT_BYTES_MAX
) -> None:
    """Before a server is stopped by SIGSTOP: until it has no more of the disk than it may keep, and
    has freed what it removed. Bounded; `tell` is told if that was not enough."""
    _wait(
        lambda: used_bytes(server) <= kept_bytes_max,
        f"{server.name} has no more than {kept_bytes_max / 2**30:.0f} GiB",
        RECLAIM_SECONDS_MAX,
        tell,
    )
    _wait(
        lambda: removed_bytes(server.process_ids, server.directory) <= REMOVED_BYTES_MAX,
        f"{server.name} has freed the files that it removed",
        FREE_SECONDS_MAX,
        tell,
    )


def _wait(
    condition: Callable[[], bool], what: str, seconds_max: float, tell: Callable[[str], None]
) -> None:
    deadline = time.monotonic() + seconds_max
    while not condition():
        if time.monotonic() > deadline:
            tell(f"waited in vain until {what}")
            return
        time.sleep(POLL_SECONDS)


@dataclass
class Session:
    """Servers that stay up, and warm, over all scenarios."""

    bench: Bench
    directory: Path
    tell: Callable[[str], None]
    warm: Callable[[Bench, Subject], None] | None = warm_up
    """Uncounted load on a server that has just started; None: none."""
    make: Callable[[str, Path], Subject] = _server_with_little_disk
    """A server by name, with a directory for its own."""
    kept_bytes_max: int = KEPT_BYTES_MAX
    """What a server may keep after a round before its space is waited for."""
    servers: dict[str, Subject] = field(default_factory=dict)

    def start(self, names: list[str]) -> None:
        """Start and warm up; each is stopped by SIGSTOP afterwards."""
        for name in names:
            self._bring_up(name)

    def close(self) -> None:
        """kill -9; nothing of their data is wanted."""
        for server in self.servers.values():
            server.kill()

    def measure(
        self, name: str, action: Callable[[Bench, Subject], dict[str, float]]
    ) -> dict[str, float]:
        """One round on one server.

        Raises: RoundFailed; NoRoom: not even without this round's data there is room.
        """
        server = self.servers[name]
        server.resume()
        self._wait_answer(server)
        logs = log_sizes(server)
        self.bench.clients.clear()
        try:
            figures = action(self.bench, server)
            problems = self._problems(server, logs)
        except NoRoom as full:
            self._replace(name)
            raise RoundFailed(str(full)) from full
        except PerfFailed as failure:
            problems = self._problems(server, logs)
            self._tidy_or_replace(name)
            raise RoundFailed("; ".join([str(failure), *problems[:3]])) from failure
        finally:
            self.bench.clients.clear()
        self._tidy_or_replace(name)
        if problems:
            raise RoundFailed(f"{len(problems)} lines tell of errors: {problems[0][:500]}")
        return figures

    def look(self, server: Subject) -> None:
        """Raise NoRoom when the server fills the disk, RoundFailed when it is gone."""
        short = shortage(disk_of(self.directory), server.name, used_bytes(server))
        if short is not None:
            raise NoRoom(short)
        ended = server.how_it_ended()
        if ended is not None:
            raise PerfFailed(f"{ended}:\n{server.log_tail()}")

    def _problems(self, server: Subject, logs: list[int]) -> list[str]:
        told = [problem for client in self.bench.clients for problem in client.problems()]
        for part, size_bytes in zip(server.parts, logs, strict=True):
            with open(part.log_path, "rb") as log:
                log.seek(size_bytes)
                told += server_problems(part.name, log.read().decode(errors="replace"))
        ended = server.how_it_ended()
        return told + ([ended] if ended else [])

    def _bring_up(self, name: str) -> None:
        server = self.servers[name] = self.make(name, self.directory)
        server.start()
        if self.warm is not None:
            begun = time.monotonic()
            self.warm(self.bench, server)
            self.bench.clients.clear()
            self.tell(f"{name} is warm after {time.monotonic() - begun:.0f} s of load")
        try:
            self._tidy(server)
        except OSError as failure:
            raise ServerFailed(f"{name} does not answer: {failure}") from failure

    def _wait_answer(self, server: Subject) -> None:
        """Until a server that was stopped by SIGSTOP has worked off what waited for it."""

        def answers() -> bool:
            try:
                return server.http("GET", NAMESPACE_PATH, timeout_seconds=2.0)[0] == 200
            except OSError:
                return False

        self._wait(answers, f"{server.name} answers after SIGCONT")

    def _wait_left(self, server: Subject, topic: str) -> None:
        """Until no client is connected to a topic, or it is gone: clients end before their servers
        have seen it."""

        def is_left() -> bool:
            status, stats = server.http("GET", f"/admin/v2/persistent/{topic}/stats")
            return status != 200 or not in_use(stats)

        self._wait(is_left, f"{server.name} has closed what the clients left on {topic}")

    def _wait(self, condition: Callable[[], bool], what: str) -> None:
        _wait(condition, what, SETTLE_SECONDS_MAX, self.tell)

    def _tidy_or_replace(self, name: str) -> None:
        server = self.servers[name]
        try:
            if server.is_running():
                self._tidy(server)
                return
        except OSError as failure:
            self.tell(f"{name} does not answer: {failure}")
        self._replace(name)

    def _tidy(self, server: Subject) -> None:
        """Delete what a round left, wait for the space, and stop the server by SIGSTOP."""
        _, topics = server.http("GET", NAMESPACE_PATH)
        for topic in bench_topics(topics or []):
            self._wait_left(server, topic)
            status, answer = server.http(
                "DELETE", f"/admin/v2/persistent/{topic}?force=true", timeout_seconds=60.0
            )
            if status not in (204, 404):
                self.tell(f"{server.name} did not delete {topic}: {status} {answer}")
        wait_freed(server, self.tell, self.kept_bytes_max)
        server.pause()
        write_out()

    def _replace(self, name: str) -> None:
        """End a server that is broken or has filled the disk, and take a new one."""
        self.servers[name].kill()
        shutil.rmtree(self.servers[name].directory, ignore_errors=True)
        short = shortage(disk_of(self.directory), name, 0)
        if short is not None:
            raise NoRoom(f"{short}, and its data is gone: something else fills the disk")
        self.tell(f"{name} is started again, with an empty directory")
        self._bring_up(name)
