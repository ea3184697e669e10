"""One `pulsar-perf` process of the distribution, and what its log lines say.

pulsar-perf prints a line of its own every ten seconds, with the number of messages so far and the
latencies of just those ten seconds. A measurement runs from one such line to a later one, so the
start of its own JVM, which its "Aggregated throughput" includes, is never in it.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
import time
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, TypeVar

from bench import oracle

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.subject import Subject

T = TypeVar("T")

WINDOW_SECONDS = 10.0
_NUMBER = r"\s*([\d.,]+)"
_WINDOW = re.compile(
    rf"Throughput (?:produced|received):{_NUMBER} msg ---{_NUMBER}\s+msg/s"
    rf".*?med:{_NUMBER}(?: ms)? - 95pct:{_NUMBER}(?: ms)? - 99pct:{_NUMBER}"
)
_FAILURES = re.compile(rf"--- failure{_NUMBER} msg/s")
_LEVEL = re.compile(r"^\d{4}-\d\d-\d\dT\S+ \[[^\]]*\] (ERROR|WARN)\b")
_TROUBLE = re.compile(r"error|exception|failed|timed? ?out|closed|disconnect", re.IGNORECASE)
LOOK_SECONDS = 1.0
_STAMP = re.compile(r"^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d,\d{3})")


class PerfFailed(Exception):
    """pulsar-perf ended early, said nothing or had errors; the text carries what it printed."""


@dataclass(frozen=True)
class Window:
    """One of its ten-second lines; `messages` counts from the start of the program."""

    printed_at: float
    messages: int
    rate: float
    p50_ms: float
    p99_ms: float


def _number(text: str) -> float:
    return float(text.replace(",", ""))


def parse_window(line: str, read_at: float) -> Window | None:
    """The window a line tells of, None for any other line."""
    found = _WINDOW.search(line)
    if found is None:
        return None
    messages, rate, p50, _, p99 = (_number(part) for part in found.groups())
    return Window(stamp_of(line) or read_at, int(messages), rate, p50, p99)


def stamp_of(line: str) -> float | None:
    """The time a log line says it was written at."""
    found = _STAMP.match(line)
    if found is None:
        return None
    return datetime.strptime(found[1], "%Y-%m-%dT%H:%M:%S,%f").timestamp()


def problem_in(line: str) -> str | None:
    """The line itself when it tells of an error, so that what was measured does not count."""
    failures = _FAILURES.search(line)
    if failures is not None and _number(failures[1]) > 0:
        return line.strip()
    level = _LEVEL.match(line)
    if level is None or (level[1] == "WARN" and not _TROUBLE.search(line[level.end() :])):
        return None
    return line.strip()


class PerfClient:
    """A running pulsar-perf; used as a context manager, ended with its process group.

    `look` is called about every second while something is waited for, and may raise.
    """

    def __init__(
        self,
        server: Subject,
        arguments: list[str],
        look: Callable[[], None] = lambda: None,
    ) -> None:
        self._look = look
        log_directory = server.directory / "perf-logs"
        self._lines: list[tuple[float, str]] = []
        self._changed = threading.Condition()
        self._ended = False
        release = oracle.chosen()
        command = [*release.perf_command(log_directory), arguments[0], "-u", server.service_url]
        command += server.perf_arguments
        self._process = subprocess.Popen(
            [*command, *arguments[1:]],
            env=os.environ | release.perf_environment(log_directory),
            cwd=server.directory,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> PerfClient:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass  # it has ended by itself
        self._process.wait()
        self._reader.join()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def wait_line(self, text: str, timeout_seconds: float = 120.0) -> float:
        """Wait for a line with this text; the time it was written at."""

        def find() -> float | None:
            for read_at, line in self._lines:
                if text in line:
                    return stamp_of(line) or read_at
            return None

        return self._wait(find, f"the line {text!r}", timeout_seconds)

    def windows(self) -> list[Window]:
        """Its lines so far."""
        with self._changed:
            told = [parse_window(line, read_at) for read_at, line in self._lines]
        return [window for window in told if window is not None]

    def problems(self) -> list[str]:
        """The lines that tell of errors."""
        with self._changed:
            told = [problem_in(line) for _, line in self._lines]
        return [problem for problem in told if problem is not None]

    def wait_begun(self, messages: int = 1, timeout_seconds: float = 120.0) -> int:
        """Wait for the first line that has so many messages in it, and give its number.

        That line holds the start of the clients; a measurement begins where it ends.
        """

        def find() -> int | None:
            for index, window in enumerate(self.windows()):
                if window.messages >= messages:
                    return index
            return None

        return self._wait(find, "its first line with messages", timeout_seconds)

    def wait_window(self, index: int, timeout_seconds: float = 120.0) -> Window:
        """Wait for its line number `index`, counted from 0."""

        def find() -> Window | None:
            there = self.windows()
            return there[index] if len(there) > index else None

        return self._wait(find, f"its line number {index}", timeout_seconds)

    def _wait(self, find: Callable[[], T | None], what: str, timeout_seconds: float) -> T:
        deadline = time.monotonic() + timeout_seconds
        with self._changed:
            while True:
                self._look()
                found = find()
                if found is not None:
                    return found
                left = deadline - time.monotonic()
                if self._ended or left <= 0:
                    why = "ended" if self._ended else "was silent"
                    told = "".join(line[:300] for _, line in self._lines[-12:])
                    raise PerfFailed(f"pulsar-perf {why} before {what} came:\n{told}")
                self._changed.wait(min(left, LOOK_SECONDS))

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with self._changed:
                self._lines.append((time.time(), line))
                self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()
