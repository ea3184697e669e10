"""The cluster in the metadata store: where it is, whether it is one, cookies, ledgers."""

import pytest

from bookie.errors import BookieRefusesToStart
from bookie.process.cluster import (
    StoredCookies,
    initialize_ledgers,
    metadata_place,
    require_cluster,
)
from bookie.process.config import BookieProcessConfig
from metadata.ledger_list import live_ledgers
from metadata.memory_store import MemoryStore
from metadata.store import MetadataUnavailable
from protocol.bookkeeper.paths import INSTANCE_ID_PATH, LAYOUT, LAYOUT_PATH, ledger_path


@pytest.mark.parametrize(
    ("keys", "url"),
    [
        ({"metadataServiceUri": "metadata-store:unix:/a/store.sock"}, "unix:/a/store.sock"),
        ({}, "zk:localhost:2181"),
        ({"zkServers": "a:1,b:2", "zkLedgersRootPath": "/x/ledgers"}, "zk:a:1,b:2/x"),
        ({"metadataServiceUri": "zk+hierarchical://a:1;b:2/ledgers"}, "zk:a:1,b:2"),
        ({"metadataServiceUri": "zk://a:1/x/y/ledgers"}, "zk:a:1/x/y"),
        ({"metadataServiceUri": "zk+null://a:1/ledgers/"}, "zk:a:1"),
        ({"metadataServiceUri": "metadata-store:zk:a:1"}, "zk:a:1"),
        ({"metadataServiceUri": "metadata-store:zk:a:1,b:2/x"}, "zk:a:1,b:2/x"),
        ({"metadataServiceUri": "metadata-store:zk://a:1;b:2/x/"}, "zk:a:1,b:2/x"),
        ({"metadataServiceUri": "metadata-store:a:1"}, "zk:a:1"),
    ],
)
def test_where_the_metadata_is(keys, url):
    assert metadata_place(BookieProcessConfig(**keys)).url == url


@pytest.mark.parametrize(
    ("keys", "complaint"),
    [
        ({"metadataServiceUri": "etcd://a:1/ledgers"}, "is not supported"),
        ({"metadataServiceUri": "zk+longhierarchical://a:1/ledgers"}, "is not supported"),
        ({"metadataServiceUri": "metadata-store:etcd:http://a:1"}, "is not supported"),
        ({"metadataServiceUri": "metadata-store:oxia://a:1/x"}, "is not supported"),
        ({"zkLedgersRootPath": "/other"}, "must end in /ledgers"),
    ],
)
def test_other_metadata_is_refused(keys, complaint):
    with pytest.raises(BookieRefusesToStart, match=complaint):
        metadata_place(BookieProcessConfig(**keys))


@pytest.mark.parametrize("record", [b"", b"\xff\xfe"])
async def test_a_damaged_id_of_the_cluster_is_told(record):
    store = MemoryStore()
    await initialize_ledgers(store)
    await store.put(INSTANCE_ID_PATH, record, None)
    with pytest.raises(BookieRefusesToStart, match=f"{INSTANCE_ID_PATH} .* is damaged"):
        await require_cluster(store)


async def test_a_cluster_is_made_once():
    store = MemoryStore()
    with pytest.raises(BookieRefusesToStart, match="is not that of a cluster"):
        await require_cluster(store)
    assert await initialize_ledgers(store)
    await require_cluster(store)
    instance = await store.get(INSTANCE_ID_PATH)
    assert not await initialize_ledgers(store)
    assert await store.get(INSTANCE_ID_PATH) == instance


async def test_a_cluster_that_was_begun_is_completed():
    store = MemoryStore()
    await initialize_ledgers(store)
    instance = await store.get(INSTANCE_ID_PATH)
    await store.delete(LAYOUT_PATH)
    assert await initialize_ledgers(store)
    assert await store.get(INSTANCE_ID_PATH) == instance


async def test_a_cluster_that_pulsar_made_gets_a_layout():
    store = MemoryStore()
    await store.put(INSTANCE_ID_PATH, b"made by Pulsar", None)
    await require_cluster(store)
    assert (await store.get(LAYOUT_PATH))[0] == LAYOUT


@pytest.mark.parametrize(
    "layout",
    [
        b"2\norg.apache.bookkeeper.meta.LongHierarchicalLedgerManagerFactory:1",
        b"2\norg.apache.bookkeeper.meta.FlatLedgerManagerFactory:1",
        b"3\norg.apache.bookkeeper.meta.HierarchicalLedgerManagerFactory:1",
        b"\xff\x00",
    ],
)
async def test_ledgers_that_cannot_be_listed_are_not_taken_for_deleted_ones(layout):
    store = MemoryStore()
    await initialize_ledgers(store)
    await store.put(LAYOUT_PATH, layout, None)
    with pytest.raises(BookieRefusesToStart, match="would delete all"):
        await require_cluster(store)


async def test_a_cookie_of_another_process_is_not_written_over():
    store = MemoryStore()
    await initialize_ledgers(store)
    one, other = StoredCookies(store), StoredCookies(store)
    assert await one.read_cookie("b1") is None
    assert await other.read_cookie("b1") is None
    await one.write_cookie("b1", b"one")
    await one.write_cookie("b1", b"one, corrected")
    with pytest.raises(BookieRefusesToStart, match="another process started as bookie 'b1'"):
        await other.write_cookie("b1", b"other")
    assert await other.read_cookie("b1") == b"one, corrected"


async def test_all_ledgers_are_listed_or_none():
    store = MemoryStore()
    await initialize_ledgers(store)
    ledger_ids = {0, 12345, 2**31 - 2, 2**31 - 1, 2**32 + 1, 2**63 - 1}
    for ledger_id in ledger_ids:
        await store.put(ledger_path(ledger_id), b"m", None)
    await store.put("/ledgers/idgen/ID-0000000003", b"", None)
    await store.put("/ledgers/available/b1:3181", b"", None)
    assert await live_ledgers(store) == ledger_ids
    children = store.children

    async def broken(path):
        if path.endswith("/0001"):
            raise MetadataUnavailable("gone")
        return await children(path)

    store.children = broken
    with pytest.raises(MetadataUnavailable):
        await live_ledgers(store)
