"""A server that fails at start leaves no process behind; only the oracle may be started again."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import psutil
import pytest

from compat_tests.oracle.pulsar_server import PulsarServer
from compat_tests.oracle.server_process import ServerFailed, ServerProcess
from compat_tests.oracle.vela_server import VelaServer

if TYPE_CHECKING:
    from pathlib import Path


class Program(ServerProcess):
    """A Python text as the server; it is ready when it has written the file `ready`."""

    name = "program"

    def __init__(self, directory: Path, text: str) -> None:
        super().__init__(directory, broker_port=1, web_port=1)
        self._text = text
        self.pids: list[int] = []

    def command(self) -> list[str]:
        return [sys.executable, "-c", self._text]

    def environment(self) -> dict[str, str]:
        return {}

    def working_directory(self) -> Path:
        return self.directory

    def is_ready(self) -> bool:
        if self.pid not in self.pids:
            self.pids.append(self.pid)
        return (self.directory / "ready").exists()


ENDS = "import sys; print('no room'); sys.exit(3)"
ENDS_ONCE = """
import pathlib, sys, time
if not pathlib.Path("first").exists():
    pathlib.Path("first").touch()
    sys.exit("no room")
pathlib.Path("ready").touch()
time.sleep(60)
"""


def test_a_server_that_ends_at_start_tells_its_code_and_its_last_words(tmp_path: Path):
    server = Program(tmp_path, ENDS)
    with pytest.raises(ServerFailed, match=r"(?s)ended by itself with 3 at start.*no room"):
        server.start()
    assert len(server.pids) == 1
    assert not server.is_running()
    assert server.stop() is None


def test_an_error_while_it_starts_leaves_no_process(tmp_path: Path):
    class Interrupted(Program):
        def is_ready(self) -> bool:
            super().is_ready()
            raise KeyboardInterrupt

    server = Interrupted(tmp_path, "import time; time.sleep(60)")
    with pytest.raises(KeyboardInterrupt):
        server.start()
    assert not psutil.pid_exists(server.pids[0])


def test_a_second_attempt_is_told_with_its_reason(tmp_path: Path):
    server = Program(tmp_path, ENDS_ONCE)
    server.start_attempts = 2
    try:
        with pytest.warns(RuntimeWarning, match=r"(?s)program ended by itself with 1.*no room"):
            server.start()
        assert server.is_running()
        assert server.how_it_ended() is None
    finally:
        server.kill()
    assert server.how_it_ended() is None


class Flawed(Program):
    """Says in its first start that its bookie comes and goes."""

    def flaw_of_start(self) -> str | None:
        return "it is flawed" if "come and go" in self.log_of_start() else None


FLAWED_ONCE = """
import pathlib, time
if not pathlib.Path("ready").exists():
    print("come and go", flush=True)
pathlib.Path("ready").touch()
time.sleep(60)
"""


def test_a_start_with_a_flaw_has_failed_and_a_later_one_is_judged_by_its_own_log(tmp_path: Path):
    server = Flawed(tmp_path, FLAWED_ONCE)
    server.start_attempts = 2
    try:
        with pytest.warns(RuntimeWarning, match="program is ready, but it is flawed"):
            server.start()
        assert server.is_running()
        assert not psutil.pid_exists(server.pids[0])
    finally:
        server.kill()


def test_only_the_oracle_is_started_again():
    assert VelaServer.start_attempts == 1
    assert PulsarServer.start_attempts > 1
