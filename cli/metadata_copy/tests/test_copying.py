"""A data directory of a standalone broker, copied to a store in memory: once, twice, by halves, to
the wrong store, from the wrong directory."""

import shutil
from dataclasses import replace
from functools import partial

import pytest
import trio

from bookie.errors import BookieRefusesToStart, StorageError
from bookie.process.config import BookieProcessConfig
from bookie.process.identity import Identity
from bookie.process.joining import METADATA_COPY_PATH, joining_path
from bookie.process.running import running_bookie
from broker.assembly.app import running_broker
from broker.assembly.parts import StartError
from broker.assembly.replicated import refuse_other_clusters
from broker.cluster.cluster_metadata import Initialization, NewCluster
from broker.ground.config import DEFAULT_CONFIG
from broker.ground.data_directory import DataDirectoryError
from broker.managed_ledger.paths import ledger_info_path
from cli.metadata_copy.copying import copy_metadata, walk
from cli.metadata_copy.names import NODE_BYTES_MAX, NotCopied
from cli.metadata_copy.source import opened_source
from metadata.ledger_list import live_ledgers
from metadata.memory_store import MemoryStore
from metadata.rocks_store import RocksStore
from metadata.store import MetadataUnavailable
from protocol.bookkeeper.paths import ID_SEQUENCE_PATH, INSTANCE_ID_PATH, cookie_path, ledger_path
from protocol.topic_name import TopicName
from runtime.command_line import first_of

CONFIG = replace(DEFAULT_CONFIG, brokerServicePort=0, webServicePort=0)
TOPIC = TopicName.parse("persistent://public/default/t")
NEW = NewCluster(name="c1", data={"serviceUrl": "http://h:8080"})
BOOKIE = "vela-embedded"


async def use(data, topic=TOPIC):
    """A start of the standalone broker that loads a topic, which begins a ledger."""
    async with running_broker(CONFIG, data) as broker:
        await broker.service.get_or_load_topic(topic, create=True)


@pytest.fixture
async def data(tmp_path):
    directory = tmp_path / "data"
    for _ in range(3):
        await use(directory)
    return directory


async def copy(data, store, new=NEW, node_bytes_max=NODE_BYTES_MAX):
    async with opened_source(data, CONFIG) as source:
        return await copy_metadata(source, store, new, node_bytes_max, lambda _line: None)


async def refusal(error_type, work):
    """The text with which something is refused."""
    text = ""
    try:
        await work()
    except* error_type as group:
        text = str(first_of(group))
    assert text
    assert "\n" not in text
    return text


async def tree(store):
    found = {}

    async def look(path, value):
        found[path] = value

    await walk(store, look)
    return found


def files(directory):
    """What is in all files but RocksDB's lock, log and the like."""
    return {
        path.relative_to(directory): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file()
    }


def bookie_config(data, **keys):
    return BookieProcessConfig(
        **{
            "bookieId": BOOKIE,
            "bookiePort": 0,
            "journalDirectories": (f"{data}/bookkeeper/journal",),
            "ledgerDirectories": (f"{data}/bookkeeper/ledgers",),
            "dbStorage_writeCacheMaxSizeMb": 2,
            "diskUsageThreshold": 0.999,
            "diskUsageWarnThreshold": 0.999,
            "zkTimeout": 100,
        }
        | keys
    )


async def start_bookie(store, config, name=BOOKIE):
    """Start and stop it; the ledgers that it has."""

    async def open_store():
        return store.another_session()

    identity = Identity(name, "127.0.0.1", "127.0.0.1")
    async with running_bookie(config, identity, open_store) as running:
        return set(running.bookie.ledger_ids())


async def test_everything_is_copied_and_the_source_is_not_changed(data):
    before, store = files(data), MemoryStore()
    copied = await copy(data, store)
    assert files(data) == before
    found = await tree(store)
    async with opened_source(data, CONFIG) as source:
        expected = {path: value for path, value in source.tree.nodes() if value}
        next_id = source.sequences[ID_SEQUENCE_PATH]
    assert copied.next_ledger_id == next_id > 0
    for path, value in expected.items():
        if not path.startswith(("/admin/policies/", "/admin/clusters/standalone")):
            assert found[path] == value
    assert b'"c1"' in found["/admin/policies/public/default"]
    assert b"standalone" not in found["/admin/policies/public/default"]
    assert b"http://h:8080" in found["/admin/clusters/c1"]
    assert METADATA_COPY_PATH not in found
    assert joining_path(BOOKIE) in found
    assert await store.next_sequence(ID_SEQUENCE_PATH) >= next_id


