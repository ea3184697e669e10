"""The contract on a store with a cache, and that the cache never shows what is not there."""

import random

import pytest
import trio
import trio.testing

from metadata.cached_store import CachedStore
from metadata.memory_store import MemoryStore
from metadata.node_cache import NAMES_MAX, UNKNOWN, VALUE_BYTES_MAX, NodeCache
from metadata.rocks_store import RocksStore
from metadata.store import MetadataUnavailable, NodeNotFound, VersionConflict
from metadata.tests.conformance import *  # noqa: F403 - the tests of the contract

PATHS = ("/a", "/a/b", "/a/b/c", "/a/d", "/e/f/g")
ALL = ("/", "/e", "/e/f", *PATHS)


class Asked:
    """A store that counts reads, and lets other tasks run before and after each effect."""

    def __init__(self, inner, order=None):
        self.inner = inner
        self.reads = []
        self._order = order

    def __getattr__(self, name):
        return getattr(self.inner, name)

    async def _pause(self):
        for _ in range(self._order.randrange(4) if self._order else 0):
            await trio.lowlevel.checkpoint()

    async def _do(self, operation, *arguments):
        await self._pause()
        result = await operation(*arguments)
        await self._pause()
        return result

    async def get(self, path):
        self.reads.append(("get", path))
        return await self._do(self.inner.get, path)

    async def children(self, path):
        self.reads.append(("children", path))
        return await self._do(self.inner.children, path)

    async def exists(self, path):
        self.reads.append(("exists", path))
        return await self._do(self.inner.exists, path)

    async def put(self, path, value, expected_version):
        return await self._do(self.inner.put, path, value, expected_version)

    async def delete(self, path, expected_version=None):
        return await self._do(self.inner.delete, path, expected_version)


@pytest.fixture(params=["memory", "rocks"])
async def store(request, tmp_path):
    inner = MemoryStore() if request.param == "memory" else await RocksStore.open(tmp_path / "m")
    store = CachedStore(inner)
    yield store
    await store.aclose()


@pytest.fixture
def asked():
    return Asked(MemoryStore())


@pytest.fixture
def cached(asked):
    return CachedStore(asked)


async def reads_of_all(store):
    return [
        (path, await store.get(path), await store.children(path), await store.exists(path))
        for path in ALL
    ]


# --- what is answered from memory -----------------------------------------------------------


async def test_what_was_written_is_not_read(asked, cached):
    await cached.put("/a", b"one", None)
    await cached.put("/a", b"two", 0)
    assert await cached.get("/a") == (b"two", 1)
    assert await cached.exists("/a")
    assert asked.reads == []


async def test_the_first_use_of_a_new_topic_reads_once(asked, cached):
    """As a broker opens one: does it exist, its record, a new record, its cursors."""
    assert not await cached.exists("/ml/topic")
    assert await cached.get("/ml/topic") is None
    await cached.put("/ml/topic", b"record", -1)
    assert await cached.children("/ml/topic") == []
    assert asked.reads == [("exists", "/ml/topic")]


async def test_what_was_read_is_not_read_again(asked, cached):
    await asked.inner.put("/a/b", b"one", None)
    for _ in range(3):
        assert await cached.get("/a/b") == (b"one", 0)
        assert await cached.children("/a") == ["b"]
        assert await cached.get("/x") is None
    assert asked.reads == [("get", "/a/b"), ("children", "/a"), ("get", "/x")]


async def test_a_refused_write_leaves_the_node_to_be_read(cached):
    await cached.put("/a", b"one", None)
    with pytest.raises(VersionConflict):
        await cached.put("/a", b"two", 7)
    assert await cached.get("/a") == (b"one", 0)


async def test_nothing_is_answered_by_a_closed_store(tmp_path):
    store = CachedStore(await RocksStore.open(tmp_path))
    await store.put("/a", b"one", None)
    await store.aclose()
    with pytest.raises(MetadataUnavailable, match="closed"):
        await store.get("/a")


