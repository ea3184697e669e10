"""A server process that can be started, killed and started again on the same data and ports."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import final

from runtime.testing.ports import free_ports

TREE = Path(__file__).resolve().parents[1]
VELA = (
    f"{sys.executable} -m cli standalone --data-dir {{data_dir}} "
    "--broker-port {broker_port} --web-port {web_port}"
)
READY_LINE = "vela standalone ready: "


class ServerFailed(Exception):
    """The server ended by itself, or was not ready in time; the text holds its last lines."""


@final
class ServerProcess:
    """`command` may hold {data_dir}, {broker_port} and {web_port}.

    Ready is the line that vela prints, or the first good answer of `ready_url` when there is one
    (for other servers).
    """

    def __init__(self, directory: Path, command: str = VELA, ready_url: str = "") -> None:
        self.directory = directory
        self.broker_port, self.web_port = free_ports(2)
        fields = {
            "data_dir": str(directory / "data"),
            "broker_port": self.broker_port,
            "web_port": self.web_port,
        }
        self._command = shlex.split(command.format(**fields))
        self._ready_url = ready_url.format(**fields)
        self._log = directory / "server.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._started_at = 0.0
        self._log_start = 0

    @property
    def service_url(self) -> str:
        """Where clients connect."""
        return f"pulsar://127.0.0.1:{self.broker_port}"

    @property
    def pid(self) -> int:
        """Process id of the one that was started."""
        assert self._process is not None
        return self._process.pid

    def resident_mb(self) -> float:
        """Resident memory now."""
        fields = Path(f"/proc/{self.pid}/statm").read_text(encoding="ascii").split()
        return int(fields[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6

    def resident_peak_mb(self) -> float:
        """The highest there was since the start, as the kernel has seen it (Linux)."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        line = next(line for line in status.splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024 / 1e6

    def start(self) -> None:
        """Start the process; it is not ready yet."""
        self.directory.mkdir(parents=True, exist_ok=True)
        with self._log.open("ab") as log:
            self._log_start = log.tell()
            self._started_at = time.monotonic()
            self._process = subprocess.Popen(
                self._command,
                cwd=TREE,  # Vela of this tree, wherever we were started
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def wait_ready(self, timeout_seconds: float) -> float:
        """Wait until clients can use it; returns the seconds since the start.

        Raises: ServerFailed; the process has ended then.
        """
        deadline = self._started_at + timeout_seconds
        while not self._is_ready():
            if self.has_ended():
                self.wait_ended()
                raise ServerFailed(f"ended before it was ready:\n{self.last_lines()}")
            if time.monotonic() > deadline:
                self.kill()
                self.wait_ended()
                raise ServerFailed(f"not ready in {timeout_seconds} s:\n{self.last_lines()}")
            time.sleep(0.01)
        return time.monotonic() - self._started_at

    def kill(self) -> None:
        """SIGKILL, at once; safe from any thread and when it has ended already."""
        process = self._process
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)

    def wait_ended(self) -> None:
        """Reap it."""
        if self._process is not None:
            self._process.wait(60)
            self._process = None

    def has_ended(self) -> bool:
        """Whether it ended, by itself or killed."""
        return self._process is None or self._process.poll() is not None

    def last_lines(self, count: int = 30) -> str:
        """The end of what the current incarnation printed."""
        return "\n".join(self._output().splitlines()[-count:])

    def count_of(self, text: str) -> int:
        """How often the current incarnation has printed it."""
        count = 0
        tail = b""
        wanted = text.encode()
        with self._log.open("rb") as log:
            log.seek(self._log_start)
            while chunk := log.read(1 << 20):
                chunk = tail + chunk
                count += chunk.count(wanted)
                tail = chunk[-len(wanted) + 1 :] if len(wanted) > 1 else b""
        return count

    def _output(self) -> str:
        with self._log.open("rb") as log:
            log.seek(self._log_start)
            return log.read(2_000_000).decode(errors="replace")

    def _is_ready(self) -> bool:
        if not self._ready_url:
            return any(line.startswith(READY_LINE) for line in self._output().splitlines())
        try:
            with urllib.request.urlopen(self._ready_url, timeout=5) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False
