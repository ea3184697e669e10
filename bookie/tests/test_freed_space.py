"""Large removed files give their space back, and nobody waits for it."""

from __future__ import annotations

import errno
import os
import threading
from contextlib import ExitStack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookie import disk
from bookie.disk import RealDisk
from bookie.errors import DiskFailed
from bookie.freed_space import (
    LOOK_SECONDS,
    PAUSE_SECONDS_MAX,
    PAUSE_SHARE,
    WAITING_BYTES_MAX,
    FreedSpace,
    pause_seconds,
)

STEP_BYTES = 4096


class UsedFile:
    """A file of this process."""

    def __init__(self, path):
        self.path = path
        self.is_open = True


def threads():
    return [each for each in threading.enumerate() if each.name == "free space"]


def ended():
    for thread in threads():
        thread.join(60)
    return not threads()


@pytest.mark.parametrize("size", [0, 1, STEP_BYTES, STEP_BYTES + 1, 50 * STEP_BYTES])
def test_a_removed_file_has_no_name_at_once_and_no_blocks_in_the_end(tmp_path, size):
    path = tmp_path / "file"
    path.write_bytes(b"x" * size)
    freed = FreedSpace(STEP_BYTES)
    with open(path, "rb") as file:
        freed.remove(str(path))
        assert not path.exists()
        assert ended()
        left = os.fstat(file.fileno()).st_size
    assert left == (size if size <= STEP_BYTES else 0)  # small ones are left to their last user


def test_many_files_are_freed_one_after_the_other_by_one_thread(tmp_path):
    freed = FreedSpace(STEP_BYTES)
    with ExitStack() as stack:
        files = []
        for number in range(20):
            path = tmp_path / str(number)
            path.write_bytes(b"x" * (10 * STEP_BYTES))
            files.append(stack.enter_context(open(path, "rb")))
            freed.remove(str(path))
            assert len(threads()) <= 1
        assert ended()
        assert [os.fstat(file.fileno()).st_size for file in files] == [0] * 20
    assert list(tmp_path.iterdir()) == []


def test_what_waits_is_counted_until_it_is_freed(tmp_path):
    freed = FreedSpace(STEP_BYTES)
    path = tmp_path / "file"
    path.write_bytes(b"x" * (3 * STEP_BYTES + 1))
    file = UsedFile(str(path))
    freed.opened(lambda: file)
    freed.remove(str(path))
    assert freed.waiting_bytes == 3 * STEP_BYTES + 1
    file.is_open = False
    assert ended()
    assert freed.waiting_bytes == 0


def test_what_cannot_be_cut_waits_no_more(tmp_path, monkeypatch):
    def refuse(descriptor, size):
        raise OSError(errno.EIO, "no")

    monkeypatch.setattr(os, "ftruncate", refuse)
    freed = FreedSpace(STEP_BYTES)
    path = tmp_path / "file"
    path.write_bytes(b"x" * (2 * STEP_BYTES))
    freed.remove(str(path))
    assert ended()
    assert freed.waiting_bytes == 0
    with pytest.raises(OSError, match="no"):
        freed.check()


@given(st.integers(0, 2 * WAITING_BYTES_MAX), st.integers(0, 2 * WAITING_BYTES_MAX))
def test_the_more_waits_the_shorter_are_the_pauses(one, other):
    less, more = sorted((one, other))
    step_seconds = 0.01
    assert PAUSE_SHARE * step_seconds >= pause_seconds(step_seconds, less)
    assert pause_seconds(step_seconds, less) >= pause_seconds(step_seconds, more) >= 0
    assert pause_seconds(step_seconds, 0) == PAUSE_SHARE * step_seconds
    assert pause_seconds(step_seconds, WAITING_BYTES_MAX) == 0


def test_a_process_that_was_stopped_within_a_step_does_not_pause_as_long():
    """A benchmark stopped the server for two minutes, and it freed nothing for eight more."""
    assert pause_seconds(120.0, 0) == PAUSE_SECONDS_MAX


def test_a_file_that_is_not_there_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        RealDisk().remove(str(tmp_path / "no"))


@pytest.mark.parametrize("call", ["fsync", "ftruncate"])
def test_a_failing_disk_while_space_is_freed_stops_the_bookie(tmp_path, monkeypatch, call):
    """The kernel tells a failed sync of a directory once, here to the thread that frees."""
    monkeypatch.setattr(disk, "_FREED", FreedSpace(STEP_BYTES))
    path = str(tmp_path / "log")
    real = RealDisk()
    real.create(path).truncate(2 * STEP_BYTES)

    def fails(*_arguments):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patched:
        patched.setattr(os, call, fails)
        real.remove(path)
        assert ended()
    for _ in range(2):
        with pytest.raises(DiskFailed, match="Input/output error"):
            real.sync_directory(str(tmp_path))


@pytest.mark.parametrize("how", ["closed", "dropped"])
def test_a_removed_file_is_whole_for_those_that_have_it_open(tmp_path, monkeypatch, how):
    monkeypatch.setattr(disk, "_FREED", FreedSpace(STEP_BYTES))
    path, content = str(tmp_path / "log"), b"x" * (10 * STEP_BYTES)
    real = RealDisk()
    written = real.create(path)
    written.write_at(0, content)
    written.close()
    reader = real.open(path)
    with open(path, "rb") as file:
        real.remove(path)
        [thread] = threads()
        thread.join(3 * LOOK_SECONDS)
        assert thread.is_alive()
        assert reader.read_at(0, len(content)) == content
        if how == "closed":
            reader.close()
        del reader
        assert ended()
        assert os.fstat(file.fileno()).st_size == 0
