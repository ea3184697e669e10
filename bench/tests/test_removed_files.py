"""Removed files that a server has open take disk space: the benchmark counts it, and waits for it.

The server here is a process that frees a removed file step by step, as Vela does.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import psutil
import pytest

from bench import session as session_module
from bench.disk_room import REMOVED_BYTES_MAX, removed_bytes, used_bytes
from bench.scenarios import Bench
from bench.session import Session
from compat_tests.oracle.server_process import ServerProcess
from runtime.testing.ports import free_ports

if TYPE_CHECKING:
    from pathlib import Path

MEBIBYTE = 2**20
PROGRAM = """
import http.server, os, sys, threading, time

port, size, step, pause = int(sys.argv[1]), *map(float, sys.argv[2:])
file = open("removed", "wb")
os.posix_fallocate(file.fileno(), 0, int(size))
os.unlink("removed")

def free():
    left = size
    while left > 0 and step:
        time.sleep(pause)
        left = max(0, left - step)
        os.ftruncate(file.fileno(), int(left))

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"[]")

threading.Thread(target=free, daemon=True).start()
http.server.HTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""


class Freeing(ServerProcess):
    """Has `size_bytes` of a removed file, and frees `step_bytes` of it after each pause."""

    name = "vela"

    def __init__(self, directory: Path, size_bytes: int, step_bytes: int) -> None:
        broker_port, web_port = free_ports(2)
        super().__init__(directory, broker_port, web_port)
        self._arguments = [str(each) for each in (web_port, size_bytes, step_bytes, 0.05)]

    def command(self) -> list[str]:
        return [sys.executable, "-c", PROGRAM, *self._arguments]

    def environment(self) -> dict[str, str]:
        return {}

    def working_directory(self) -> Path:
        return self.directory

    def is_ready(self) -> bool:
        try:
            return self.http("GET", "/")[0] == 200
        except OSError:
            return False


def is_stopped(server: Freeing) -> bool:
    """Whether it is soon: a signal takes effect when the process is next scheduled."""
    deadline = time.monotonic() + 10
    process = psutil.Process(server.pid)
    while process.status() != psutil.STATUS_STOPPED:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


pytestmark = pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="there is no /proc")


def test_a_removed_file_counts_as_long_as_a_process_has_it_open(tmp_path: Path):
    server = Freeing(tmp_path / "server", 16 * MEBIBYTE, 0)
    server.start()
    try:
        assert removed_bytes(server.process_ids, server.directory) >= 16 * MEBIBYTE
        assert used_bytes(server) >= 16 * MEBIBYTE
    finally:
        server.kill()
    assert server.process_ids == []
    assert used_bytes(server) < MEBIBYTE


def test_a_removed_file_counts_once_and_files_with_a_name_not_at_all(tmp_path: Path):
    removed, named = tmp_path / "removed", tmp_path / "named"
    for path in (removed, named):
        path.write_bytes(b"x" * MEBIBYTE)
    with open(removed, "rb"), open(removed, "rb"), open(named, "rb"):
        removed.unlink()
        again = removed_bytes([os.getpid(), os.getpid()], tmp_path)
    assert MEBIBYTE <= again < 2 * MEBIBYTE


def test_a_process_that_has_ended_has_nothing(tmp_path: Path):
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    assert removed_bytes([ended.pid], tmp_path) == 0


def _session(directory: Path, server: Freeing) -> tuple[Session, list[str]]:
    told: list[str] = []
    bench = Bench(windows=1, catch_up_messages=0, cold_messages_per_topic=0)
    session = Session(bench, directory, told.append, warm=None, make=lambda _name, _where: server)
    return session, told


def test_a_server_is_stopped_after_it_has_freed_what_it_removed(tmp_path: Path):
    server = Freeing(tmp_path / "server", REMOVED_BYTES_MAX + 64 * MEBIBYTE, 8 * MEBIBYTE)
    session, told = _session(tmp_path, server)
    try:
        session.start(["vela"])
        assert is_stopped(server)
        assert removed_bytes(server.process_ids, server.directory) <= REMOVED_BYTES_MAX
        assert told == []
    finally:
        session.close()


def test_a_server_that_frees_nothing_is_told_of_and_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(session_module, "FREE_SECONDS_MAX", 0.2)
    server = Freeing(tmp_path / "server", REMOVED_BYTES_MAX + MEBIBYTE, 0)
    session, told = _session(tmp_path, server)
    try:
        session.start(["vela"])
        assert is_stopped(server)
        assert told == ["waited in vain until vela has freed the files that it removed"]
    finally:
        session.close()
