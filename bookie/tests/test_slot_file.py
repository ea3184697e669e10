"""A value that is overwritten in place: one slot may be damaged, and that is reported."""

from __future__ import annotations

import errno
import os

import pytest
from structlog.testing import capture_logs

from bookie.disk import RealDisk
from bookie.errors import DiskFailed, DiskFull
from bookie.slot_file import SLOT_SIZE, SlotFile


@pytest.mark.parametrize(("slot", "found"), [(0, b"one"), (1, b"two")])
def test_a_damaged_slot_is_reported_and_the_other_one_counts(tmp_path, slot, found):
    path = tmp_path / "value"
    file = SlotFile(RealDisk(), str(path))
    file.load()
    file.store(b"one")  # at SLOT_SIZE
    file.store(b"two")  # at 0
    content = bytearray(path.read_bytes())
    content[slot * SLOT_SIZE + 17] ^= 1
    path.write_bytes(content)
    with capture_logs() as logs:
        assert SlotFile(RealDisk(), str(path)).load() == found
    assert [(each["log_level"], each["offset"]) for each in logs] == [("error", slot * SLOT_SIZE)]


def test_a_whole_file_is_read_without_a_word(tmp_path):
    path = tmp_path / "value"
    file = SlotFile(RealDisk(), str(path))
    file.load()
    file.store(b"one")
    with capture_logs() as logs:
        assert SlotFile(RealDisk(), str(path)).load() == b"one"
    assert logs == []


class FullOnce:
    """In the place of `os.pwritev`: the first synced write finds no space after a part of it."""

    def __init__(self):
        self._write = os.pwritev
        self._is_full = True

    def __call__(self, descriptor, parts, offset, flags=0):
        if flags and self._is_full:
            self._is_full = False
            os.pwrite(descriptor, bytes(parts[0])[:12], offset)
            raise OSError(errno.ENOSPC, "No space left on device")
        return self._write(descriptor, parts, offset, flags)


def test_a_value_that_found_no_space_leaves_the_one_before_and_is_written_again_whole(
    tmp_path, monkeypatch
):
    path = str(tmp_path / "value")
    file = SlotFile(RealDisk(), path)
    file.load()
    file.store(b"before")
    monkeypatch.setattr(os, "pwritev", FullOnce())
    with pytest.raises(DiskFull):
        file.store(b"lost")
    assert SlotFile(RealDisk(), path).load() == b"before"
    file.store(b"after")
    assert SlotFile(RealDisk(), path).load() == b"after"


def test_a_sync_of_a_file_that_finds_no_space_is_final(tmp_path, monkeypatch):
    def full(_descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    file = RealDisk().create(str(tmp_path / "log"))
    monkeypatch.setattr(os, "fdatasync", full)
    with pytest.raises(DiskFailed, match="the bookie stops and does not retry"):
        file.sync()
    file.close()
