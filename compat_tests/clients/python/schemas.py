"""Schemas: registered, returned as registered, and refused when incompatible."""

from __future__ import annotations

from typing import Any

import pulsar
from pulsar.schema import AvroSchema, BytesSchema, Integer, JsonSchema, Record, String, StringSchema

from compat_tests.clients.python.scenario import Stage, scenario


class Person(Record):
    name = String()
    age = Integer()


def _changed_person(**changed: Any) -> Any:
    """A record of the same name with other fields; fields keep the order they are given in."""
    fields = {"name": String(), "age": Integer()} | changed
    return type("Person", (Record,), fields)


PersonWithCity = _changed_person(city=String(required_default=True))
PersonWithOtherAge = _changed_person(age=String())
PersonWithBareCity = _changed_person(city=String(required=True))


def _registered(stage: Stage, topic: str) -> Any:
    path = "/admin/v2/schemas/" + topic.partition("://")[2] + "/schema"
    status, body = stage.server.http("GET", path)
    if status != 200:
        return status
    return {key: body.get(key) for key in ("version", "type", "data", "properties")}


@scenario("schema-string")
def schema_string(stage: Stage) -> None:
    consumer = stage.client.subscribe(stage.topic(), "s", schema=StringSchema())
    producer = stage.client.create_producer(stage.topic(), schema=StringSchema())
    producer.send("grüße")
    message = consumer.receive(10_000)
    stage.see("value", message.value())
    stage.see_message("message", message)
    stage.see("registered", _registered(stage, stage.topic()))


@scenario("schema-json")
def schema_json(stage: Stage) -> None:
    _records(stage, JsonSchema)


@scenario("schema-avro")
def schema_avro(stage: Stage) -> None:
    _records(stage, AvroSchema)


def _records(stage: Stage, kind: Any) -> None:
    consumer = stage.client.subscribe(stage.topic(), "s", schema=kind(Person))
    producer = stage.client.create_producer(stage.topic(), schema=kind(Person))
    for number in range(3):
        producer.send(Person(name=f"n{number}", age=number))
    for _ in range(3):
        message = consumer.receive(10_000)
        stage.see("value", [message.value().name, message.value().age])
        stage.see_message("message", message)
    stage.see("registered", _registered(stage, stage.topic()))


@scenario("schema-incompatible")
def schema_incompatible(stage: Stage) -> None:
    for kind in (AvroSchema, JsonSchema):
        _refusals(stage, kind, stage.topic("-" + kind.__name__))


def _refusals(stage: Stage, kind: Any, topic: str) -> None:
    def produce(what: str, schema: Any) -> None:
        stage.see_error(
            f"{kind.__name__} producer, {what}",
            lambda: stage.client.create_producer(topic, schema=schema),
        )

    def subscribe(what: str, schema: Any) -> None:
        stage.see_error(
            f"{kind.__name__} consumer, {what}",
            lambda: stage.client.subscribe(topic, "s", schema=schema),
        )

    first = stage.client.create_producer(topic, schema=kind(Person))
    first.send(Person(name="a", age=1))
    produce("another type of a field", kind(PersonWithOtherAge))
    subscribe("another type of a field", kind(PersonWithOtherAge))
    produce("text", StringSchema())
    subscribe("the right one after it", kind(Person))
    produce("bytes", BytesSchema())
    produce("a field more without a default", kind(PersonWithBareCity))
    produce("a field more with a default", kind(PersonWithCity))
    stage.see("registered at last", _registered(stage, topic))


@scenario("schema-versions")
def schema_versions(stage: Stage) -> None:
    old = stage.client.create_producer(stage.topic(), schema=JsonSchema(Person))
    consumer = stage.client.subscribe(
        stage.topic(), "s", initial_position=pulsar.InitialPosition.Earliest
    )
    old.send(Person(name="a", age=1))
    new = stage.client.create_producer(stage.topic(), schema=JsonSchema(PersonWithCity))
    new.send(PersonWithCity(name="b", age=2, city="c"))
    again = stage.client.create_producer(stage.topic(), schema=JsonSchema(Person))
    again.send(Person(name="d", age=3))
    for _ in range(3):
        message = consumer.receive(10_000)
        stage.see_message("message", message)
        stage.see("schema version", message.schema_version())
