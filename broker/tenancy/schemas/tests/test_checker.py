"""Checks beside the event loop: their bounds, and that the loop goes on."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING

import pytest
import trio
import trio.lowlevel

from broker.ground.config import DEFAULT_CONFIG
from broker.tenancy.schemas.checker import PROPERTIES_MAX, SchemaChecker
from broker.tenancy.schemas.schema_info import SchemaInfo
from broker.tenancy.schemas.tests.world import registry_on
from metadata.memory_store import MemoryStore
from protocol.errors import IncompatibleSchema, ServiceNotReady
from protocol.topic_name import TopicName
from runtime.testing.conditions import eventually

if TYPE_CHECKING:
    from broker.tenancy.schemas.budget import Budget
    from broker.tenancy.schemas.registry import SchemaRegistry

TOPIC = TopicName.parse("public/default/a")


def checker(**keys: object) -> SchemaChecker:
    return SchemaChecker(dataclasses.replace(DEFAULT_CONFIG, **keys))


def endless(budget: Budget) -> None:
    while True:
        budget.spend()


async def test_a_check_is_ended_when_its_time_is_over():
    ended = []

    def check(budget: Budget) -> None:
        try:
            endless(budget)
        finally:
            ended.append(True)

    checks = checker(schemaCheckTimeoutMillis=20, schemaCheckMaxSteps=2**40)
    with pytest.raises(ServiceNotReady, match="schemaCheckTimeoutMillis"):
        await checks.run(check)
    await eventually(lambda: ended)
    assert checks.pending == 0


async def test_a_check_ends_when_its_client_is_gone():
    begun, ended = [], []

    def check(budget: Budget) -> None:
        begun.append(True)
        try:
            endless(budget)
        finally:
            ended.append(True)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(checker(schemaCheckMaxSteps=2**40).run, check)
        await eventually(lambda: begun)
        nursery.cancel_scope.cancel()
    await eventually(lambda: ended)


async def test_too_many_steps_are_a_refusal_and_not_an_attempt_to_make_again():
    with pytest.raises(IncompatibleSchema, match="schemaCheckMaxSteps"):
        await checker(schemaCheckMaxSteps=1_000).run(endless)


async def test_the_event_loop_runs_while_a_schema_is_checked():
    """How often, not how fast: in one thread without pauses it would run once or twice."""
    turns = 0
    checks = checker(schemaCheckMaxSteps=200_000)
    done = trio.Event()

    async def count() -> None:
        nonlocal turns
        while not done.is_set():
            turns += 1
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(count)
        with pytest.raises(IncompatibleSchema):
            await checks.run(endless)
        done.set()
    assert turns > 100


async def test_checks_beyond_the_pending_ones_are_refused():
    checks = checker(schemaCheckMaxPending=2, schemaCheckMaxSteps=2**40)
    async with trio.open_nursery() as nursery:
        for _ in range(2):
            nursery.start_soon(checks.run, endless)
        while checks.pending < 2:
            await trio.lowlevel.checkpoint()
        with pytest.raises(ServiceNotReady, match="schemaCheckMaxPending"):
            await checks.run(endless)
        nursery.cancel_scope.cancel()
    assert checks.pending == 0


def schemas(**keys: object) -> SchemaRegistry:
    config = dataclasses.replace(DEFAULT_CONFIG, **keys)
    return registry_on(MemoryStore(), config)


async def test_a_definition_that_is_too_large_is_refused_before_it_is_parsed():
    definition = {"type": "record", "name": "A", "fields": [], "doc": "x" * 1_000}
    large = SchemaInfo("AVRO", json.dumps(definition).encode())
    with pytest.raises(IncompatibleSchema, match="schemaMaxSizeBytes allows 1000"):
        await schemas(schemaMaxSizeBytes=1_000).find_or_add(TOPIC, large, "FULL")
    assert await schemas(schemaMaxSizeBytes=2_000).find_or_add(TOPIC, large, "FULL") == 0


async def test_properties_count_as_part_of_a_definition():
    """140,000 of them were stored, and then took 0.2 s of the event loop for each GET_SCHEMA."""
    large = SchemaInfo("STRING", b"", {"k": "x" * 1_000})
    many = SchemaInfo("STRING", b"", {str(n): "" for n in range(PROPERTIES_MAX + 1)})
    with pytest.raises(IncompatibleSchema, match="schemaMaxSizeBytes allows 1000"):
        await schemas(schemaMaxSizeBytes=1_000).find_or_add(TOPIC, large, "FULL")
    with pytest.raises(IncompatibleSchema, match="4001 properties, and 4000 are allowed"):
        await schemas().find_or_add(TOPIC, many, "FULL")
    with pytest.raises(IncompatibleSchema, match="4001 properties"):
        await schemas().posted({"type": "STRING", "properties": many.properties})
    del many.properties["0"]
    assert await schemas().find_or_add(TOPIC, many, "FULL") == 0


async def test_equal_checks_of_one_topic_are_made_once():
    registry = schemas(schemaCheckMaxPending=1)
    one = SchemaInfo("AVRO", b'{"type":"record","name":"A","fields":[]}')
    assert await registry.find_or_add(TOPIC, one, "FULL") == 0
    assert await registry.find_or_add(TOPIC, one, "FULL") == 0

    async def again() -> None:
        assert await registry.find_or_add(TOPIC, one, "FULL") == 0

    async with trio.open_nursery() as nursery:
        for _ in range(50):  # more than may be pending: none of them is checked
            nursery.start_soon(again)


async def test_a_schema_10000_levels_deep_is_refused():
    deep = b'{"type":"array","items":' * 10_000 + b'"int"' + b"}" * 10_000
    with pytest.raises(Exception, match="Invalid schema definition data for AVRO"):
        await schemas().find_or_add(TOPIC, SchemaInfo("AVRO", deep), "FULL")
