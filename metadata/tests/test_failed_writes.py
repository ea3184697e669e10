"""A write that fails for another reason than a full disk ends the store, and with it the broker."""

from __future__ import annotations

import resource
import signal
from contextlib import contextmanager

import pytest
import trio

from metadata.rocks_store import RocksStore
from metadata.store import MetadataFailed, MetadataUnavailable
from runtime.testing.conditions import SECONDS_MAX


@contextmanager
def files_no_larger_than(size_bytes):
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, limit[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        signal.signal(signal.SIGXFSZ, before)


async def test_a_write_that_failed_ends_the_store_and_loses_nothing_written_before(tmp_path):
    """RocksDB refuses every later write, so a broker that went on was of no use until its restart:
    topics could not be created and full ledgers could not be replaced."""
    store = await RocksStore.open(tmp_path / "metadata")
    await store.put("/before", b"1", None)
    with files_no_larger_than(16_384), pytest.raises(MetadataUnavailable):
        await store.put("/during", b"x" * 100_000, None)
    with pytest.raises(MetadataUnavailable):
        await store.put("/after", b"2", None)
    with (
        trio.fail_after(SECONDS_MAX),
        pytest.raises(MetadataFailed, match=r"check the disk: [^\n]*$"),
    ):
        await store.run()
    await store.aclose()
    store = await RocksStore.open(tmp_path / "metadata")
    assert await store.get("/before") == (b"1", 0)
    assert await store.get("/after") is None
    await store.put("/after", b"2", None)
    await store.aclose()