async def initialize(store):
    """As `vela initialize-cluster-metadata` does."""
    made = Initialization(NEW)
    await made.make_ledgers(store)
    await made.make_local(store)
    await made.make_configuration(store)


async def test_an_initialized_cluster_without_topics_counts_as_empty(data):
    store = MemoryStore()
    await initialize(store)
    instance_id = await store.get(INSTANCE_ID_PATH)
    await copy(data, store)
    assert await store.get(INSTANCE_ID_PATH) == instance_id
    async with opened_source(data, CONFIG) as source:
        policies = (await source.tree.get("/admin/policies/public/default"))[0]
    copied = (await store.get("/admin/policies/public/default"))[0]
    assert copied == policies.replace(b'"standalone"', b'"c1"')


@pytest.mark.parametrize(
    "path",
    [
        cookie_path("b1"),
        ledger_path(7),
        "/managed-ledgers/public/default/persistent/other",
        "/admin/policies/mine",
        "/loadbalance/brokers/h:8080",
        "/ledgers/available/b1",
        joining_path("b1"),
    ],
)
async def test_a_store_in_use_is_refused_and_not_changed(data, path):
    store = MemoryStore()
    await store.put(path, b"x", None)
    assert f"is in use: it has {path}" in await refusal(NotCopied, partial(copy, data, store))
    assert await tree(store) == {path: b"x"}


async def test_a_copy_is_not_made_twice(data):
    store = MemoryStore()
    await copy(data, store)
    assert "is in use" in await refusal(NotCopied, partial(copy, data, store))


class Ends(MemoryStore):
    """Fails after so many writes, as a connection does that is lost."""

    writes_left = 0

    async def put(self, path, value, expected_version):
        self._write()
        return await super().put(path, value, expected_version)

    async def advance_sequence(self, path, number):
        self._write()
        await super().advance_sequence(path, number)

    async def delete(self, path, expected_version=None):
        self._write()
        await super().delete(path, expected_version)

    def _write(self):
        self.writes_left -= 1
        if self.writes_left < 0:
            raise MetadataUnavailable("the connection was lost")


async def test_an_interrupted_copy_has_no_effect_until_it_is_completed(data):
    whole = MemoryStore()
    await copy(data, whole)
    expected = await tree(whole)
    del expected[INSTANCE_ID_PATH]
    interruptions = 0
    store = Ends()
    is_complete = False
    while not is_complete:
        store.writes_left = interruptions + 1  # each call gets a little further
        is_complete = True
        try:
            await copy(data, store)
        except* MetadataUnavailable:
            interruptions += 1
            is_complete = False
        is_begun = await store.get("/admin/clusters/c1") is not None
        assert not is_begun or await store.get(joining_path(BOOKIE)) is not None
    assert interruptions > 5
    found = await tree(store)
    del found[INSTANCE_ID_PATH]
    assert found == expected


async def test_an_interrupted_copy_is_not_completed_with_other_metadata(data):
    store = Ends()
    store.writes_left = 12
    await refusal(MetadataUnavailable, partial(copy, data, store))
    store.writes_left = 1_000_000
    other = NewCluster(name="c2", data=NEW.data)
    text = await refusal(NotCopied, partial(copy, data, store, other))
    assert "interrupted copy of other metadata" in text
    await use(data)
    text = await refusal(NotCopied, partial(copy, data, store))
    assert "interrupted copy of other metadata" in text


async def test_a_node_that_is_too_large_is_refused_before_anything_is_written(data):
    store = MemoryStore()
    text = await refusal(NotCopied, partial(copy, data, store, NEW, 1_300))
    assert "too many for a node of ZooKeeper" in text
    assert await tree(store) == {}


