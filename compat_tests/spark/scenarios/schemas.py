"""Schemas: AVRO, JSON and primitives, written by Spark and by the Python client."""

from __future__ import annotations

from typing import Any

from pulsar.schema import (
    Array,
    AvroSchema,
    BytesSchema,
    Double,
    Integer,
    JsonSchema,
    Long,
    Map,
    Record,
    String,
    StringSchema,
)

from compat_tests.clients.admin_requests import schema_path
from compat_tests.spark.stage import Stage, run_to_end, scenario


class Place(Record):
    city = String()
    zip = Integer()


class Person(Record):
    name = String()
    age = Integer()
    score = Double()
    visits = Long()
    place = Place()
    tags = Array(String())
    marks = Map(Integer())


def _person_with_note() -> Any:
    """The record with a field more, under the same name."""
    fields = {"name": String(), "age": Integer(), "score": Double(), "visits": Long()}
    fields |= {"place": Place(), "tags": Array(String()), "marks": Map(Integer())}
    return type("Person", (Record,), fields | {"note": String(required_default=True)})


PersonWithNote = _person_with_note()


def _person(number: int, kind: Any = Person, **more: Any) -> Any:
    return kind(
        name=f"ü{number}",
        age=number,
        score=number / 4,
        visits=number * 10**12,
        place=Place(city=f"c{number}", zip=number),
        tags=[f"t{turn}" for turn in range(number)],
        marks={"a": number},
        **more,
    )


def _publish(stage: Stage, topic: str, schema: Any, values: list[Any], batched: bool) -> None:
    producer = stage.client.create_producer(
        topic,
        schema=schema,
        batching_enabled=batched,
        batching_max_messages=5,
        batching_max_publish_delay_ms=5000,
    )
    for value in values:
        producer.send_async(value, None)
    producer.flush()
    producer.close()


def _records(stage: Stage, kind: Any) -> None:
    for batched in (False, True):
        topic = stage.topic(f"-{batched}")
        _publish(stage, topic, kind(Person), [_person(each) for each in range(12)], batched)
        stage.see("schema", stage.admin("GET", schema_path(topic)))
        frame = stage.read(topic=topic, **stage.http_lookup)
        stage.see("columns", frame.schema.simpleString())
        stage.see_rows("batch", frame)
        given = {"topic": topic, "startingOffsets": "earliest"} | stage.http_lookup
        query = stage.to_files(stage.read_stream(**given), f"files-{batched}")
        query.processAllAvailable()
        _publish(stage, topic, kind(Person), [_person(each) for each in range(3)], batched)
        query.processAllAvailable()
        query.stop()
        stage.see_rows("stream", stage.files(f"files-{batched}"))


@scenario("schema-avro-of-the-python-client")
def avro(stage: Stage) -> None:
    _records(stage, AvroSchema)


@scenario("schema-json-of-the-python-client")
def json_records(stage: Stage) -> None:
    _records(stage, JsonSchema)


@scenario("schema-evolution")
def evolution(stage: Stage) -> None:
    """A running query keeps its columns; a new one sees the new field, null where it was not."""
    for kind in (AvroSchema, JsonSchema):
        topic = stage.topic(f"-{kind.__name__}")
        _publish(stage, topic, kind(Person), [_person(each) for each in range(3)], False)
        given = {"topic": topic, "startingOffsets": "earliest"} | stage.http_lookup
        query = stage.to_files(stage.read_stream(**given), kind.__name__)
        query.processAllAvailable()
        newer = [_person(each, PersonWithNote, note=f"n{each}") for each in range(3, 6)]
        _publish(stage, topic, kind(PersonWithNote), newer, False)
        query.processAllAvailable()
        query.stop()
        stage.see_rows("running query", stage.files(kind.__name__))
        frame = stage.read(topic=topic, **stage.http_lookup)
        stage.see("columns", frame.schema.simpleString())
        stage.see_rows("new query", frame)


PRIMITIVES = {
    "boolean": "id % 2 = 0",
    "tinyint": "cast(id AS tinyint)",
    "smallint": "cast(id * 100 AS smallint)",
    "int": "cast(id * 100000 AS int)",
    "bigint": "id * 10000000000",
    "float": "cast(id / 4 AS float)",
    "double": "id / 3D",
    "string": "concat('ü', id)",
    "binary": "cast(concat('b', id) AS binary)",
    "date": "date_add(DATE'2024-02-28', cast(id AS int))",
    "timestamp": "timestamp_millis(1700000000123 + id)",
}


@scenario("schema-primitives")
def primitives(stage: Stage) -> None:
    for kind, value in PRIMITIVES.items():
        topic = stage.topic(f"-{kind}")
        query = f"SELECT {value} AS value, '{topic}' AS __topic FROM range(6)"
        for _ in range(2):
            # One task: real Pulsar refuses the second of two BYTES posted at the same moment.
            stage.write(stage.spark.sql(query).coalesce(1))
        stage.see(kind, stage.admin("GET", schema_path(topic)))
        frame = stage.read(topic=topic).select("value")
        stage.see("column", frame.schema.simpleString())
        stage.see_rows("batch", frame)
        stream = stage.read_stream(topic=topic, startingOffsets="earliest").select("value")
        run_to_end(stage.to_files(stream, kind, available_now=True))
        stage.see_rows("stream", stage.files(kind))


@scenario("schema-primitives-of-the-python-client")
def primitives_of_the_client(stage: Stage) -> None:
    for kind, value in ((StringSchema, "ü"), (BytesSchema, b"\x00\xff")):
        topic = stage.topic(f"-{kind.__name__}")
        _publish(stage, topic, kind(), [value] * 3, True)
        stage.see("schema", stage.admin("GET", schema_path(topic)))
        stage.see_rows("batch", stage.read(topic=topic))


@scenario("schema-nested-written-as-stream")
def nested_stream(stage: Stage) -> None:
    """AVRO records from a stream of text, nullable and nested fields among them."""
    source, sink = stage.topic("-source"), stage.topic("-sink")
    stage.publish(source, ["1", "2", "x"])
    stream = stage.read_stream(topic=source, startingOffsets="earliest").selectExpr(
        "cast(cast(value AS string) AS int) AS number",
        "named_struct('text', cast(value AS string), 'list', array(1, 2)) AS inner",
        "map('k', cast(value AS string)) AS marks",
        f"'{sink}' AS __topic",
        "cast(value AS string) AS __key",
    )
    query = stage.to_topic(stream, "nested")
    query.processAllAvailable()
    query.stop()
    stage.see("schema", stage.admin("GET", schema_path(sink)))
    stage.see_rows("read", stage.read(topic=sink, **stage.http_lookup))
