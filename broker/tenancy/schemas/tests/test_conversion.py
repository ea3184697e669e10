"""Schemas that earlier versions kept in the metadata store are converted, whatever happens."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest
import trio

from bookie.api import Status
from broker.managed_ledger.orphans import OrphanCollector
from broker.tenancy.schemas.conversion import DONE_PATH, LEASE_PATH, SchemaConversion
from broker.tenancy.schemas.orphan_schemas import SchemaLedgerOwner
from broker.tenancy.schemas.schema_format import decode_locator
from broker.tenancy.schemas.schema_info import SchemaInfo
from broker.tenancy.schemas.schema_ledgers import ENTRY_BYTES_MAX, SchemaLost
from broker.tenancy.schemas.tests.test_schema_ledgers import CutStore
from broker.tenancy.schemas.tests.world import bookie_of, client_on, registry_on
from metadata.memory_store import MemoryStore
from metadata.store import MetadataUnavailable
from protocol.errors import PersistenceError
from protocol.topic_name import TopicName
from runtime.clock import SystemClock
from runtime.testing.conditions import eventually

SCHEMAS = {
    "public/default/one": [(0, SchemaInfo("AVRO", b'{"type":"int"}', {"a": "b"}))],
    "public/default/deleted": [(0, SchemaInfo("INT8", b"")), (1, None)],
    "a/b/again": [
        (0, SchemaInfo("KEY_VALUE", b"\0\0\0\1x\0\0\0\1y", {"key.schema.type": "STRING"})),
        (1, None),
        (2, SchemaInfo("JSON", b"{}")),
        (3, SchemaInfo("NONE", b"")),
    ],
    # A forced deletion was interrupted.
    "a/b/late": [(3, SchemaInfo("STRING", b"")), (4, SchemaInfo("INT64", b"8"))],
}


async def store_before(schemas=SCHEMAS):
    """A store as earlier versions wrote it."""
    store = MemoryStore()
    for schema_id, versions in schemas.items():
        for number, schema in versions:
            record = {"deleted": True, "timestamp": 5}
            if schema is not None:
                record = schema.to_stored(1000 + number)
            value = json.dumps(record, ensure_ascii=False, separators=(",", ":")).encode()
            await store.put(f"/schemas/{schema_id}/{number}", value, -1)
    return store


async def convert(store, bookie=None):
    """As a broker that starts. Returns its registry."""
    schemas = registry_on(store, bookie=bookie)
    await SchemaConversion(store, schemas.ledgers).run()
    return schemas


async def check_converted(store, schemas, expected=SCHEMAS):
    client = client_on(store)
    ledgers = set()
    for schema_id, versions in expected.items():
        assert await store.children(f"/schemas/{schema_id}") == []
        stored = await store.get(f"/schemas/{schema_id}")
        ledgers |= {each.ledger_id for each in decode_locator(stored[0])}
        topic = TopicName.parse(schema_id)
        newest = await schemas.newest(topic)
        assert (newest.version, newest.schema) == versions[-1]
        live = [(each.version, each.schema, each.timestamp_ms) for each in await schemas.all(topic)]
        deletions = [place for place, (_, schema) in enumerate(versions) if schema is None]
        after = versions[deletions[-1] + 1 :] if deletions else versions
        assert live == [(number, schema, 1000 + number) for number, schema in after]
    assert await client.live_ledgers() == ledgers
    assert await store.exists(DONE_PATH)
    assert not await store.exists(LEASE_PATH)


async def test_all_versions_are_converted_and_numbers_go_on():
    store = await store_before()
    schemas = await convert(store)
    await check_converted(store, schemas)
    for name, next_version in (("one", 1), ("deleted", 2)):
        topic = TopicName.parse(f"public/default/{name}")
        new = SchemaInfo("INT16", b"new")
        assert await schemas.find_or_add(topic, new, "ALWAYS_COMPATIBLE") == next_version
    await schemas.delete(TopicName.parse("a/b/again"), force=True)
    assert await schemas.newest(TopicName.parse("a/b/again")) is None


async def test_it_happens_once():
    store = await store_before({})
    await convert(store)
    await store.put("/schemas/a/b/c/0", b"{}", -1)
    schemas = await convert(store)
    assert schemas.ledgers.unconverted == {}
    assert await store.children("/schemas/a/b/c") == ["0"]


@pytest.mark.parametrize("takes_effect", [True, False])
async def test_no_instant_of_a_crash_loses_anything(takes_effect):
    for writes in range(60):
        inner = await store_before()
        store = CutStore(inner, writes, takes_effect=takes_effect)
        store.put_ephemeral = inner.put_ephemeral
        with suppress(MetadataUnavailable):
            await convert(store, bookie_of(inner))
        with suppress(Exception):
            await inner.delete(LEASE_PATH)  # its session ends with the process
        schemas = await convert(inner)
        client = client_on(inner)
        owner = SchemaLedgerOwner(inner, SystemClock(), 0)
        await OrphanCollector(inner, client, {}, lambda _name: True, [owner]).collect()
        await check_converted(inner, schemas)
        if not store.is_cut:
            return
    raise AssertionError("the conversion has more writes than were tried")


async def test_several_brokers_that_start_at_once_convert_once():
    store = await store_before()
    sessions = [store, *(store.another_session() for _ in range(3))]
    async with trio.open_nursery() as nursery:
        for session in sessions:
            nursery.start_soon(convert, session, bookie_of(store))
    for session in sessions:
        await check_converted(session, registry_on(session, bookie=bookie_of(store)))


async def test_a_broker_whose_bookies_take_no_entries_starts_and_converts_later():
    """Refused, it could never be emptied: its consumers and `topics delete` need a broker."""
    store = await store_before()
    bookie = bookie_of(store)
    bookie.add_status = lambda _ledger_id, _entry_id: Status.READ_ONLY
    schemas = registry_on(store)
    conversion = SchemaConversion(store, schemas.ledgers, retry_seconds=0.01)
    await conversion.run()
    topic = TopicName.parse("public/default/one")
    new = SchemaInfo("INT16", b"new")
    for request in (schemas.latest(topic), schemas.find_or_add(topic, new, "ALWAYS_COMPATIBLE")):
        with pytest.raises(PersistenceError, match="try again"):
            await request
    assert await schemas.latest(TopicName.parse("public/default/none")) is None
    await schemas.delete(TopicName.parse("a/b/late"), force=True)
    assert await store.children("/schemas/a/b/late") == []
    async with trio.open_nursery() as nursery:
        await nursery.start(conversion.finish)
        attempts = bookie.adds
        await eventually(lambda: bookie.adds > attempts)
        assert schemas.ledgers.postponed
        bookie.add_status = lambda _ledger_id, _entry_id: Status.OK
    await OrphanCollector(
        store,
        client_on(store),
        {},
        lambda _name: True,
        [SchemaLedgerOwner(store, SystemClock(), 0)],
    ).collect()
    rest = {name: versions for name, versions in SCHEMAS.items() if name != "a/b/late"}
    await check_converted(store, schemas, rest)
    assert await schemas.find_or_add(topic, new, "ALWAYS_COMPATIBLE") == 1
    assert await schemas.newest(TopicName.parse("a/b/late")) is None


@pytest.mark.parametrize(
    "damage",
    [b"", b"{", b'{"timestamp":1}', b'{"type":"FOO","data":"","properties":{},"timestamp":1}'],
)
async def test_what_cannot_be_read_stays_and_is_told_and_the_rest_is_converted(damage):
    store = await store_before()
    await store.put("/schemas/a/b/again/2", damage, None)
    schemas = await convert(store)
    rest = {name: versions for name, versions in SCHEMAS.items() if name != "a/b/again"}
    assert not await store.exists(DONE_PATH)
    await store.put(DONE_PATH, b"1", None)
    await check_converted(store, schemas, rest)
    topic = TopicName.parse("a/b/again")
    for request in (
        schemas.latest(topic),
        schemas.find_or_add(topic, SchemaInfo("INT8", b""), "FULL"),
    ):
        with pytest.raises(SchemaLost, match="/schemas/a/b/again/2"):
            await request
    assert await store.children("/schemas/a/b/again") == ["0", "1", "2", "3"]
    await schemas.delete(topic, force=True)
    assert await store.children("/schemas/a/b/again") == []
    assert await schemas.find_or_add(topic, SchemaInfo("INT8", b""), "FULL") == 0


async def test_a_list_with_other_schemas_keeps_the_old_ones():
    store = await store_before()
    other = TopicName.parse("public/default/one")
    await registry_on(store).find_or_add(other, SchemaInfo("INT8", b"other"), "FULL")
    schemas = await convert(store)
    with pytest.raises(SchemaLost, match="lists other schemas"):
        await schemas.latest(other)
    assert await store.children("/schemas/public/default/one") == ["0"]


async def test_a_schema_that_no_entry_holds_keeps_nobody_else_from_being_converted():
    store = await store_before()
    path = "/schemas/a/b/again/2"
    large = SchemaInfo("JSON", b"{}", {"a": "x" * ENTRY_BYTES_MAX})
    await store.put(path, json.dumps(large.to_stored(1002)).encode(), None)
    schemas = await convert(store)
    rest = {name: versions for name, versions in SCHEMAS.items() if name != "a/b/again"}
    await store.put(DONE_PATH, b"1", None)
    await check_converted(store, schemas, rest)
    with pytest.raises(SchemaLost, match="fit in an entry"):
        await schemas.latest(TopicName.parse("a/b/again"))
