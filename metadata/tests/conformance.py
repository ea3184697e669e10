"""The contract of every metadata store: tests that a suite imports beside a fixture `store`."""

import pytest
import trio

from metadata.store import (
    MUST_NOT_EXIST,
    NodeNotFound,
    SessionState,
    VersionConflict,
)


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
    await store.put("/t", b"parent", None)
    await store.put("/t/a", b"child", None)
    await store.delete("/t")
    assert await store.get("/t") is None
    assert await store.get("/t/a") == (b"child", 0)
    assert await store.children("/") == ["t"]


async def test_sequence_numbers_of_a_path_grow(store):
    numbers = [await store.next_sequence("/s") for _ in range(3)]
    assert 0 <= numbers[0] < numbers[1] < numbers[2]


async def test_concurrent_sequence_numbers_are_all_different(store):
    numbers = []

    async def take():
        numbers.append(await store.next_sequence("/s"))

    async with trio.open_nursery() as nursery:
        for _ in range(50):
            nursery.start_soon(take)
    assert len(set(numbers)) == 50


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
    assert "/a/b/c/d" in heard
    await store.delete("/a/b")
    assert heard[-1] == "/a/b"
    count = len(heard)
    await store.put("/a", b"above", None)
    await store.put("/a/bc", b"beside", None)
    await store.next_sequence("/a/b2")
    with pytest.raises(VersionConflict):
        await store.put("/a/b/c/d", b"two", 7)
    with pytest.raises(NodeNotFound):
        await store.delete("/a/b/x")
    assert len(heard) == count
    stop()
    await store.put("/a/b", b"two", None)
    assert len(heard) == count


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


async def test_a_parent_without_a_value_is_no_node(store):
    await store.put("/t/deep/er", b"", None)
    assert await store.get("/t") is None
    assert await store.get("/t/deep") is None
    version = await store.put("/t", b"now a node", MUST_NOT_EXIST)
    assert await store.get("/t") == (b"now a node", version)
    with pytest.raises(VersionConflict):
        await store.put("/t", b"twice", MUST_NOT_EXIST)
    await store.delete("/t", version)
    assert await store.get("/t") is None
    with pytest.raises(NodeNotFound):
        await store.delete("/t")


async def test_a_store_that_was_just_opened_has_a_live_session(store):
    assert store.session_state is SessionState.LIVE


async def test_reads_after_a_sync_show_what_was_written_before(store):
    await store.put("/a", b"one", None)
    await store.sync()
    assert await store.get("/a") == (b"one", 0)
