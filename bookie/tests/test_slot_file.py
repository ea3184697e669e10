"""A value that is overwritten in place: one slot may be damaged, and that is reported."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from bookie.disk import RealDisk
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