async def test_another_writer_is_noticed(data):
    class Foreign(MemoryStore):
        async def sync(self):
            await self.put("/managed-ledgers/public/default/persistent/other", b"x", None)

    text = await refusal(NotCopied, partial(copy, data, Foreign()))
    assert text.startswith("/managed-ledgers/public/default/persistent/other is not as it was")

    class Lossy(MemoryStore):
        async def sync(self):
            await self.delete(ledger_info_path(TOPIC.managed_ledger_name))

    text = await refusal(NotCopied, partial(copy, data, Lossy()))
    assert text.startswith(ledger_info_path(TOPIC.managed_ledger_name))


# --- the source -----------------------------------------------------------------------------


async def test_a_directory_in_use_or_without_metadata_is_refused(data, tmp_path):
    store = MemoryStore()
    async with running_broker(CONFIG, data):
        assert "in use" in await refusal(DataDirectoryError, partial(copy, data, store))
    text = await refusal(NotCopied, partial(copy, tmp_path / "none", store))
    assert "is not there" in text
    assert not (tmp_path / "none").exists()


async def test_a_directory_as_a_kill_leaves_it_is_copied(data, tmp_path):
    killed, store = tmp_path / "killed", MemoryStore()
    topic = TopicName.parse("persistent://public/default/new")
    async with running_broker(CONFIG, data) as broker:
        await broker.service.get_or_load_topic(topic, create=True)
        shutil.copytree(data, killed)
    await copy(killed, store)
    assert await store.get(ledger_info_path(topic.managed_ledger_name)) is not None
    await start_bookie(store, bookie_config(killed))


async def test_directories_elsewhere_are_those_of_the_configuration(tmp_path):
    places = {
        "journalDirectories": (f"{tmp_path}/j",),
        "ledgerDirectories": (f"{tmp_path}/l0", f"{tmp_path}/l1"),
    }
    config, data, store = replace(CONFIG, **places), tmp_path / "data", MemoryStore()
    async with running_broker(config, data) as broker:
        await broker.service.get_or_load_topic(TOPIC, create=True)
    text = await refusal(NotCopied, partial(copy, data, store))
    assert "has no directories" in text
    async with opened_source(data, config) as source:
        await copy_metadata(source, store, NEW, NODE_BYTES_MAX, lambda _line: None)
    less = bookie_config(data, **places | {"ledgerDirectories": (f"{tmp_path}/l0",)})
    await refusal(BookieRefusesToStart, partial(start_bookie, store, less))
    async with running_broker(config, data):
        pass
    text = await refusal(BookieRefusesToStart, partial(start_bookie, store, less))
    assert "were used with the former metadata after" in text


async def test_damage_in_the_database_is_refused(data):
    max((data / "metadata").glob("*.sst")).unlink()
    text = await refusal(MetadataUnavailable, partial(copy, data, MemoryStore()))
    assert "the table file is missing" in text


async def test_a_ledger_on_a_bookie_without_directories_is_refused(data):
    (data / "bookkeeper").rename(data / "elsewhere")
    text = await refusal(NotCopied, partial(copy, data, MemoryStore()))
    assert f"is on bookie {BOOKIE!r}, which has no directories" in text


async def test_a_ledger_id_that_would_be_given_again_is_refused(data):
    store = await RocksStore.open(data / "metadata")
    row = await store.get(ledger_path(min(await live_ledgers(store))))
    await store.put(ledger_path(1_000_000), row[0], None)
    await store.aclose()
    text = await refusal(NotCopied, partial(copy, data, MemoryStore()))
    assert "ledger 1000000 exists, and the next id" in text


# --- the bookie -----------------------------------------------------------------------------


async def test_the_bookie_joins_with_its_ledgers_and_starts_again(data):
    store = MemoryStore()
    await copy(data, store)
    for _ in range(2):
        assert await start_bookie(store, bookie_config(data)) <= await live_ledgers(store)
        assert await store.get(joining_path(BOOKIE)) is None
    cookie = (await store.get(cookie_path(BOOKIE)))[0]
    assert (await store.get(INSTANCE_ID_PATH))[0] in cookie


