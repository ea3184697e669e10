"""Submitted writes of the operating system, where it has them."""

from __future__ import annotations

import os
import select

import pytest

from bookie import direct_io
from bookie.disk import RealDisk
from bookie.errors import DiskFailed
from bookie.memory_disk import MemoryDisk

PAGE = direct_io.ALIGNMENT


@pytest.fixture
def ring():
    ring = RealDisk().open_submissions()
    if ring is None:
        pytest.skip("this system has no io_uring for this process")
    yield ring
    ring.close()


@pytest.fixture
def file(tmp_path):
    file = RealDisk().create(str(tmp_path / "file"))
    if file.direct() is None:
        pytest.skip("this file system has no direct writes")
    file.preallocate(0, 64 * PAGE)
    yield file
    file.close()


def test_a_submitted_write_is_readable_and_its_end_is_told(ring, file):
    poll = select.epoll()
    poll.register(ring.fileno(), select.EPOLLIN | select.EPOLLET)
    for number in range(70):  # more than the ring has places
        content = os.urandom(2 * PAGE)
        offset = number % 60 * PAGE
        assert ring.submit(file, offset, [content[:5], content[5:]], len(content))
        result = ring.result()
        while result is None:
            assert poll.poll(10)
            result = ring.result()
        assert result is True
        assert file.read_at(offset, len(content)) == content


def test_waiting_ends_with_the_write(ring, file):
    content = os.urandom(PAGE)
    assert ring.submit(file, 3 * PAGE, [content], PAGE)
    assert ring.wait() is True
    assert file.read_at(3 * PAGE, PAGE) == content


@pytest.mark.parametrize(
    ("offset", "size"),
    [(512, PAGE), (0, PAGE - 1), (PAGE, direct_io.STAGING_BYTES + PAGE)],
    ids=["offset", "size", "too large"],
)
def test_what_cannot_be_submitted_is_refused_and_the_next_one_works(ring, file, offset, size):
    assert not ring.submit(file, offset, [bytes(size)], size)
    assert ring.takes(file, offset, size) == (size > direct_io.STAGING_BYTES)
    assert ring.submit(file, 0, [b"x" * PAGE], PAGE)
    assert ring.wait() is True
    assert file.read_at(0, PAGE) == b"x" * PAGE


def test_a_file_without_direct_writes_takes_nothing(ring, file):
    assert ring.takes(file, PAGE, PAGE)
    assert not ring.takes(MemoryDisk().create("file"), PAGE, PAGE)


def test_a_failed_write_raises(ring, file):
    readable = os.open(file.path, os.O_RDONLY)
    os.dup2(readable, file.direct().fileno(), inheritable=False)
    os.close(readable)
    assert ring.submit(file, 0, [bytes(PAGE)], PAGE)
    with pytest.raises(DiskFailed, match="Bad file descriptor"):
        ring.wait()