# --- what is never shown ----------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(60))
async def test_reads_show_what_the_store_has_whatever_runs_at_the_same_time(seed):
    order = random.Random(seed)
    inner = MemoryStore()
    store = CachedStore(Asked(inner, order), 3_000 if seed % 2 else 1_000_000)
    written = 0

    async def write():
        nonlocal written
        path = order.choice(PATHS)
        try:
            if order.random() < 0.4:
                await store.delete(path)
            else:
                written += 1
                await store.put(path, b"%d" % written, order.choice([None, None, 0, 1]))
        except (VersionConflict, NodeNotFound):
            return

    async def read():
        path = order.choice(ALL)
        await order.choice([store.get, store.children, store.exists])(path)

    for _round in range(12):
        async with trio.open_nursery() as nursery:
            for _ in range(order.randrange(1, 9)):
                nursery.start_soon(order.choice([read, write]))
            if order.random() < 0.2:
                for _ in range(order.randrange(4)):
                    await trio.lowlevel.checkpoint()
                nursery.cancel_scope.cancel()
        assert await reads_of_all(store) == await reads_of_all(inner)
    assert store.cache._busy == store.cache._writings == store.cache._readings == {}


async def test_a_read_that_a_write_has_overtaken_is_not_kept(asked, cached):
    """The read has its result, the write finishes, then the read returns."""
    await asked.inner.put("/a", b"old", None)
    entered, go_on = trio.Event(), trio.Event()
    inner_get = asked.inner.get

    async def slowly(path):
        found = await inner_get(path)
        entered.set()
        await go_on.wait()
        return found

    asked.inner.get = slowly
    async with trio.open_nursery() as nursery:
        nursery.start_soon(cached.get, "/a")
        await entered.wait()
        await cached.put("/a", b"new", None)
        go_on.set()
    asked.inner.get = inner_get
    assert await cached.get("/a") == (b"new", 1)


async def test_a_write_whose_caller_was_cancelled_is_seen_when_it_takes_effect(asked, cached):
    await cached.put("/a", b"old", None)
    assert await cached.get("/a") == (b"old", 0)
    await asked.inner.put("/a", b"late", None)  # in the place of the caller that is gone
    assert await cached.get("/a") == (b"late", 1)


async def test_a_watcher_that_reads_at_once_reads_what_has_changed(cached):
    seen = []
    async with trio.open_nursery() as nursery:

        async def read(path):
            seen.append(await cached.get(path))

        cached.watch("/a", lambda path: nursery.start_soon(read, path))
        await cached.put("/a", b"one", None)
        await cached.put("/a", b"two", None)
        await trio.testing.wait_all_tasks_blocked()
    assert seen[-1] == (b"two", 1)


async def test_an_ephemeral_node_is_gone_with_its_end(cached):
    await cached.put_ephemeral("/leases/a", b"x")
    assert await cached.get("/leases/a") == (b"x", 0)
    assert await cached.children("/leases") == ["a"]
    await cached.delete("/leases/a")
    assert await cached.get("/leases/a") is None
    assert await cached.children("/leases") == []


# --- the bound --------------------------------------------------------------------------------


def keep(cache, path, value):
    reading = cache.begin_read(path)
    cache.keep_value(reading, value)
    cache.end_read(reading)


def test_the_nodes_used_last_are_kept_within_the_bound():
    cache = NodeCache(10_000)
    for number in range(100):
        keep(cache, f"/{number}", (b"x" * 500, 0))
        assert cache.value("/0") == (b"x" * 500, 0)
        assert cache.size_bytes <= 10_000
    assert cache.value("/99") == (b"x" * 500, 0)
    assert cache.value("/50") is UNKNOWN


def test_what_is_too_large_is_not_kept():
    cache = NodeCache(10_000_000)
    keep(cache, "/large", (b"x" * (VALUE_BYTES_MAX + 1), 0))
    assert cache.value("/large") is UNKNOWN
    reading = cache.begin_read("/many")
    cache.keep_names(reading, [str(number) for number in range(NAMES_MAX + 1)])
    assert cache.names("/many") is None
    assert cache.size_bytes == 0


def test_the_size_counts_down_to_nothing():
    cache = NodeCache(10_000)
    keep(cache, "/a", (b"x", 0))
    keep(cache, "/a/b", None)
    reading = cache.begin_read("/a")
    cache.keep_names(reading, ["b"])
    cache.changed("/a/b")
    assert cache.value("/a") == (b"x", 0)
    assert cache.names("/a") is None
    cache.changed("/a")
    assert cache.size_bytes == 0
