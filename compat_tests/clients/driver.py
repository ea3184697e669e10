"""A client program in another language, kept running and asked to run one scenario at a time.

The conversation is in lines. We write a request (JSON: scenario, service_url, web_url, topic,
keys); the program answers with one JSON line per observation, `["what", value]`, and at last
`{"end": "ok"}` or `{"end": "failed", "why": text}`. In between it may write `{"ask": "stop"}`,
`"kill"` or `"start"`: we do that to the server and answer `done`.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import threading
import time
from typing import TYPE_CHECKING

from compat_tests.oracle.comparison import ScenarioFailed, Trace

if TYPE_CHECKING:
    from pathlib import Path

    from compat_tests.oracle.server_process import ServerProcess

SCENARIO_TIMEOUT_SECONDS = 120.0
# The stock clients try again after at most a minute; a scenario gets that for every restart.
RECONNECT_SECONDS_MAX = 60.0


class ClientAbsent(Exception):
    """The client's language is not installed here; the text says what is missing."""


def _do(asked: str, server: ServerProcess) -> None:
    {"stop": server.stop, "kill": server.kill, "start": server.start}[asked]()


class Driver:
    """One program for one server; started when first needed, and again after it hung or died."""

    def __init__(
        self,
        client: str,
        command: list[str],
        log_path: Path,
        keys: Path,
        timeout_seconds: float = SCENARIO_TIMEOUT_SECONDS,
    ) -> None:
        self._client = client
        self._command = command
        self._log_path = log_path
        self._keys = keys
        self._timeout_seconds = timeout_seconds
        self._process: subprocess.Popen[str] | None = None
        self._lines: queue.Queue[str | None] = queue.Queue()

    def play(
        self,
        scenario: str,
        server: ServerProcess,
        mark: str = "",
        topic: str = "",
        keys: Path | None = None,
    ) -> Trace:
        """Run the scenario, on a topic (`tenant/namespace/name`) of its own unless told,
        its name followed by a mark, and with the usual keys or others; raises ScenarioFailed with
        what was seen until then."""
        self._ensure_running()
        self._write(
            json.dumps(
                {
                    "scenario": scenario,
                    "service_url": server.service_url,
                    "web_url": server.web_url,
                    "topic": topic or f"public/default/{self._client}-{scenario}{mark}",
                    "keys": str(keys or self._keys),
                }
            )
        )
        trace: Trace = []
        deadline = time.monotonic() + self._timeout_seconds
        while True:
            try:
                line = self._lines.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                self.close()
                raise ScenarioFailed("no end within the time allowed", trace) from None
            if line is None:
                self.close()
                raise ScenarioFailed("the client program died; see its log", trace)
            event = json.loads(line)
            if isinstance(event, list):
                trace.append(event)
            elif "ask" in event:
                begun = time.monotonic()
                try:
                    _do(event["ask"], server)
                except Exception as failed:
                    self.close()  # it is in the middle of a scenario and waits for our answer
                    raise ScenarioFailed(f"{event['ask']}: {failed}", trace) from failed
                deadline += time.monotonic() - begun + RECONNECT_SECONDS_MAX
                self._write("done")
            elif event["end"] == "ok":
                return trace
            else:
                raise ScenarioFailed(event["why"], trace)

    def close(self) -> None:
        """End the program."""
        if self._process is not None:
            try:
                os.killpg(self._process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass  # it has ended by itself
            self._process.wait()
            for stream in (self._process.stdin, self._process.stdout):
                if stream is not None:
                    try:
                        stream.close()
                    except OSError:
                        pass  # unread requests of a dead program
            self._process = None

    def _ensure_running(self) -> None:
        if self._process is not None and self._process.poll() is None:
            return
        self.close()
        self._lines = queue.Queue()
        with open(self._log_path, "ab") as log:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                encoding="utf-8",
                start_new_session=True,
            )
        threading.Thread(target=self._read, args=(self._process, self._lines), daemon=True).start()

    @staticmethod
    def _read(process: subprocess.Popen[str], lines: queue.Queue[str | None]) -> None:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                lines.put(line)
        except ValueError:
            pass  # closed under us by close()
        lines.put(None)

    def _write(self, line: str) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
