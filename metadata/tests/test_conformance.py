"""The contract on the stores of one machine, and what only they promise."""

import pytest
import trio

from metadata.memory_store import MemoryStore
from metadata.rocks_store import RocksStore
from metadata.store import MetadataUnavailable, SessionState, VersionConflict
from metadata.tests.conformance import *  # noqa: F403 - the tests of the contract
from protocol.errors import BrokerError, ServerError
from runtime.testing.conditions import SECONDS_MAX


@pytest.fixture(params=["memory", "rocks"])
async def store(request, tmp_path):
    store = MemoryStore() if request.param == "memory" else await RocksStore.open(tmp_path / "m")
    yield store
    await store.aclose()


async def test_sequences_count_from_0_and_are_apart_from_nodes(store):
    assert [await store.next_sequence("/s") for _ in range(3)] == [0, 1, 2]
    assert await store.next_sequence("/other") == 0
    assert [await store.peek_sequence(path) for path in ("/s", "/s", "/new")] == [3, 3, 0]
    assert await store.get("/s") is None
    assert not await store.exists("/s")


async def test_ephemeral_nodes_go_with_their_session():
    store = MemoryStore()
    other = store.another_session()
    heard = []
    store.watch("/leases", heard.append)
    await other.put_ephemeral("/leases/a", b"")
    await other.put("/leases/kept", b"", None)
    with pytest.raises(VersionConflict):
        await store.put_ephemeral("/leases/a", b"")
    await other.aclose()
    assert await store.children("/leases") == ["kept"]
    assert heard == ["/leases/a", "/leases/kept", "/leases/a"]


async def test_the_end_of_a_session_spares_a_node_that_another_one_made_anew():
    store = MemoryStore()
    other = store.another_session()
    await store.put_ephemeral("/leases/a", b"")
    await store.put_ephemeral("/leases/b", b"")
    await other.delete("/leases/a")
    await other.delete("/leases/b")
    await other.put_ephemeral("/leases/a", b"")
    await store.aclose()
    assert await other.children("/leases") == ["a"]
    await other.aclose()
    assert await other.children("/leases") == []


async def test_a_lost_session_makes_no_ephemeral_nodes():
    store = MemoryStore()
    async with trio.open_nursery() as nursery:
        made = pytest.raises(MetadataUnavailable, match="lost")

        async def make():
            with made:
                await store.put_ephemeral("/leases/a", b"")

        nursery.start_soon(make)  # a request under way
        store.become(SessionState.LOST)
    assert not await store.exists("/leases/a")


async def test_a_lost_session_takes_its_ephemeral_nodes_along():
    store = MemoryStore()
    other = store.another_session()
    states = []
    stop = store.watch_session(states.append)
    await store.put_ephemeral("/leases/a", b"")
    store.become(SessionState.LOST)
    assert not await other.exists("/leases/a")
    store.become(SessionState.LIVE)
    stop()
    store.become(SessionState.IN_DOUBT)
    assert states == [SessionState.LOST, SessionState.LIVE]


async def test_ephemeral_nodes_of_rocks_do_not_outlive_the_process(tmp_path):
    store = await RocksStore.open(tmp_path)
    await store.put_ephemeral("/a", b"")
    await store.put("/b", b"", None)
    await store.aclose()
    store = await RocksStore.open(tmp_path)
    assert await store.children("/") == ["b"]
    await store.aclose()


async def test_a_watch_hears_of_a_write_whose_caller_was_cancelled(tmp_path):
    store = await RocksStore.open(tmp_path)
    heard = []
    store.watch("/a", heard.append)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(store.put, "/a", b"one", None)
        while not store._write_lock.locked() or store._pending:
            await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()
    with trio.fail_after(SECONDS_MAX):
        await store.put("/b", b"", None)
    assert heard == ["/a"]
    assert await store.get("/a") == (b"one", 0)
    await store.aclose()


async def test_rocks_keeps_everything_over_a_restart(tmp_path):
    store = await RocksStore.open(tmp_path)
    await store.put("/a/b", b"one", None)
    await store.put("/a/b", b"two", None)
    await store.next_sequence("/s")
    await store.aclose()
    store = await RocksStore.open(tmp_path)
    assert await store.get("/a/b") == (b"two", 1)
    assert await store.next_sequence("/s") == 1
    await store.aclose()
    await store.aclose()
    with pytest.raises(MetadataUnavailable, match="closed"):
        await store.get("/a/b")


async def test_a_second_broker_on_the_directory_is_refused(tmp_path):
    store = await RocksStore.open(tmp_path)
    with pytest.raises(MetadataUnavailable, match="another broker"):
        await RocksStore.open(tmp_path)
    await store.aclose()


class _FullDisk:
    """A database that can neither be read nor written, as rocksdict reports it."""

    def __init__(self, database):
        self.close = database.close

    def __getattr__(self, name):
        raise Exception("IO error: No space left on device")


async def test_a_disk_that_fails_is_a_refusal_that_clients_try_again(tmp_path):
    store = await RocksStore.open(tmp_path)
    await store.put("/a", b"one", None)
    store._database = _FullDisk(store._database)
    for operation in (
        lambda: store.put("/a", b"two", 0),
        lambda: store.delete("/a"),
        lambda: store.next_sequence("/s"),
        lambda: store.get("/a"),
        lambda: store.exists("/a"),
        lambda: store.children("/"),
    ):
        with pytest.raises(BrokerError, match="disk and try again: IO error: No space") as refusal:
            await operation()
        assert refusal.value.server_error == ServerError.MetadataError
    await store.aclose()


async def test_a_cancelled_put_leaves_the_store_usable(tmp_path):
    store = await RocksStore.open(tmp_path)
    with trio.move_on_after(0) as scope:
        await store.put("/a", b"never", None)
    assert scope.cancelled_caught
    await store.put("/a", b"one", None)
    assert (await store.get("/a"))[0] == b"one"
    await store.aclose()
