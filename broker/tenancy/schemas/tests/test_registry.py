"""Versions, byte-for-byte return, concurrency, deletion, and the rules for producers/consumers."""

from __future__ import annotations

import dataclasses
import json

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from broker.ground.config import DEFAULT_CONFIG
from broker.tenancy.policies.effective import EffectivePolicies, resolve
from broker.tenancy.policies.record import Policies
from broker.tenancy.schemas.registry import SchemaRegistry, version_bytes, version_number
from broker.tenancy.schemas.schema_info import InvalidSchema, SchemaInfo
from broker.tenancy.schemas.tests.world import registry_on
from metadata.memory_store import MemoryStore
from protocol import pulsar_api_pb2 as pb
from protocol.errors import IncompatibleSchema
from protocol.topic_name import TopicName

TOPIC = TopicName.parse("public/default/a")


def record(*fields: object, name: str = "A") -> str:
    return json.dumps({"type": "record", "name": name, "fields": list(fields)})


A = record({"name": "a", "type": "int"})
A_WITH_OPTIONAL = record(
    {"name": "a", "type": "int"}, {"name": "b", "type": ["null", "int"], "default": None}
)
A_AS_TEXT = record({"name": "a", "type": "string"})


def avro(text: str, **properties: str) -> SchemaInfo:
    return SchemaInfo("AVRO", text.encode(), properties)


def registry(store: MemoryStore | None = None, **keys: object) -> SchemaRegistry:
    config = dataclasses.replace(DEFAULT_CONFIG, **keys)
    return registry_on(store or MemoryStore(), config)


def policies(**fields: object) -> EffectivePolicies:
    return resolve(DEFAULT_CONFIG, Policies.fresh(fields, DEFAULT_CONFIG))


async def test_versions_count_up_and_equal_schemas_share_one():
    store = MemoryStore()
    schemas = registry(store)
    assert await schemas.find_or_add(TOPIC, avro(A, x="y"), "FULL") == 0
    assert await schemas.find_or_add(TOPIC, avro(A), "FULL") == 0
    reformatted = json.dumps(json.loads(A), indent=3)
    assert await schemas.find_or_add(TOPIC, avro(reformatted), "FULL") == 0
    assert await schemas.find_or_add(TOPIC, avro(A_WITH_OPTIONAL), "FULL") == 1
    first = await registry(store).get(TOPIC, 0)
    assert first is not None
    assert first.schema == avro(A, x="y")
    latest = await registry(store).latest(TOPIC)
    assert latest is not None
    assert latest.version == 1
    assert await schemas.get(TOPIC, 7) is None


async def test_partitions_share_the_schema_of_their_topic():
    schemas = registry()
    await schemas.find_or_add(TOPIC.partition(3), avro(A), "FULL")
    assert (await schemas.latest(TOPIC.partition(0))) == await schemas.latest(TOPIC)


async def test_refusals_say_what_does_not_fit():
    schemas = registry()
    await schemas.find_or_add(TOPIC, avro(A), "FULL")
    with pytest.raises(
        IncompatibleSchema,
        match="Incompatible schema: exists schema type AVRO, new schema type JSON",
    ):
        await schemas.find_or_add(TOPIC, SchemaInfo("JSON", A.encode()), "FULL")
    with pytest.raises(
        IncompatibleSchema,
        match=r"check with strategy FULL: .*Unable to read schema",
    ):
        await schemas.find_or_add(TOPIC, avro(A_AS_TEXT), "FULL")
    with pytest.raises(InvalidSchema, match="Invalid schema definition data for AVRO schema"):
        await schemas.find_or_add(TOPIC, avro("garbage"), "ALWAYS_COMPATIBLE")
    assert await schemas.find_or_add(TOPIC, avro(A_AS_TEXT), "ALWAYS_COMPATIBLE") == 1


async def test_equal_posts_at_the_same_moment_get_the_same_version():
    for _ in range(20):
        schemas = registry()
        versions: list[int] = []

        async def post(schemas: SchemaRegistry = schemas, versions: list[int] = versions):
            versions.append(await schemas.find_or_add(TOPIC, avro(A), "FULL"))

        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(post)
        assert versions == [0] * 5
        assert len(await schemas.all(TOPIC)) == 1


async def test_concurrent_different_schemas_get_their_own_versions():
    schemas = registry()
    versions: dict[str, int] = {}

    async def post(text: str) -> None:
        versions[text] = await schemas.find_or_add(TOPIC, avro(text), "ALWAYS_COMPATIBLE")

    async with trio.open_nursery() as nursery:
        for text in (A, A_WITH_OPTIONAL, A_AS_TEXT):
            nursery.start_soon(post, text)
    assert sorted(versions.values()) == [0, 1, 2]
    for text, version in versions.items():
        stored = await schemas.get(TOPIC, version)
        assert stored is not None
        assert stored.schema == avro(text)


async def test_deletion_never_gives_a_version_twice_unless_forced():
    schemas = registry()
    await schemas.find_or_add(TOPIC, avro(A), "FULL")
    assert await schemas.delete(TOPIC) == 1
    assert await schemas.latest(TOPIC) is None
    assert await schemas.all(TOPIC) == []
    assert await schemas.find_or_add(TOPIC, avro(A_AS_TEXT), "FULL") == 2
    assert [each.version for each in await schemas.all(TOPIC)] == [2]
    assert await schemas.delete(TOPIC, force=True) == -1
    assert await schemas.find_or_add(TOPIC, avro(A), "FULL") == 0


