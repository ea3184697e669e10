"""Ledgers and lists: two brokers, crashes, and ledgers that cannot be read."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from bookie.api import Status
from broker.ground.config import DEFAULT_CONFIG
from broker.managed_ledger.orphans import OrphanCollector
from broker.tenancy.schemas.orphan_schemas import UNLISTED_SECONDS_MIN, SchemaLedgerOwner
from broker.tenancy.schemas.schema_format import IndexEntry, decode_locator, encode_locator
from broker.tenancy.schemas.schema_info import SchemaInfo
from broker.tenancy.schemas.schema_ledgers import (
    ENTRY_BYTES_MAX,
    NO_LOCATOR,
    VERSIONS_MAX,
    SchemaLedgers,
    SchemaLost,
)
from broker.tenancy.schemas.tests.world import bookie_of, client_on, registry_on
from metadata.memory_store import MemoryStore
from metadata.store import MetadataUnavailable
from protocol import pulsar_api_pb2 as pb
from protocol.bookkeeper.paths import ledger_path
from protocol.errors import IncompatibleSchema, PersistenceError
from protocol.topic_name import TopicName
from runtime.clock import SystemClock

TOPIC = TopicName.parse("public/default/a")
PATH = "/schemas/public/default/a"
LARGE_ALLOWED = replace(DEFAULT_CONFIG, schemaMaxSizeBytes=2**24)
FREE = "ALWAYS_COMPATIBLE"


def schema(number: int) -> SchemaInfo:
    """Different ones; their type allows any definition."""
    return SchemaInfo("INT8", b"%d" % number)


async def listed(store) -> list[int]:
    stored = await store.get(PATH)
    return [] if stored is None else [each.ledger_id for each in decode_locator(stored[0])]


async def collect(store, seconds_min=0.0):
    client = client_on(store)
    owner = SchemaLedgerOwner(store, SystemClock(), seconds_min)
    return await OrphanCollector(store, client, {}, lambda _name: True, [owner]).collect()


async def test_every_version_has_a_closed_ledger_of_its_own_without_a_password():
    store = MemoryStore()
    schemas = registry_on(store)
    for number in range(3):
        assert await schemas.find_or_add(TOPIC, schema(number), FREE) == number
    ledgers = await listed(store)
    assert len(set(ledgers)) == 3
    for ledger_id in ledgers:
        metadata = await client_on(store).metadata_of(ledger_id)
        assert metadata.is_closed
        assert metadata.password == b""
        assert metadata.custom_metadata["pulsar/schemaId"] == b"public/default/a"


async def test_a_forced_deletion_leaves_no_ledger():
    store = MemoryStore()
    schemas = registry_on(store)
    await schemas.find_or_add(TOPIC, schema(0), FREE)
    await schemas.delete(TOPIC)
    await schemas.find_or_add(TOPIC, schema(1), FREE)
    ledgers = await listed(store)
    assert len(ledgers) == 3
    await schemas.delete(TOPIC, force=True)
    assert await store.get(PATH) is None
    assert await client_on(store).live_ledgers() == set()
    assert await schemas.find_or_add(TOPIC, schema(2), FREE) == 0


async def test_ledgers_of_a_deleted_schema_are_deleted_together(autojump_clock):
    """Each deletion waits for the store: thousands one after the other would not end in time."""

    class Slow:
        def __init__(self, inner):
            self._inner = inner
            self.fails = 0

        def __getattr__(self, name):
            return getattr(self._inner, name)

        async def delete(self, path, expected_version=None):
            await trio.sleep(0.1)
            await self._inner.delete(path, expected_version)

    store = MemoryStore()
    ledgers = registry_on(Slow(store), bookie=bookie_of(store)).ledgers
    made = [await ledgers.write_ledger("public/default/a", [b"x"]) for _ in range(500)]
    index = [IndexEntry(at, each.ledger_id, 0, b"x") for at, each in enumerate(made)]
    await store.put(PATH, encode_locator(index), None)
    await ledgers.delete("public/default/a")
    assert await client_on(store).live_ledgers() == set()


async def test_another_brokers_change_is_seen_without_reading_old_versions_again():
    store = MemoryStore()
    one, other = registry_on(store), registry_on(store.another_session(), bookie=bookie_of(store))
    assert await other.latest(TOPIC) is None
    await one.find_or_add(TOPIC, schema(0), FREE)
    assert (await other.latest(TOPIC)).version == 0
    reads = bookie_of(store).batch_reads
    await one.find_or_add(TOPIC, schema(1), FREE)
    assert [each.schema for each in await other.all(TOPIC)] == [schema(0), schema(1)]
    assert bookie_of(store).batch_reads == reads + 1
    await one.delete(TOPIC, force=True)
    assert await other.latest(TOPIC) is None


async def test_what_is_known_is_not_read_again():
    store = MemoryStore()
    schemas = registry_on(store)
    await schemas.find_or_add(TOPIC, schema(0), FREE)
    await schemas.latest(TOPIC)
    reads, gets = bookie_of(store).batch_reads, []
    inner, store_get = schemas.ledgers, store.get
    inner._store.get = lambda path: gets.append(path) or store_get(path)
    for _ in range(5):
        assert await schemas.find_or_add(TOPIC, schema(0), FREE) == 0
    assert (bookie_of(store).batch_reads, gets) == (reads, [])


async def test_equal_schemas_of_many_producers_make_one_ledger():
    store = MemoryStore()
    schemas = registry_on(store)
    versions = []

    async def put():
        versions.append(await schemas.find_or_add(TOPIC, schema(0), FREE))

    async with trio.open_nursery() as nursery:
        for _ in range(50):
            nursery.start_soon(put)
    assert versions == [0] * 50
    assert await client_on(store).live_ledgers() == {0}


@pytest.mark.parametrize("status", [Status.IO_ERROR, Status.UNAUTHORIZED, Status.NO_LEDGER])
async def test_a_ledger_that_cannot_be_read_is_not_a_missing_schema(status):
    store = MemoryStore()
    await registry_on(store).find_or_add(TOPIC, schema(0), FREE)
    bookie_of(store).read_status = lambda _ledger_id, _entry_id: status
    schemas = registry_on(store)
    for request in (
        schemas.latest(TOPIC),
        schemas.get(TOPIC, 0),
        schemas.find_or_add(TOPIC, schema(1), FREE),
        schemas.find_version(TOPIC, schema(0)),
    ):
        with pytest.raises(PersistenceError, match="version 0") as raised:
            await request
        assert raised.value.server_error == pb.PersistenceError
    bookie_of(store).read_status = lambda _ledger_id, _entry_id: Status.OK
    assert (await schemas.latest(TOPIC)).schema == schema(0)


async def test_a_lost_ledger_is_told_and_a_deletion_helps():
    store = MemoryStore()
    await registry_on(store).find_or_add(TOPIC, schema(0), FREE)
    await store.delete(ledger_path(0))
    schemas = registry_on(store)
    with pytest.raises(SchemaLost, match="ledger 0 does not exist"):
        await schemas.latest(TOPIC)
    assert await schemas.delete(TOPIC) == 1
    assert await schemas.latest(TOPIC) is None
    assert await schemas.find_or_add(TOPIC, schema(1), FREE) == 2


async def test_a_ledger_whose_metadata_is_damaged_is_told():
    store = MemoryStore()
    await registry_on(store).find_or_add(TOPIC, schema(0), FREE)
    await store.put(ledger_path(0), b"\xff", None)
    with pytest.raises(SchemaLost, match=f"version 0: the record of ledger 0 at {ledger_path(0)}"):
        await registry_on(store).latest(TOPIC)


async def test_a_schema_that_is_deleted_while_it_is_read_is_missing_and_not_lost():
    store = MemoryStore()
    await registry_on(store).find_or_add(TOPIC, schema(0), FREE)
    other = registry_on(store.another_session(), bookie=bookie_of(store))
    schemas = registry_on(store)

    def delete_first(_ledger_id, _entry_id):
        trio.lowlevel.spawn_system_task(delete)
        return Status.NO_LEDGER

    async def delete():
        await other.delete(TOPIC, force=True)

    bookie_of(store).read_status = delete_first
    real = schemas.ledgers.is_listed

    async def is_listed(*args):
        await trio.testing.wait_all_tasks_blocked()
        return await real(*args)

    schemas.ledgers.is_listed = is_listed
    assert await schemas.latest(TOPIC) is None


async def test_a_bookie_that_does_not_answer_is_an_error_in_time(autojump_clock):
    store = MemoryStore()
    schemas = registry_on(store)
    bookie_of(store).is_holding = True
    add = schemas.ledgers.add
    with pytest.raises(PersistenceError, match="try again"):
        await add("public/default/a", NO_LOCATOR, schema(0))
    bookie_of(store).is_holding = False
    assert await schemas.latest(TOPIC) is None
    assert await client_on(store).live_ledgers() == set()
    assert await add("public/default/a", NO_LOCATOR, schema(0))
    assert (await schemas.latest(TOPIC)).schema == schema(0)


async def test_a_write_with_an_unknown_outcome_is_found_out():
    class Unheard:
        """The next put of the list takes effect and nobody hears of it."""

        def __init__(self, inner):
            self.inner = inner
            self.fails = True

        def __getattr__(self, name):
            return getattr(self.inner, name)

        async def put(self, path, value, expected_version):
            version = await self.inner.put(path, value, expected_version)
            if path == PATH and self.fails:
                self.fails = False
                raise MetadataUnavailable("no answer")
            return version

    inner = MemoryStore()
    schemas = registry_on(Unheard(inner), bookie=bookie_of(inner))
    with pytest.raises(MetadataUnavailable):
        await schemas.find_or_add(TOPIC, schema(0), FREE)
    assert await schemas.find_or_add(TOPIC, schema(0), FREE) == 0
    assert await listed(inner) == [0]
    assert await collect(inner) == []


async def test_a_list_that_was_deleted_and_made_again_is_another_list():
    """Its node has the same version, because versions of nodes begin again."""
    store = MemoryStore()
    one, other = registry_on(store), registry_on(store.another_session(), bookie=bookie_of(store))
    await one.find_or_add(TOPIC, schema(0), FREE)
    real = one.ledgers.write_ledger

    async def write_ledger(*args):
        one.ledgers.write_ledger = real
        await other.delete(TOPIC, force=True)
        assert await other.find_or_add(TOPIC, schema(1), FREE) == 0
        return await real(*args)

    one.ledgers.write_ledger = write_ledger
    assert await one.find_or_add(TOPIC, schema(2), FREE) == 1
    assert [each.schema for each in await other.all(TOPIC)] == [schema(1), schema(2)]
    assert await client_on(store).live_ledgers() == set(await listed(store))


async def test_the_number_of_versions_is_bounded():
    store = MemoryStore()
    await registry_on(store).find_or_add(TOPIC, schema(0), FREE)
    (first,) = decode_locator((await store.get(PATH))[0])
    index = [IndexEntry(each, first.ledger_id, 0, first.digest) for each in range(VERSIONS_MAX)]
    await store.put(PATH, encode_locator(index), None)
    assert len(encode_locator(index)) < 1_000_000
    schemas = registry_on(store)
    for request in (schemas.find_or_add(TOPIC, schema(1), FREE), schemas.delete(TOPIC)):
        with pytest.raises(IncompatibleSchema, match="force=true"):
            await request
    await schemas.delete(TOPIC, force=True)
    assert await schemas.find_or_add(TOPIC, schema(1), FREE) == 0


async def test_a_schema_that_no_bookie_takes_is_refused():
    store = MemoryStore()
    schemas = registry_on(store, LARGE_ALLOWED)
    large = SchemaInfo("INT8", b"", {"a": "x" * ENTRY_BYTES_MAX})
    with pytest.raises(IncompatibleSchema, match="are allowed"):
        await schemas.find_or_add(TOPIC, large, FREE)
    assert await schemas.latest(TOPIC) is None
    fits = SchemaInfo("INT8", b"", {"a": "x" * (ENTRY_BYTES_MAX - 200)})
    assert await schemas.find_or_add(TOPIC, fits, FREE) == 0


async def test_what_is_kept_in_memory_is_bounded_in_bytes():
    store = MemoryStore()
    schemas = registry_on(store, LARGE_ALLOWED)
    large = SchemaInfo("INT8", b"", {"a": "x" * 4_000_000})
    for number in range(20):
        await schemas.find_or_add(TopicName.parse(f"public/default/t{number}"), large, FREE)
    kept = schemas._cache._kept
    assert 10 < len(kept) < 17
    assert sum(each.size_bytes for each in kept.values()) == schemas._cache._kept_bytes
    assert (await schemas.latest(TopicName.parse("public/default/t0"))).schema == large


# --- crashes and orphans --------------------------------------------------------------------


class CutStore:
    """The power goes at a certain write, before or after it takes effect. What the broker does
    after that has no effect."""

    def __init__(self, inner, writes_left, *, takes_effect):
        self._inner = inner
        self._writes_left = writes_left
        self._takes_effect = takes_effect
        self.is_cut = False

    def __getattr__(self, name):
        return getattr(self._inner, name)

    async def _write(self, call, *args):
        self._writes_left -= 1
        if self._writes_left >= 0:
            return await call(*args)
        if not self.is_cut and self._takes_effect:
            await call(*args)
        self.is_cut = True
        raise MetadataUnavailable("the power is gone")

    async def put(self, path, value, expected_version):
        return await self._write(self._inner.put, path, value, expected_version)

    async def delete(self, path, expected_version=None):
        return await self._write(self._inner.delete, path, expected_version)

    async def next_sequence(self, path):
        return await self._write(self._inner.next_sequence, path)


@pytest.mark.parametrize("takes_effect", [True, False])
async def test_no_instant_of_a_crash_loses_a_version_or_leaves_a_ledger(takes_effect):
    for writes in range(40):
        inner = MemoryStore()
        store = CutStore(inner, writes, takes_effect=takes_effect)
        done: list[SchemaInfo | None] = []
        with suppress(MetadataUnavailable):
            await work(registry_on(store, bookie=bookie_of(inner)), done)
        await collect(inner)
        assert await client_on(inner).live_ledgers() == set(await listed(inner))
        again = registry_on(inner)
        live = [each.schema for each in await again.all(TOPIC)]
        newest = await again.newest(TOPIC)
        outcomes = possible(done)
        assert (live, newest is None) in outcomes, (writes, done, live)
        if not store.is_cut:
            return
    raise AssertionError("the work has more writes than were tried")


WORK = [schema(0), schema(1), None, schema(2), "forced"]


async def work(schemas, done):
    """Everything that makes and deletes ledgers of schemas. `done` is told what returned."""
    for each in WORK:
        if each == "forced":
            await schemas.delete(TOPIC, force=True)
        elif each is None:
            await schemas.delete(TOPIC)
        else:
            await schemas.find_or_add(TOPIC, each, FREE)
        done.append(each)


def possible(done):
    """(live schemas, whether there is none) after these steps, or one more."""
    outcomes = []
    for count in (len(done), len(done) + 1):
        live: list[SchemaInfo] = []
        is_none = True
        for each in WORK[:count]:
            is_none = each == "forced"
            live = [*live, each] if isinstance(each, SchemaInfo) else []
        outcomes.append((live, is_none))
    return outcomes


async def orphan(store, schema_id="public/default/a"):
    client = client_on(store)
    ledgers = SchemaLedgers(store, client, SystemClock())
    return (await ledgers.write_ledger(schema_id, [b"x"])).ledger_id


async def test_a_broker_that_is_about_to_list_a_ledger_is_refused_after_it_was_collected():
    """The list of the topic was read by the other broker before the ledger was made."""
    store = MemoryStore()
    one = registry_on(store)
    await one.find_or_add(TOPIC, schema(0), FREE)
    other = registry_on(store.another_session(), bookie=bookie_of(store))
    real = other.ledgers.list_versions

    async def collected_first(*args):
        assert len(await collect(store)) == 1
        other.ledgers.list_versions = real
        return await real(*args)

    other.ledgers.list_versions = collected_first
    assert await other.find_or_add(TOPIC, schema(1), FREE) == 1
    assert [each.schema for each in await one.all(TOPIC)] == [schema(0), schema(1)]
    assert await client_on(store).live_ledgers() == set(await listed(store))


async def test_young_ledgers_are_kept_where_other_brokers_may_list_them():
    store = MemoryStore()
    ledger_id = await orphan(store)
    assert await collect(store, UNLISTED_SECONDS_MIN) == []
    assert await collect(store, 0.0) == [ledger_id]


async def test_a_damaged_list_protects_the_ledgers_of_its_topic():
    store = MemoryStore()
    ledger_id = await orphan(store)
    await store.put(PATH, b"\xff", None)
    other = await orphan(store, "public/default/b")
    assert await collect(store) == [other]
    await store.delete(PATH)
    assert await collect(store) == [ledger_id]


@settings(max_examples=40)
@given(
    steps=st.lists(
        st.tuples(st.integers(0, 1), st.sampled_from(["put", "put", "put", "delete", "force"])),
        max_size=12,
    ),
    seed=st.integers(0, 2**32 - 1),
)
def test_two_brokers_at_once_lose_no_version(steps, seed):
    """Whatever they do at once: a version that was answered is what was stored under it, unless a
    forced deletion began numbering again; and both see the same in the end."""

    async def scenario():
        store = MemoryStore()
        brokers = [
            registry_on(store),
            registry_on(store.another_session(), bookie=bookie_of(store)),
        ]
        answered: dict[int, set[bytes]] = {}

        async def step(number, broker, what):
            if what == "put":
                version = await broker.find_or_add(TOPIC, schema(number), FREE)
                answered.setdefault(version, set()).add(schema(number).data)
            else:
                await broker.delete(TOPIC, force=what == "force")

        async with trio.open_nursery() as nursery:
            for number, (which, what) in enumerate(steps):
                nursery.start_soon(step, number, brokers[which], what)
        seen = [await broker.all(TOPIC) for broker in brokers]
        assert seen[0] == seen[1] == await registry_on(store).all(TOPIC)
        kinds = {what for _, what in steps}
        if "force" not in kinds:
            assert all(len(data) == 1 for data in answered.values())
            if "delete" not in kinds:
                assert {each.version: {each.schema.data} for each in seen[0]} == answered
        assert await client_on(store).live_ledgers() == set(await listed(store))

    trio.run(scenario)
