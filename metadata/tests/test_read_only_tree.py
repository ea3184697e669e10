"""All nodes of a database that is only looked at, and a database that lacks a part."""

import shutil

import pytest

from metadata.read_only_tree import RocksTree
from metadata.rocks_store import RocksStore
from metadata.store import MetadataUnavailable


async def filled(directory):
    store = await RocksStore.open(directory)
    for path, value in (("/a/b", b"1"), ("/a", b""), ("/a-b", b"2"), ("/z/\u00fc", b"3")):
        await store.put(path, value, None)
    await store.put_ephemeral("/a/gone", b"x")
    for _ in range(3):
        await store.next_sequence("/ids")
    shutil.copytree(directory, f"{directory}-as-a-kill-leaves-it")
    await store.aclose()


async def test_every_node_and_sequence_is_found_once(tmp_path):
    await filled(tmp_path / "db")
    tree = RocksTree(tmp_path / "db", remedy="Restore it")
    assert list(tree.nodes()) == [
        ("/a", b""),
        ("/a/b", b"1"),
        ("/a-b", b"2"),
        ("/z/\u00fc", b"3"),
    ]
    assert tree.sequences() == {"/ids": 3}
    await tree.aclose()


async def test_with_a_remedy_damage_is_refused_and_a_torn_tail_stays(tmp_path):
    await filled(tmp_path / "db")
    killed = tmp_path / "db-as-a-kill-leaves-it"
    log = max(killed.glob("*.log"))
    whole = log.read_bytes()
    log.write_bytes(whole[:-3])
    tree = RocksTree(killed, remedy="Restore it")
    assert tree.sequences() == {"/ids": 2}
    await tree.aclose()
    assert log.read_bytes() == whole[:-3]
    middle = len(whole) // 2
    log.write_bytes(whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :])
    with pytest.raises(MetadataUnavailable, match="Restore it"):
        RocksTree(killed, remedy="Restore it")
    (table,) = (tmp_path / "db").glob("*.sst")
    table.unlink()
    with pytest.raises(MetadataUnavailable, match="Restore it"):
        RocksTree(tmp_path / "db", remedy="Restore it")
