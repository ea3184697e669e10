"""Directories of processes: they go with their process, however it ends."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from runtime.process_directory import LOCK_NAME, process_directory, remove_left

PREFIX = "vela-test-"
SECONDS_MAX = 60
HOLDER = """
import sys, time
from runtime.process_directory import process_directory
with process_directory("vela-test-") as directory:
    print(directory, flush=True)
    time.sleep(600)
"""


@pytest.fixture
def place(tmp_path, monkeypatch):
    """Where temporary files are."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def holder(place):
    """A process with a directory, and the directory."""
    started = subprocess.Popen(
        [sys.executable, "-c", HOLDER],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(place)},
        cwd=Path(__file__).parents[2],
    )
    return started, Path(started.stdout.readline().strip())


def end(process, number):
    process.send_signal(number)
    process.wait(SECONDS_MAX)
    process.stdout.close()


def test_a_directory_and_its_sockets_go_at_the_end(place):
    with process_directory(PREFIX) as directory, socket.socket(socket.AF_UNIX) as listening:
        listening.bind(f"{directory}/a.sock")
        assert os.listdir(place) == [os.path.basename(directory)]
    assert os.listdir(place) == []


def test_the_directory_of_a_killed_process_is_removed_and_that_of_a_live_one_stays(place):
    killed, left = holder(place)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(left / "metadata.sock"))
    end(killed, signal.SIGKILL)
    assert left.is_dir()
    live, held = holder(place)
    try:
        assert not left.exists()
        with process_directory(PREFIX) as directory:
            assert {held.name, os.path.basename(directory)} == set(os.listdir(place))
    finally:
        end(live, signal.SIGKILL)


def test_a_directory_with_other_files_and_those_of_others_stay(place):
    for name in ("vela-test-files", "vela-test-no-lock", "vela-other", "vela-test-empty"):
        (place / name).mkdir()
    (place / "vela-test-files" / LOCK_NAME).touch()
    (place / "vela-test-files" / "kept").touch()
    (place / "vela-test-no-lock" / "kept").touch()
    (place / "vela-test-link").symlink_to(place / "vela-other")
    (place / "vela-test-file").touch()
    remove_left(PREFIX)
    assert (place / "vela-test-files" / "kept").exists()
    assert not (place / "vela-test-empty").exists()
    assert {"vela-test-no-lock", "vela-other", "vela-test-link", "vela-test-file"} <= set(
        os.listdir(place)
    )


@pytest.mark.parametrize("make", [os.symlink, os.link])
def test_a_lock_that_is_a_link_to_another_file_leaves_that_as_it_is(place, make):
    """The number of the process was written into it."""
    (place / "kept").write_text("kept")
    (place / "vela-test-link").mkdir()
    make(place / "kept", place / "vela-test-link" / LOCK_NAME)
    remove_left(PREFIX)
    assert (place / "kept").read_text() == "kept"


def test_a_place_that_cannot_be_listed_is_no_obstacle(place, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(place / "none"))
    remove_left(PREFIX)
