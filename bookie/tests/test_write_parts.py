"""Writing parts is writing them joined, whatever their number and sizes."""

from __future__ import annotations

import resource
import signal

import pytest

from bookie.disk import PARTS_PER_CALL_MAX, RealDisk
from bookie.errors import DiskFailed
from bookie.memory_disk import MemoryDisk


@pytest.mark.parametrize("disk", [RealDisk(), MemoryDisk()], ids=["real", "memory"])
@pytest.mark.parametrize(
    "sizes",
    [
        [],
        [5, 0, 3],
        [100_000],
        [4, 36, 131_072] * 3,
        [5_000] * (PARTS_PER_CALL_MAX + 3),
        [10] * (PARTS_PER_CALL_MAX + 3),
    ],
    ids=["none", "small", "one-large", "records", "many-large", "many-small"],
)
def test_parts_are_written_one_behind_the_other(disk, sizes, tmp_path):
    file = disk.create(str(tmp_path / "file"))
    parts = [bytes([number % 251]) * size for number, size in enumerate(sizes)]
    file.write_parts_at(7, parts)
    assert file.read_at(7, sum(sizes) + 1) == b"".join(parts)
    file.write_parts_synced_at(9, parts)
    assert file.read_at(9, sum(sizes) + 1) == b"".join(parts)
    file.close()


def test_a_synced_write_beyond_the_space_there_is_says_so(tmp_path):
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    file = RealDisk().create(str(tmp_path / "file"))
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8192, limit[1]))
    try:
        with pytest.raises(DiskFailed, match="writing"):
            file.write_parts_synced_at(4096, [b"x" * 5000, b"y" * 5000])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        signal.signal(signal.SIGXFSZ, before)
    file.close()
