"""Vela's own reader for Spark 3 beside the connector, in the same session: both engines.

Its rows are compared with the published messages, as the Python client reads them, and with rows
of the connector. The comparison allows for these differences of the connector: its client (2.4.2)
writes message ids without the size of their batch, and gives a message that has no key the key of
its batch; and it has no columns for keys and values. pytest imports this module where there is no
Spark and no Arrow.
"""

from __future__ import annotations

import datetime
import decimal
import io
import json
from typing import TYPE_CHECKING, Any

import fastavro
import pulsar
from pulsar.schema import Array, AvroSchema, Integer, JsonSchema, Map, Record, String

from compat_tests.clients.admin_requests import schema_path
from compat_tests.spark.stage import Stage, scenario

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

ENGINES = ("broker", "bookie")
EVENT_MS = 1_700_000_000_123
# Times as instants, so that no time zone of a session or of a process can hide an hour.
INSTANTS = (
    "value",
    "__key",
    "__topic",
    "__messageId",
    "unix_micros(__publishTime) AS published",
    "unix_micros(__eventTime) AS happened",
    "__messageProperties",
)
ELSEWHERE = "America/St_Johns"


def own(
    stage: Stage, topic: str, engine: str, schema: str | None = None, **options: object
) -> DataFrame:
    """A read with Vela's own reader."""
    from pipeline import spark3

    given = {"topic": topic, "READENGINE": engine, "failOnDataLoss": True} | options
    return spark3.read(stage.spark, schema, **stage.addresses, **given)


def publish(stage: Stage, topic: str, first: int, batched: bool) -> None:
    """30 messages with keys, properties and times; every third has none of them."""
    producer = stage.client.create_producer(
        topic,
        batching_enabled=batched,
        batching_max_messages=7,
        batching_max_publish_delay_ms=5000,
        compression_type=pulsar.CompressionType.LZ4,
    )
    for number in range(first, first + 30):
        more: dict[str, Any] = {}
        if number % 3:
            more["partition_key"] = f"k{number % 8}"
            more["properties"] = {"n": str(number), "ü": ""}
            more["event_timestamp"] = EVENT_MS + number
        producer.send_async(b"\x00m%d" % number, None, **more)
    producer.flush()
    producer.close()


def published(stage: Stage, topics: Sequence[str]) -> list[tuple[Any, ...]]:
    """All messages as the Python client reads them, in the form of `instants`."""
    rows = []
    for topic in topics:
        reader = stage.client.create_reader(topic, pulsar.MessageId.earliest)
        while reader.has_message_available():
            message = reader.read_next(10_000)
            happened = message.event_timestamp() * 1000 or None
            key = message.partition_key().encode() or None
            rows.append(
                (
                    message.data(),
                    key,
                    topic,
                    message.message_id().serialize(),
                    message.publish_timestamp() * 1000,
                    happened,
                    message.properties(),
                )
            )
        reader.close()
    return sorted(rows, key=lambda row: row[3])


def instants(frame: DataFrame) -> list[tuple[Any, ...]]:
    """All rows, metadata included, by message id."""
    rows = [
        tuple(bytes(each) if isinstance(each, bytearray) else each for each in row)
        for row in frame.selectExpr(*INSTANTS).collect()
    ]
    return sorted(rows, key=lambda row: row[3])


def as_the_connector_has_them(rows: list[tuple[Any, ...]]) -> dict[Any, tuple[Any, ...]]:
    """By the numbers of the id, without the messages of batches that have no key."""
    found = {}
    for value, key, topic, message_id, published_us, happened_us, properties in rows:
        each = pulsar.MessageId.deserialize(message_id)
        place = (each.ledger_id(), each.entry_id(), each.partition(), each.batch_index())
        if key is not None or each.batch_index() < 0:
            row = (value, key, topic, published_us, happened_us, tuple(sorted(properties.items())))
            found[place] = row
    return found