async def test_the_former_metadata_are_refused_once_the_bookie_has_joined_and_only_then(data):
    store = MemoryStore()
    await copy(data, store)
    await use(data)
    text = await refusal(BookieRefusesToStart, partial(start_bookie, store, bookie_config(data)))
    assert "were used with the former metadata after" in text
    await use(data)

    store = MemoryStore()
    await copy(data, store)
    await start_bookie(store, bookie_config(data))
    text = await refusal(BookieRefusesToStart, partial(use, data))
    assert "belongs to another cluster" in text
    text = await refusal(StorageError, partial(copy, data, MemoryStore()))
    assert "belongs to another cluster" in text


async def test_a_bookie_with_other_directories_is_refused(data, tmp_path):
    store = MemoryStore()
    await copy(data, store)
    other = tmp_path / "other"
    await use(other)
    text = await refusal(BookieRefusesToStart, partial(start_bookie, store, bookie_config(other)))
    assert "were copied for the directories" in text
    empty = bookie_config(tmp_path / "empty")
    text = await refusal(BookieRefusesToStart, partial(start_bookie, store, empty))
    assert "have no data of a bookie" in text
    named = bookie_config(data, bookieId="h:3181")
    text = await refusal(BookieRefusesToStart, partial(start_bookie, store, named, "h:3181"))
    assert BOOKIE in text
    await start_bookie(store, bookie_config(data))


async def test_directories_may_be_at_other_paths_at_the_first_start(data, tmp_path):
    store = MemoryStore()
    await copy(data, store)
    moved = tmp_path / "moved"
    data.rename(moved)
    await start_bookie(store, bookie_config(moved))
    assert str(moved).encode() in (await store.get(cookie_path(BOOKIE)))[0]


async def test_a_start_that_ended_between_its_writes_is_completed_by_the_next(data):
    class EndsAtDelete(MemoryStore):
        async def delete(self, path, expected_version=None):
            if path == joining_path(BOOKIE):
                raise MetadataUnavailable("the connection was lost")
            await super().delete(path, expected_version)

    class Sessions:
        def __init__(self, store):
            self.store = store

        def another_session(self):
            return self.store

    store = EndsAtDelete()
    await copy(data, store)
    await refusal(MetadataUnavailable, partial(start_bookie, Sessions(store), bookie_config(data)))
    with trio.fail_after(60):
        store.delete = partial(MemoryStore.delete, store)
        await start_bookie(store, bookie_config(data))


@pytest.mark.parametrize("is_initialized", [False, True])
async def test_neither_bookie_nor_broker_starts_on_a_part_of_a_copy(data, tmp_path, is_initialized):
    store, interruptions = Ends(), 0
    fresh = replace(
        bookie_config(data),
        bookieId="b9",
        journalDirectories=(f"{tmp_path}/b9/journal",),
        ledgerDirectories=(f"{tmp_path}/b9/ledgers",),
    )
    store.writes_left = 100
    if is_initialized:
        await initialize(store)
    is_complete = False
    while not is_complete:
        store.writes_left = interruptions + 2
        try:
            await copy(data, store)
            is_complete = True
        except* MetadataUnavailable:
            interruptions += 1
            store.writes_left = 100
            await initialize(store)  # as a broker advises that finds no record of its cluster
            for start in (
                partial(start_bookie, store, bookie_config(data)),
                partial(start_bookie, store, fresh, "b9"),
                partial(refuse_other_clusters, store, "c1"),
            ):
                text = await refusal((BookieRefusesToStart, StartError), start)
                assert "run the same `vela copy-metadata` again" in text
    assert interruptions > 5
    await refuse_other_clusters(store, "c1")
    await start_bookie(store, bookie_config(data))


async def test_a_damaged_node_of_a_joining_bookie_is_refused(data):
    store = MemoryStore()
    await copy(data, store)
    for damaged in (b"", b"x", b"[]", b"{}", b'{"set": 1}'):
        await store.put(joining_path(BOOKIE), damaged, None)
        text = await refusal(
            BookieRefusesToStart, partial(start_bookie, store, bookie_config(data))
        )
        assert "is damaged" in text
    await use(data)
