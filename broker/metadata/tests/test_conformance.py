"""The contract of every metadata store; runs on each implementation."""

import pytest
import trio

from broker.metadata.memory_store import MemoryStore
from broker.metadata.rocks_store import RocksStore
from broker.metadata.store import (
    MUST_NOT_EXIST,
    MetadataUnavailable,
    NodeNotFound,
    VersionConflict,
)
from protocol.errors import BrokerError, ServerError


@pytest.fixture(params=["memory", "rocks"])
async def store(request, tmp_path):
    store = MemoryStore() if request.param == "memory" else await RocksStore.open(tmp_path / "m")
    yield store
    await store.aclose()


async def test_a_new_node_has_version_0_and_each_put_adds_one(store):
    assert await store.get("/a/b") is None
    assert await store.put("/a/b", b"one", MUST_NOT_EXIST) == 0
    assert await store.put("/a/b", b"two", 0) == 1
    assert await store.put("/a/b", b"", None) == 2
    assert await store.get("/a/b") == (b"", 2)


async def test_a_wrong_expected_version_changes_nothing(store):
    await store.put("/a", b"one", None)
    for version in (MUST_NOT_EXIST, 1, 7):
        with pytest.raises(VersionConflict):
            await store.put("/a", b"two", version)
    with pytest.raises(VersionConflict):
        await store.put("/missing", b"", 0)
    with pytest.raises(VersionConflict):
        await store.delete("/a", 3)
    assert await store.get("/a") == (b"one", 0)
    assert await store.get("/missing") is None


async def test_delete_and_create_again_starts_at_version_0(store):
    await store.put("/a", b"one", None)
    await store.put("/a", b"one", None)
    await store.delete("/a", 1)
    assert await store.get("/a") is None
    with pytest.raises(NodeNotFound):
        await store.delete("/a")
    assert await store.put("/a", b"again", MUST_NOT_EXIST) == 0


async def test_children_are_the_direct_ones_also_those_without_a_value(store):
    for path in (
        "/t/a",
        "/t/a/x",
        "/t/a/y",
        "/t/a-b",
        "/t/a.c/deep/er",
        "/t/b%2F",
        "/tt/z",
        "/é/ü",
    ):
        await store.put(path, b"", None)
    assert await store.children("/t") == ["a", "a-b", "a.c", "b%2F"]
    assert await store.children("/t/a") == ["x", "y"]
    assert await store.children("/t/a.c") == ["deep"]
    assert await store.children("/t/a/x") == []
    assert await store.children("/nothing") == []
    assert await store.children("/") == ["t", "tt", "é"]


async def test_exists_sees_the_node_and_what_is_below(store):
    await store.put("/t/a-b", b"", None)
    await store.put("/t/deep/er", b"", None)
    assert await store.exists("/t")
    assert await store.exists("/t/deep")
    assert await store.exists("/t/a-b")
    assert not await store.exists("/t/a")
    assert not await store.exists("/t/dee")


async def test_deleting_a_parent_keeps_its_children(store):
    await store.put("/t", b"", None)
    await store.put("/t/a", b"child", None)
    await store.delete("/t")
    assert await store.get("/t/a") == (b"child", 0)
    assert await store.children("/") == ["t"]


async def test_sequences_count_from_0_and_are_apart_from_nodes(store):
    assert [await store.next_sequence("/s") for _ in range(3)] == [0, 1, 2]
    assert await store.next_sequence("/other") == 0
    assert [await store.peek_sequence(path) for path in ("/s", "/s", "/new")] == [3, 3, 0]
    assert await store.get("/s") is None
    assert not await store.exists("/s")


async def test_concurrent_sequence_numbers_are_all_different(store):
    numbers = []

    async def take():
        numbers.append(await store.next_sequence("/s"))

    async with trio.open_nursery() as nursery:
        for _ in range(50):
            nursery.start_soon(take)
    assert sorted(numbers) == list(range(50))


async def test_of_concurrent_writers_with_one_version_exactly_one_wins(store):
    await store.put("/a", b"", None)
    won = []

    async def write(value):
        try:
            await store.put("/a", value, 0)
        except VersionConflict:
            return
        won.append(value)

    async with trio.open_nursery() as nursery:
        for number in range(20):
            nursery.start_soon(write, b"%d" % number)
    assert len(won) == 1
    assert await store.get("/a") == (won[0], 1)


@pytest.mark.parametrize("path", ["", "a", "/a/", "//a", "/a\x00b"])
async def test_bad_paths_are_refused(store, path):
    with pytest.raises(ValueError, match="metadata path"):
        await store.put(path, b"", None)


async def test_a_watch_hears_of_changes_of_the_node_and_below_it_before_the_caller(store):
    heard = []
    stop = store.watch("/a/b", heard.append)
    await store.put("/a/b", b"one", None)
    assert heard == ["/a/b"]
    await store.put("/a/b/c/d", b"below", None)
    await store.delete("/a/b")
    assert heard == ["/a/b", "/a/b/c/d", "/a/b"]
    await store.put("/a", b"above", None)
    await store.put("/a/bc", b"beside", None)
    await store.next_sequence("/a/b")
    with pytest.raises(VersionConflict):
        await store.put("/a/b/c/d", b"two", 7)
    with pytest.raises(NodeNotFound):
        await store.delete("/a/b/x")
    assert len(heard) == 3
    stop()
    await store.put("/a/b", b"two", None)
    assert len(heard) == 3


async def test_a_watch_of_the_root_hears_of_everything(store):
    heard = []
    store.watch("/", heard.append)
    await store.put("/a", b"", None)
    await store.put_ephemeral("/e", b"")
    await store.delete("/e")
    assert heard == ["/a", "/e", "/e"]


async def test_ephemeral_nodes_are_nodes(store):
    await store.put("/t/kept", b"", None)
    await store.put_ephemeral("/t/mine", b"one")
    assert await store.get("/t/mine") == (b"one", 0)
    assert await store.children("/t") == ["kept", "mine"]
    assert await store.exists("/t/mine")
    assert await store.put("/t/mine", b"two", 0) == 1
    for path in ("/t/mine", "/t/kept"):
        with pytest.raises(VersionConflict):
            await store.put_ephemeral(path, b"")
    with pytest.raises(VersionConflict):
        await store.put("/t/mine", b"", MUST_NOT_EXIST)
    await store.delete("/t/mine", 1)
    assert await store.children("/t") == ["kept"]
    await store.put_ephemeral("/t/mine", b"again")


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
    with trio.fail_after(20):
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