@scenario("own-reader-metadata-columns")
def metadata_columns(stage: Stage) -> None:
    """Every column of every message, of batches and of four partitions, to the byte."""
    topic = stage.topic()
    stage.partition(topic, 4)
    parts = [f"{topic}-partition-{index}" for index in range(4)]
    for first, batched in ((0, False), (30, True), (60, False), (90, True)):
        publish(stage, topic, first, batched)
    expected = published(stage, parts)
    assert len(expected) == 120
    connector = stage.read(topic=topic)
    zone = stage.spark.conf.get("spark.sql.session.timeZone")
    stage.spark.conf.set("spark.sql.session.timeZone", ELSEWHERE)
    try:
        for engine in ENGINES:
            frame = own(stage, topic, engine)
            assert instants(frame) == expected, engine
            again = own(stage, topic, engine, minPartitions=9)
            assert again.rdd.getNumPartitions() >= 9
            assert instants(again) == expected, f"{engine} with more tasks"
        agreed = as_the_connector_has_them(expected)
        assert agreed.items() <= as_the_connector_has_them(instants(connector)).items()
    finally:
        stage.spark.conf.set("spark.sql.session.timeZone", zone)
    for engine in ENGINES:
        frame = own(stage, topic, engine)
        stage.see("columns", frame.schema.simpleString())
        # The client chooses partitions by chance for messages without a key.
        stage.see_rows(engine, frame.drop("__topic"))
    assert frame.schema.simpleString() == connector.schema.simpleString()


@scenario("own-reader-bounds")
def bounds(stage: Stage) -> None:
    """Ids inside batches, a limit that leaves tasks unread, few columns, nothing, bad options."""
    topic = stage.topic()
    ids = stage.publish(topic, [f"m{number}" for number in range(40)], batched=True)
    first, last = (
        f"{each.ledger_id()}:{each.entry_id()}:-1:{each.batch_index()}" for each in ids[7:24:16]
    )
    for engine in ENGINES:
        inside = own(
            stage,
            topic,
            engine,
            startingOffsets=json.dumps({topic: first}),
            endingOffsets=json.dumps({topic: last}),
        )
        stage.see_rows(f"{engine}: inside", inside)
        assert own(stage, topic, engine, minPartitions=4).limit(3).count() == 3
        some = own(stage, topic, engine, "value BINARY, __topic STRING")
        stage.see_rows(f"{engine}: some columns", some)
    empty = stage.topic("-empty")
    stage.client.create_producer(empty).close()
    stage.see_rows("nothing", own(stage, empty, "broker"))
    for options in ({"topicz": "x"}, {"startingOffsets": "latest"}, {"topic": topic + "-unknown"}):
        try:
            own(stage, options.pop("topic", topic), "broker", **options)
        except Exception as failure:
            stage.see("refused", type(failure).__name__)
        else:
            raise AssertionError(f"{options} is not refused")


class Wheel(Record):
    name = String()
    size = Integer()


class Vehicle(Record):
    name = String()
    spare = Wheel()
    wheels = Array(Wheel())
    marks = Map(Integer())
    notes = Array(String())


def vehicle(number: int) -> Vehicle:
    """Some of it null, some of it empty."""
    wheels = [Wheel(name=f"w{turn}", size=turn) for turn in range(number % 3)]
    return Vehicle(
        name=f"ü{number}" if number % 4 else None,
        spare=Wheel(name="s", size=number) if number % 2 else None,
        wheels=wheels if number % 5 else None,
        marks={"a": number, "b": -number},
        notes=[f"n{number}"],
    )


