"""One server process: start, wait until a client can use it, stop, kill -9, measure.

Invariants: a server runs in a process group of its own and only that group is ever signalled; the
ports and the data directory stay the same over restarts; the output of the server goes to
`server.log` in its directory, never to the terminal; a start that fails leaves no process.
"""

from __future__ import annotations

import http.client
import itertools
import json
import os
import signal
import subprocess
import time
import urllib.error
import urllib.request
import warnings
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

import psutil

if TYPE_CHECKING:
    from pathlib import Path

# A JVM that shares two processors with everything else was seen to need more than a minute.
START_TIMEOUT_SECONDS = 240.0
# Longer than brokerShutdownTimeoutMs (60,000): after it a broker still has its bookie to close.
STOP_TIMEOUT_SECONDS = 150.0

_probe = itertools.count()

# What both servers are told beyond their own defaults, in Pulsar's key names.
SHARED_CONFIGURATION = {
    "acknowledgmentAtBatchIndexLevelEnabled": "true",
    # Topics without subscriptions are deleted at the server's own time; not within a run.
    "retentionCheckIntervalInSeconds": "7200",
}


class ServerFailed(Exception):
    """The server did not come up or did not stop; the text carries the end of its log."""


class ServerProcess(ABC):
    """A server with its own data directory and ports."""

    name: str
    is_oracle = False
    """Whether it is only compared with; what fails on the server under test stays failed."""
    start_attempts = 1
    """The server under test has one; a server that is only compared with may have more."""

    def __init__(
        self,
        directory: Path,
        broker_port: int,
        web_port: int,
        configuration: dict[str, str] | None = None,
    ) -> None:
        self.directory = directory
        self.broker_port = broker_port
        self.web_port = web_port
        self.configuration = SHARED_CONFIGURATION | (configuration or {})
        self.http_headers: dict[str, str] = {}
        """Sent with every request: credentials, where the server wants some."""
        self.perf_arguments: list[str] = []
        """The same for pulsar-perf."""
        self.log_path = directory / "server.log"
        self.ready_after_seconds = 0.0
        self._process: subprocess.Popen[bytes] | None = None
        self._log_size_at_start = 0
        directory.mkdir(parents=True, exist_ok=True)

    @property
    def service_url(self) -> str:
        return f"pulsar://127.0.0.1:{self.broker_port}"

    @property
    def web_url(self) -> str:
        return f"http://127.0.0.1:{self.web_port}"

    @property
    def pid(self) -> int:
        assert self._process is not None, "the server is not running"
        return self._process.pid

    @property
    def process_ids(self) -> list[int]:
        """Of all of its processes; none while it does not run."""
        try:
            return [each.pid for each in self._processes()] if self.is_running() else []
        except psutil.NoSuchProcess:
            return []

    @abstractmethod
    def command(self) -> list[str]:
        """The command line."""

    @abstractmethod
    def environment(self) -> dict[str, str]:
        """Environment variables of the command in addition to ours."""

    @abstractmethod
    def working_directory(self) -> Path:
        """Where the command runs."""

    def prepare_another_start(self) -> None:
        """Remove what a failed start left behind and the next one would be refused for."""
        return

    def flaw_of_start(self) -> str | None:
        """Why this start will come to nothing, although the process runs; None as far as known."""
        return None

    def is_ready(self) -> bool:
        """Whether a client can use it: metrics answer, public/default exists, a topic can be made.

        The last is not the same: after kill -9 real Pulsar answers all else for some seconds while
        its broker does not see its bookie yet ("Not enough non-faulty bookies available").
        """
        try:
            status, _ = self.http("GET", "/metrics", timeout_seconds=2.0)
            _, namespaces = self.http("GET", "/admin/v2/namespaces/public", timeout_seconds=2.0)
            if status >= 300 or "public/default" not in (namespaces or []):
                return False
            return self._can_make_a_topic()
        except (OSError, http.client.HTTPException, ValueError):
            return False

    def _can_make_a_topic(self) -> bool:
        path = f"/admin/v2/persistent/public/default/ready-{os.getpid()}-{next(_probe)}"
        status, _ = self.http("PUT", path)
        if status >= 300:
            return False
        self.http("DELETE", path + "?force=true")
        return True

    def is_running(self) -> bool:
        """Whether the process is there."""
        return self._process is not None and self._process.poll() is None

    def how_it_ended(self) -> str | None:
        """The report on a server that ended by itself; None while it runs or when we ended it."""
        if self._process is None or self._process.poll() is None:
            return None
        return f"{self.name} ended by itself with {self._process.returncode}"

    def start(self) -> None:
        """Start and wait until a client can use it.

        Raises: ServerFailed: it ended, or was not ready in time, at its last attempt.
        """
        assert not self.is_running(), "the server runs already"
        for attempt in range(1, self.start_attempts + 1):
            try:
                self._start_once()
            except ServerFailed as failed:
                if attempt == self.start_attempts:
                    raise
                warnings.warn(f"started again, because {failed}", RuntimeWarning, stacklevel=2)
                self.prepare_another_start()
            else:
                return

    def _start_once(self) -> None:
        begun = time.monotonic()
        with open(self.log_path, "ab") as log:
            self._log_size_at_start = log.tell()
            self._process = subprocess.Popen(
                self.command(),
                cwd=self.working_directory(),
                env=os.environ | self.environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        try:
            while not self.is_ready():
                ended = self.how_it_ended()
                if ended is not None:
                    raise ServerFailed(f"{ended} at start:\n{self.log_tail()}")
                if time.monotonic() - begun > START_TIMEOUT_SECONDS:
                    raise ServerFailed(f"{self.name} was not ready in time:\n{self.log_tail()}")
                time.sleep(0.05)
            flaw = self.flaw_of_start()
            if flaw is not None:
                raise ServerFailed(f"{self.name} is ready, but {flaw}:\n{self.log_tail()}")
        except BaseException:
            self.kill()
            raise
        self.ready_after_seconds = time.monotonic() - begun

    def stop(self) -> int | None:
        """SIGTERM and wait; the exit code. Killed when it does not end."""
        if self._process is None:
            return None
        self._signal(signal.SIGTERM)
        try:
            code = self._process.wait(STOP_TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            raise ServerFailed(f"{self.name} ignored SIGTERM:\n{self.log_tail()}") from None
        self._process = None
        return code

    def kill(self) -> None:
        """kill -9 of the whole process group."""
        if self._process is not None:
            self._signal(signal.SIGKILL)
            self._process.wait()
            self._process = None

    def close(self) -> None:
        """End it for good, with all that it runs on."""
        self.kill()

    def pause(self) -> None:
        """SIGSTOP: the server takes no CPU until `resume`."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        self._signal(signal.SIGCONT)

    def cpu_seconds(self) -> float:
        """User and system time of the server's processes so far."""
        total = 0.0
        for process in self._processes():
            times = process.cpu_times()
            total += times.user + times.system
        return total

    def cpu_by_kind(self) -> dict[str, float]:
        """The same by kind of process."""
        return {"broker": self.cpu_seconds()}

    @property
    def parts(self) -> list[ServerProcess]:
        """The servers that a benchmark measures together, each with a log of its own."""
        return [self]

    def resident_bytes(self) -> int:
        """Resident memory of the server's processes, each page counted once.

        That is the proportional set size: ZGC maps its heap at three addresses, so that plain
        resident size shows three times what a JVM holds.
        """
        return sum(process.memory_full_info().pss for process in self._processes())

    def log_of_start(self) -> str:
        """The output of the server since it was started."""
        with open(self.log_path, "rb") as log:
            log.seek(self._log_size_at_start)
            return log.read().decode(errors="replace")

    def log_tail(self, size_bytes: int = 3000) -> str:
        """The end of what the server printed."""
        if not self.log_path.is_file():
            return ""
        return self.log_path.read_bytes()[-size_bytes:].decode(errors="replace")

    def http(
        self, method: str, path: str, body: Any = None, timeout_seconds: float = 15.0
    ) -> tuple[int, Any]:
        """One HTTP request; status and the decoded body (text when it is no JSON)."""
        request = urllib.request.Request(
            self.web_url + path, method=method, headers=self.http_headers
        )
        data = None
        if body is not None:
            data = json.dumps(body).encode()
            request.add_header("Content-Type", "application/json")
        try:
            with urllib.request.urlopen(request, data, timeout=timeout_seconds) as answer:
                status, raw = answer.status, answer.read()
        except urllib.error.HTTPError as refused:
            with refused:
                status, raw = refused.code, refused.read()
        try:
            return status, json.loads(raw) if raw else None
        except ValueError:
            return status, raw.decode(errors="replace")

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None, "the server is not running"
        try:
            os.killpg(self._process.pid, number)
        except ProcessLookupError:
            pass  # it has ended by itself; wait() tells how

    def _processes(self) -> list[psutil.Process]:
        root = psutil.Process(self.pid)
        return [root, *root.children(recursive=True)]