async def test_versions_of_a_deleted_schema_cannot_be_read():
    schemas = registry()
    await schemas.find_or_add(TOPIC, avro(A), "FULL")
    await schemas.delete(TOPIC)
    assert await schemas.get(TOPIC, 0) is None
    newest = await schemas.newest(TOPIC)
    assert newest is not None
    assert (newest.version, newest.schema) == (1, None)
    await schemas.find_or_add(TOPIC, avro(A_AS_TEXT), "FULL")
    assert await schemas.get(TOPIC, 0) is None
    assert await schemas.get(TOPIC, 2) is not None


async def test_producers_without_a_schema():
    schemas = registry()
    assert await schemas.for_producer(TOPIC, None, policies()) == b""
    await schemas.find_or_add(TOPIC, avro(A), "FULL")
    assert await schemas.for_producer(TOPIC, None, policies()) == b""
    enforced = policies(schema_validation_enforced=True)
    with pytest.raises(IncompatibleSchema, match="without a schema"):
        await schemas.for_producer(TOPIC, None, enforced)
    with pytest.raises(IncompatibleSchema):
        await schemas.for_producer(
            TOPIC, avro(A_WITH_OPTIONAL).to_wire(""), policies(is_allow_auto_update_schema=False)
        )
    version = await schemas.for_producer(TOPIC, avro(A).to_wire(""), enforced)
    assert version == bytes(8)


async def test_consumers_read_compatibly_and_leave_nothing_when_refused():
    schemas = registry()
    wire = avro(A).to_wire("")
    with pytest.raises(IncompatibleSchema, match="active topic with empty"):
        await schemas.for_consumer(TOPIC, wire, policies(), is_in_use=lambda: True)
    await schemas.for_consumer(TOPIC, wire, policies(), is_in_use=lambda: False)
    assert await schemas.find_version(TOPIC, avro(A)) == 0
    with pytest.raises(IncompatibleSchema, match="strategy BACKWARD"):
        await schemas.for_consumer(
            TOPIC, avro(A_AS_TEXT).to_wire(""), policies(), is_in_use=lambda: True
        )
    await schemas.for_consumer(TOPIC, wire, policies(), is_in_use=lambda: True)
    harmless = pb.Schema(name="", schema_data=b"", type="AutoConsume")
    await schemas.for_consumer(TOPIC, harmless, policies(), is_in_use=lambda: True)
    assert len(await schemas.all(TOPIC)) == 1


async def test_a_consumer_may_come_to_any_data_where_everything_is_compatible():
    schemas = registry()
    wire = avro(A).to_wire("")
    strategy = policies(schema_compatibility_strategy="ALWAYS_COMPATIBLE")
    await schemas.for_consumer(TOPIC, wire, strategy, is_in_use=lambda: True)
    assert await schemas.all(TOPIC) == []


async def test_no_producer_has_the_schema_of_consumers_that_take_any():
    schemas = registry()
    auto_consume = pb.Schema(name="", schema_data=b"", type="AutoConsume")
    with pytest.raises(IncompatibleSchema, match="schema of consumers only"):
        await schemas.for_producer(TOPIC, auto_consume, policies())


async def test_a_bytes_schema_that_is_sent_is_one_like_any_other():
    sent = pb.Schema(name="", schema_data=b"", type="None")
    schemas = registry()
    await schemas.for_consumer(TOPIC, sent, policies(), is_in_use=lambda: False)
    assert await schemas.for_producer(TOPIC, sent, policies()) == bytes(8)
    schemas = registry()
    await schemas.find_or_add(TOPIC, avro(A), "FULL")
    with pytest.raises(IncompatibleSchema):
        await schemas.for_producer(TOPIC, sent, policies())
    with pytest.raises(IncompatibleSchema):
        await schemas.for_consumer(TOPIC, sent, policies(), is_in_use=lambda: True)


@given(
    data=st.binary(max_size=200),
    properties=st.dictionaries(st.text(max_size=8), st.text(max_size=8), max_size=4),
)
def test_what_was_registered_comes_back_byte_for_byte(data: bytes, properties: dict[str, str]):
    async def scenario() -> None:
        store = MemoryStore()
        schema = SchemaInfo("INT8", data, properties)
        version = await registry(store).find_or_add(TOPIC, schema, "FULL")
        stored = await registry(store).get(TOPIC, version)
        assert stored is not None
        assert stored.schema == schema
        assert SchemaInfo.from_wire(schema.to_wire("a")) == schema

    trio.run(scenario)


async def test_half_a_surrogate_pair_is_stored_as_a_question_mark():
    schemas = registry()
    schema = await schemas.posted({"type": "STRING", "properties": {"a\ud800": "\udfff"}})
    await schemas.find_or_add(TOPIC, schema, "FULL")
    assert (await schemas.latest(TOPIC)).schema.properties == {"a?": "?"}


def test_version_bytes_are_eight_and_big_endian():
    assert version_bytes(0) == bytes(8)
    assert version_bytes(258) == b"\0\0\0\0\0\0\x01\x02"
    assert version_number(version_bytes(7)) == 7
    assert version_number(b"") is None