@scenario("own-reader-records")
def records(stage: Stage) -> None:
    """AVRO and JSON: the connector's columns, types and rows, structs inside of arrays too."""
    for kind in (AvroSchema, JsonSchema):
        topic = stage.topic(f"-{kind.__name__}")
        producer = stage.client.create_producer(
            topic, schema=kind(Vehicle), batching_enabled=True, batching_max_messages=5
        )
        for number in range(12):
            producer.send_async(vehicle(number), None, partition_key=f"k{number % 3}")
        producer.flush()
        producer.close()
        connector = stage.read(topic=topic, **stage.http_lookup)
        for engine in ENGINES:
            frame = own(stage, topic, engine)
            rows = stage.see_rows(f"{kind.__name__}, {engine}", frame)
            assert len(rows) == 12
            assert frame.schema.simpleString() == connector.schema.simpleString()
            assert values(frame) == values(connector)


def values(frame: DataFrame) -> list[Any]:
    """The fields of the records."""
    columns = [name for name in frame.columns if not name.startswith("__")]
    return sorted((row.asDict(True) for row in frame.select(*columns).collect()), key=str)


DEEP = {
    "type": "record",
    "name": "Deep",
    "fields": [
        {"name": "times", "type": {"type": "array", "items": "TIME"}},
        {
            "name": "places",
            "type": {
                "type": "map",
                "values": {
                    "type": "record",
                    "name": "Place",
                    "fields": [
                        {"name": "at", "type": ["null", "TIME"]},
                        {"name": "inner", "type": {"type": "array", "items": "bytes"}},
                    ],
                },
            },
        },
        {
            "name": "price",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
        },
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
    ],
}
DEEP_SCHEMA = json.loads(
    json.dumps(DEEP).replace('"TIME"', '{"type": "long", "logicalType": "timestamp-micros"}')
)


@scenario("own-reader-nested-types")
def nested_types(stage: Stage) -> None:
    """What Python on Spark 3.4 has no Arrow type for: structs in maps, arrays of timestamps; and
    keys and values, for which the connector has no columns."""
    topic, pairs = stage.topic(), stage.topic("-pairs")
    text = json.dumps(DEEP_SCHEMA)
    body: dict[str, Any] = {"type": "AVRO", "schema": text, "properties": {}}
    status, told = stage.admin("POST", schema_path(topic), body)
    assert status == 200, told
    when = datetime.datetime(2024, 3, 31, 1, 30, 0, 123456, datetime.UTC)
    record = {
        "times": [when, when + datetime.timedelta(hours=1)],
        "places": {"a": {"at": when, "inner": [b"\x00", b""]}, "b": {"at": None, "inner": []}},
        "price": decimal.Decimal("-12345.67"),
        "day": datetime.date(1969, 12, 31),
    }
    content = io.BytesIO()
    fastavro.schemaless_writer(content, fastavro.parse_schema(DEEP_SCHEMA), record)
    body = {
        "type": "KEY_VALUE",
        "schema": json.dumps({"key": "", "value": DEEP_SCHEMA}),
        "properties": {
            "key.schema.type": "STRING",
            "value.schema.type": "AVRO",
            "kv.encoding.type": "SEPARATED",
        },
    }
    status, told = stage.admin("POST", schema_path(pairs), body)
    assert status == 200, told
    for each in (topic, pairs):
        producer = stage.client.create_producer(each)
        producer.send(content.getvalue(), partition_key="k")
        producer.close()
    micros = int(when.timestamp()) * 1_000_000 + when.microsecond
    for engine in ENGINES:
        frame = own(stage, topic, engine)
        stage.see("columns", frame.schema.simpleString())
        stage.see_rows(engine, frame.withColumn("price", frame.price.cast("string")))
        (row,) = frame.selectExpr(
            "transform(times, each -> unix_micros(each))",
            "unix_micros(places['a'].at)",
            "places['a'].inner",
            "places['b'].at",
            "price",
            "day",
        ).collect()
        assert row[:2] == ([micros, micros + 3_600_000_000], micros)
        assert [bytes(each) for each in row[2]] == [b"\x00", b""]
        assert row[3:] == (None, record["price"], record["day"])
        (pair,) = own(stage, pairs, engine).select("key", "value.price").collect()
        assert tuple(pair) == ("k", record["price"])
