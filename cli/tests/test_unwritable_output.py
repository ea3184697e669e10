"""Processes whose stderr or stdout cannot be written: a full disk, no reader, a reader who does not
read, a closed descriptor. They serve all the same."""

from __future__ import annotations

import fcntl
import os
import select
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from runtime.testing.ports import free_ports

if TYPE_CHECKING:
    from collections.abc import Callable

ENVIRONMENT = {
    key: value for key, value in os.environ.items() if not key.startswith("PULSAR_PREFIX_")
}
TREE = Path(__file__).parents[2]
SECONDS_MAX = 240.0
WITH_SIGNALS = [sys.executable, "-m", "runtime.testing.default_signals"]
DROPPED = b" lines were dropped here: stderr could not be written: Broken pipe"
NO_FRAME = b"\xff" * 64


class Standalone:
    """A process whose output goes where the test says."""

    def __init__(self, *arguments: str, shell: str = 'exec "$@"', **files: object) -> None:
        self.broker_port, self.web_port = free_ports(2)
        command = [sys.executable, "-m", "cli", "standalone", *arguments]
        ports = ["--broker-port", str(self.broker_port), "--web-port", str(self.web_port)]
        self.process = subprocess.Popen(
            [*WITH_SIGNALS, "sh", "-c", shell, "sh", *command, *ports],
            env=ENVIRONMENT,
            cwd=TREE,
            **files,
        )

    def answers(self) -> bool:
        url = f"http://127.0.0.1:{self.web_port}/admin/v2/brokers/health"
        try:
            with urllib.request.urlopen(url, timeout=SECONDS_MAX) as answer:
                return answer.status == 200
        except OSError:
            return False

    def wait_until_it_serves(self) -> None:
        deadline = time.monotonic() + SECONDS_MAX
        while not self.answers():
            assert self.process.poll() is None, self.process.returncode
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def let_a_stranger_cause_a_line(self) -> None:
        """Returns when the broker has closed the stranger's connection."""
        with socket.create_connection(("127.0.0.1", self.broker_port), SECONDS_MAX) as stranger:
            stranger.sendall(NO_FRAME)
            while stranger.recv(4096):
                pass

    def stop(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(SECONDS_MAX)


@contextmanager
def standalone(*arguments: str, **given: object):
    running = Standalone(*arguments, **given)
    try:
        yield running
    finally:
        running.process.kill()
        running.process.wait()
        for file in (running.process.stdout, running.process.stderr):
            if file is not None:
                file.close()


def serves_strangers_and_stops(running: Standalone) -> None:
    running.wait_until_it_serves()
    for _ in range(3):
        running.let_a_stranger_cause_a_line()
    assert running.answers()
    assert running.stop() == 0


@contextmanager
def full_pipe():
    """The writing end of a pipe that nobody reads and that takes no byte more."""
    reading, writing = os.pipe()
    try:
        flags = fcntl.fcntl(writing, fcntl.F_GETFL)
        fcntl.fcntl(writing, fcntl.F_SETFL, flags | os.O_NONBLOCK)
        with suppress(BlockingIOError):
            while os.write(writing, bytes(4096)):
                pass
        fcntl.fcntl(writing, fcntl.F_SETFL, flags)
        yield writing
    finally:
        os.close(reading)
        os.close(writing)


@pytest.mark.parametrize("layout", [["--in-memory"], ["--bookies", "2"]])
def test_a_full_disk_below_stderr_stops_no_start_and_ends_no_broker(layout, tmp_path):
    directory = [] if layout == ["--in-memory"] else ["--data-dir", str(tmp_path / "data")]
    with (
        open("/dev/full", "wb") as full,
        standalone(*layout, *directory, stdout=subprocess.DEVNULL, stderr=full) as running,
    ):
        serves_strangers_and_stops(running)


def read_until(path: Path, is_enough: Callable[[bytes], bool], seconds_max: float) -> bytes:
    """What the writer of a FIFO says, until it is enough or the time is over."""
    said = b""
    deadline = time.monotonic() + seconds_max
    with open(path, "rb", opener=lambda name, _: os.open(name, os.O_RDONLY | os.O_NONBLOCK)) as log:
        while not is_enough(said) and (left := deadline - time.monotonic()) > 0:
            select.select([log], [], [], left)
            said += log.read() or b""
    return said


def test_lines_without_a_reader_are_counted_and_told_of_when_there_is_one(tmp_path):
    path = tmp_path / "log"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    writing = os.open(path, os.O_WRONLY)
    with standalone("--in-memory", stdout=subprocess.DEVNULL, stderr=writing) as running:
        os.close(writing)
        running.wait_until_it_serves()
        os.close(reader)
        said, strangers = b"", 0
        deadline = time.monotonic() + SECONDS_MAX
        while DROPPED not in said:  # the broker may write its lines when there is a reader again
            assert time.monotonic() < deadline
            running.let_a_stranger_cause_a_line()
            strangers += 1
            said += read_until(path, lambda data: DROPPED in data, 2.0)

        def lines(data: bytes) -> int:
            dropped = sum(int(each.rsplit(b"\n", 1)[-1]) for each in data.split(DROPPED)[:-1])
            return dropped + data.count(b"peer=127.0.0.1")

        said += read_until(path, lambda data: lines(said + data) >= strangers, SECONDS_MAX)
        assert lines(said) >= strangers  # the broker may have had another line to say
        assert running.answers()
        assert running.stop() == 0


def test_a_reader_of_stderr_who_does_not_read_stops_nothing():
    with (
        full_pipe() as full,
        standalone("--in-memory", stdout=subprocess.DEVNULL, stderr=full) as running,
    ):
        serves_strangers_and_stops(running)


def test_a_closed_stderr_is_not_the_file_that_is_opened_next(tmp_path):
    arguments = ["--data-dir", str(tmp_path / "data")]
    shell = 'exec "$@" 0<&- 1>&- 2>&-'
    with standalone(*arguments, shell=shell) as running:
        running.wait_until_it_serves()
        for number in range(3):
            assert os.readlink(f"/proc/{running.process.pid}/fd/{number}") == "/dev/null"
        serves_strangers_and_stops(running)


@pytest.mark.parametrize("where", ["full disk", "full pipe", "no reader"])
def test_a_ready_line_that_cannot_be_written_ends_no_broker(where):
    reading, no_reader = os.pipe()
    os.close(reading)
    with open("/dev/full", "wb") as full, full_pipe() as unread:
        out = {"full disk": full, "full pipe": unread, "no reader": no_reader}[where]
        with standalone("--in-memory", stdout=out, stderr=subprocess.PIPE) as running:
            serves_strangers_and_stops(running)
            said = running.process.stderr.read()
    os.close(no_reader)
    assert b"Traceback" not in said
    assert (b"the ready line cannot be written to stdout" in said) == (where != "full pipe")


def test_sigpipe_is_not_noticed():
    with standalone("--in-memory", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as running:
        running.wait_until_it_serves()
        running.process.send_signal(signal.SIGPIPE)
        serves_strangers_and_stops(running)


@pytest.mark.parametrize("layout", [["--in-memory"], ["--bookies", "2"]])
def test_the_end_of_a_terminal_is_a_stop_in_good_order(layout, tmp_path):
    directory = [] if layout == ["--in-memory"] else ["--data-dir", str(tmp_path / "data")]
    with standalone(
        *layout, *directory, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    ) as running:
        running.wait_until_it_serves()
        assert running.stop(signal.SIGHUP) == 0
        assert b"signal=SIGHUP" in running.process.stderr.read()


def test_a_process_under_nohup_outlives_the_terminal():
    with standalone(
        "--in-memory",
        shell='trap "" HUP; exec "$@"',
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as running:
        running.wait_until_it_serves()
        running.process.send_signal(signal.SIGHUP)
        serves_strangers_and_stops(running)


@pytest.mark.parametrize(
    "arguments",
    [["--help"], ["standalone", "--help"], ["tokens", "create-secret-key"], ["--version"]],
)
def test_output_that_cannot_be_written_is_one_line_and_a_failure(arguments):
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "cli", *arguments],
            stdout=full,
            stderr=subprocess.PIPE,
            env=ENVIRONMENT,
            cwd=TREE,
            timeout=SECONDS_MAX,
        )
    assert done.returncode == 1
    assert done.stderr == b"vela: cannot write to stdout: No space left on device\n"


def test_a_refusal_that_cannot_be_written_is_still_one():
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "cli", "standalone", "--config", "/nonexistent"],
            stderr=full,
            env=ENVIRONMENT,
            cwd=TREE,
            timeout=SECONDS_MAX,
        )
    assert done.returncode == 1
