"""Reads past the page cache: the same bytes, once."""

from __future__ import annotations

import os
import random
import threading
from pathlib import Path
from tempfile import mkdtemp

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bookie import direct_reads
from bookie.direct_reads import DIRECT_READ_BYTES_MIN, MEMORY_BYTES, DirectReads
from bookie.disk import RealDisk

PAGE = 4096


def opened(path):
    file = RealDisk().open(str(path))
    file.expect_runs()
    return file


@given(
    size=st.sampled_from([0, 1, PAGE, 3 * DIRECT_READ_BYTES_MIN + 1, 2 << 20, (2 << 20) + 777]),
    reads=st.lists(
        st.tuples(
            st.integers(0, 3 << 20),
            st.one_of(
                st.integers(1, 2 * DIRECT_READ_BYTES_MIN),
                st.sampled_from([DIRECT_READ_BYTES_MIN, 1 << 20, MEMORY_BYTES, 2 << 20]),
            ),
        ),
        max_size=12,
    ),
    seed=st.integers(0, 2**32),
)
@settings(
    deadline=None, max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_the_bytes_are_those_of_the_file(size, reads, seed, tmp_path):
    """Beside writes that no sync has followed yet."""
    path = Path(mkdtemp(dir=tmp_path)) / "log"
    rng = random.Random(seed)
    content = bytearray(rng.randbytes(size))
    writer = RealDisk().create(str(path))
    writer.write_at(0, bytes(content))
    file = opened(path)
    for offset, count in reads:
        assert file.read_at(offset, count) == content[offset : offset + count]
        if rng.random() < 0.5:
            more = rng.randbytes(rng.randint(1, 3 * PAGE))
            writer.write_at(len(content), more)
            content += more
    file.close()
    writer.close()


def test_a_range_is_read_past_the_page_cache_once(tmp_path):
    """The second subscription on a backlog likely has a third after it."""
    path = tmp_path / "log"
    path.write_bytes(bytes(4 << 20))
    descriptor = os.open(path, os.O_RDONLY)
    reads = DirectReads(str(path), descriptor)
    if reads.read(0, 1 << 20) is None:
        pytest.skip("this file system has no such reads")
    assert reads.read(0, 1 << 20) is None
    assert reads.read(1000, DIRECT_READ_BYTES_MIN) is None
    assert reads.read((1 << 20) - 1000, 1 << 20) is not None, "most of it is new"
    assert reads.read((2 << 20) - 1000, 256 << 10) is not None, "the next piece of a run"
    assert reads.read(3 << 20, DIRECT_READ_BYTES_MIN - 1) is None, "a single entry"
    reads.close()
    assert reads.read(3 << 20, 1 << 20) is None
    os.close(descriptor)


def test_a_file_that_took_the_name_is_not_read(tmp_path):
    path = tmp_path / "log"
    path.write_bytes(b"a" * (1 << 20))
    descriptor = os.open(path, os.O_RDONLY)
    path.unlink()
    path.write_bytes(b"b" * (1 << 20))
    assert DirectReads(str(path), descriptor).read(0, 1 << 20) is None
    os.close(descriptor)


def test_without_memory_or_support_the_usual_way_is_taken(tmp_path, monkeypatch):
    path = tmp_path / "log"
    path.write_bytes(b"a" * (1 << 20))

    def refused(size):
        raise OSError(12, "no memory")

    monkeypatch.setattr(direct_reads, "_memories", type(direct_reads._memories)(maxlen=2))
    monkeypatch.setattr(direct_reads, "aligned_memory", refused)
    file = opened(path)
    assert file.read_at(0, 1 << 20) == b"a" * (1 << 20)
    monkeypatch.setattr(direct_reads, "_DIRECT", 0)
    assert opened(path).read_at(0, 1 << 20) == b"a" * (1 << 20)
    file.close()


def test_threads_do_not_share_memory(tmp_path):
    path = tmp_path / "log"
    content = random.Random(1).randbytes(16 << 20)
    path.write_bytes(content)
    file = opened(path)
    wrong = []

    def read(first):
        places = range(first, 16 << 20, 4 << 20)
        wrong.extend(a for a in places if file.read_at(a, 1 << 20) != content[a : a + (1 << 20)])

    threads = [threading.Thread(target=read, args=(number << 20,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert len(direct_reads._memories) <= direct_reads.MEMORIES_KEPT_MAX
    file.close()
