"""A topic's list of versions that cannot be read is an error that names its node, never "no
schema"."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from broker.tenancy.schemas.schema_format import DamagedSchema, decode_locator
from broker.tenancy.schemas.schema_ledgers import SchemaLost
from broker.tenancy.schemas.tests.test_schema_ledgers import (
    FREE,
    PATH,
    TOPIC,
    collect,
    schema,
)
from broker.tenancy.schemas.tests.world import client_on, registry_on
from metadata.memory_store import MemoryStore
from metadata.store import MUST_NOT_EXIST
from protocol import pulsar_api_pb2 as pb


async def stored(versions):
    """A store with so many versions, in ledgers from 0 on, and their list."""
    store = MemoryStore()
    schemas = registry_on(store)
    for number in range(versions):
        await schemas.find_or_add(TOPIC, schema(number), FREE)
    return store, (await store.get(PATH))[0]


async def test_no_part_of_a_list_is_a_list():
    _, data = await stored(3)
    for size in range(len(data)):
        with pytest.raises(DamagedSchema):
            decode_locator(data[:size])


DAMAGES = {
    "emptied": lambda data: b"",
    "its first byte": lambda data: data[:1],
    "without its last byte": lambda data: data[:-1],
    "not a list": lambda data: b"\xff",
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
async def test_a_damaged_list_is_told_with_its_node_and_a_forced_deletion_helps(damage):
    store, data = await stored(2)
    await store.put(PATH, damage(data), None)
    schemas = registry_on(store)
    for request in (
        schemas.latest(TOPIC),
        schemas.get(TOPIC, 0),
        schemas.all(TOPIC),
        schemas.find_version(TOPIC, schema(0)),
        schemas.find_or_add(TOPIC, schema(0), FREE),
        schemas.find_or_add(TOPIC, schema(2), FREE),
        schemas.delete(TOPIC),
    ):
        with pytest.raises(SchemaLost, match=f"{PATH}: .*force=true") as raised:
            await request
        assert raised.value.server_error == pb.PersistenceError
    await schemas.delete(TOPIC, force=True)
    assert not await store.exists(PATH)
    assert await schemas.latest(TOPIC) is None
    assert await schemas.find_or_add(TOPIC, schema(0), FREE) == 0


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
async def test_a_damaged_list_protects_the_ledgers_of_its_topic(damage):
    store, data = await stored(2)
    await store.put(PATH, damage(data), None)
    with capture_logs() as logs:
        assert await collect(store) == []
    assert await client_on(store).live_ledgers() == {0, 1}
    assert [line["ledger_id"] for line in logs if line["log_level"] == "warning"] == [0, 1]


@pytest.mark.parametrize("is_forced", [False, True])
async def test_a_deletion_leaves_a_list_that_can_be_read_or_none(is_forced):
    store, _ = await stored(2)
    schemas = registry_on(store)
    await schemas.delete(TOPIC, force=is_forced)
    left = await store.get(PATH)
    assert left is None if is_forced else len(decode_locator(left[0])) == 3
    other = registry_on(store)
    assert await other.latest(TOPIC) is None
    assert await other.find_or_add(TOPIC, schema(5), FREE) == (0 if is_forced else 3)


async def test_an_empty_node_with_others_below_it_is_their_parent():
    """Old Pulsar named topics with their cluster, so the node of a namespace was where that of a
    topic is now."""
    store, data = await stored(1)
    await store.put("/schemas/public/default/b/topic", data, None)
    await store.put("/schemas/public/default/b", b"", MUST_NOT_EXIST)
    schemas = registry_on(store)
    topic = TOPIC.parse("public/default/b")
    assert await schemas.latest(topic) is None
    assert await schemas.find_or_add(topic, schema(0), FREE) == 0
