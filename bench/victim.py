"""The client whose latency is measured, as a process of its own, and what goes wrong with it."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from multiprocessing.connection import wait
from typing import TYPE_CHECKING, Any, Final

from compat_tests.oracle.distribution import TREE

if TYPE_CHECKING:
    from collections.abc import Sequence

ANSWER_SECONDS_MAX: Final = 90.0
WARM_UP_SECONDS: Final = 2.0
_MODULE: Final = (sys.executable, "-m")


class MeasureFailed(Exception):
    """A measurement does not count. The text says why."""


class Program:
    """A child that answers lines with lines."""

    def __init__(self, *arguments: str, command: Sequence[str] = _MODULE) -> None:
        self._process = subprocess.Popen(
            [*command, *arguments],
            cwd=TREE,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._process.pid

    def tell(self, line: str) -> None:
        """Write it to the input of the program."""
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def line(self, seconds_max: float) -> str:
        """The next one. Raises: MeasureFailed."""
        assert self._process.stdout is not None
        if not wait([self._process.stdout.fileno()], seconds_max):
            raise MeasureFailed(f"no word in {seconds_max:g} s")
        line = self._process.stdout.readline()
        if not line:
            raise MeasureFailed(f"the program ended with {self._process.wait()}")
        return line

    def finish(self) -> str:
        """End its input, and return its last line. Raises: MeasureFailed."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        return self.line(ANSWER_SECONDS_MAX)

    def close(self) -> None:
        """End it."""
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with contextlib.suppress(BrokenPipeError):
                pipe.close()
        self._process.kill()
        self._process.wait()


class Victim:
    """`flood_victim`, connected and warmed up when it is made."""

    def __init__(self, url: str, topic: str, *arguments: str) -> None:
        """Raises: MeasureFailed."""
        self._program = Program("bench.flood_victim", url, topic, *arguments)
        try:
            self._program.line(ANSWER_SECONDS_MAX)
            self.figures(WARM_UP_SECONDS)
        except MeasureFailed:
            self.close()
            raise

    def figures(self, seconds: float, rate: int | None = None) -> dict[str, Any]:
        """Its latencies over so long; `rate`: messages a second. Raises: MeasureFailed."""
        self._program.tell(f"{seconds} {rate or ''}")
        measured: dict[str, Any] = json.loads(self._program.line(seconds + ANSWER_SECONDS_MAX))
        if "failed" in measured:
            raise MeasureFailed(measured["failed"])
        return measured

    def close(self) -> None:
        """Disconnect."""
        self._program.close()
