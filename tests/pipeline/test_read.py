"""Batch reads: what Spark sees is what was published, each message once, with the client's ids."""

from __future__ import annotations

import base64
import json
import struct
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pulsar
import pytest
from google.protobuf import descriptor_pb2, duration_pb2
from pulsar.schema import AvroSchema, Integer, JsonSchema, Record, String, StringSchema

from tests.pipeline.topics import admin, path_of, publish

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Options = dict[str, str]


def read(spark: SparkSession, options: Options, **more: str) -> DataFrame:
    return spark.read.format("vela").options(**{**options, **more}).load()


def ids_of(frame: DataFrame) -> list[bytes]:
    return [bytes(row[0]) for row in frame.select("__messageId").collect()]


def values_of(frame: DataFrame) -> list[Any]:
    return [row[0] for row in frame.select("value").collect()]


@pytest.mark.parametrize("compression", ["NONE", "LZ4", "ZLib", "ZSTD", "SNAPPY"])
def test_messages_come_once_and_in_order_with_all_their_metadata(
    spark: SparkSession, client: pulsar.Client, options: Options, topic: str, compression: str
) -> None:
    values = [b"value %d" % number for number in range(30)]
    keys = [f"k{number % 3}" for number in range(30)]
    times = [1_700_000_000_123 + number for number in range(30)]
    kind = getattr(pulsar.CompressionType, compression)
    ids = []
    for batched in (False, True):
        ids += publish(
            client,
            topic,
            values,
            batched=batched,
            keys=keys,
            event_times=times,
            compression_type=kind,
        )

    rows = read(spark, options).collect()

    assert [bytes(row["__messageId"]) for row in rows] == ids
    assert [bytes(row["value"]) for row in rows] == values * 2
    assert [bytes(row["__key"]).decode() for row in rows] == keys * 2
    assert [row["__messageProperties"]["n"] for row in rows] == [str(n) for n in range(30)] * 2
    assert {row["__topic"] for row in rows} == {topic}
    assert [round(row["__eventTime"].timestamp() * 1000) for row in rows] == times * 2


def test_a_topic_is_read_by_as_many_tasks_as_it_has_data_for(
    spark: SparkSession, client: pulsar.Client, options: Options, topic: str
) -> None:
    ids = publish(client, topic, [b"x" * 100] * 450)

    frame = read(spark, options, maxBytesPerPartition="10000")

    assert len(admin(options, "GET", path_of(topic) + "/internalStats")["ledgers"]) >= 4
    assert frame.rdd.getNumPartitions() >= 5
    assert sorted(ids_of(frame)) == sorted(ids)


def test_bounds_name_messages_inside_batches(
    spark: SparkSession, client: pulsar.Client, options: Options, topic: str
) -> None:
    ids = [
        pulsar.MessageId.deserialize(each)
        for each in publish(client, topic, [b"%d" % number for number in range(40)], batched=True)
    ]

    def text(message_id: Any) -> str:
        parts = (message_id.ledger_id(), message_id.entry_id(), -1, message_id.batch_index())
        return ":".join(str(part) for part in parts)

    frame = read(
        spark,
        options,
        startingOffsets=f'{{"{topic}": "{text(ids[7])}"}}',
        endingOffsets=f'{{"{topic}": "{text(ids[23])}"}}',
    )

    assert values_of(frame) == [b"%d" % number for number in range(7, 24)]


def test_a_time_range_holds_its_start_and_not_its_end(
    spark: SparkSession, client: pulsar.Client, options: Options, topic: str
) -> None:
    starts = []
    for number in range(3):
        starts.append(_next_millisecond())
        publish(client, topic, [b"%d" % number] * 2)
        _next_millisecond()

    frame = read(spark, options, startingTime=str(starts[1]), endingTime=str(starts[2]))
    later = read(spark, options, startingTime=str(starts[2] + 60_000))

    assert values_of(frame) == [b"1", b"1"]
    assert values_of(later) == []
    with pytest.raises(Exception, match="s in the future: it is milliseconds since 1970"):
        values_of(read(spark, options, startingTime=str(starts[2] + 3_600_000)))


def _next_millisecond() -> int:
    begin = time.time_ns() // 1_000_000
    while (now := time.time_ns() // 1_000_000) <= begin + 1:
        pass
    return now


class Reading(Record):
    name = String()
    level = Integer()


@pytest.mark.parametrize("kind", [AvroSchema, JsonSchema])
def test_the_fields_of_a_record_are_columns(
    spark: SparkSession, client: pulsar.Client, options: Options, kind: Any
) -> None:
    topic = options["topic"] = f"{options['topic']}-{kind.__name__}"
    readings = [Reading(name=f"n{number}", level=number) for number in range(5)]
    readings.append(Reading(name=None, level=7))
    publish(client, topic, readings, schema=kind(Reading), batched=True)

    frame = read(spark, options)

    assert frame.columns[:2] == ["level", "name"] or frame.columns[:2] == ["name", "level"]
    assert [(row["name"], row["level"]) for row in frame.collect()] == [
        *((f"n{number}", number) for number in range(5)),
        (None, 7),
    ]


def test_a_query_pays_for_the_columns_it_names(
    spark: SparkSession, client: pulsar.Client, options: Options, topic: str
) -> None:
    publish(client, topic, [Reading(name="a", level=1)], schema=AvroSchema(Reading))
    columns = "`level` INT, `__key` BINARY"

    frame = spark.read.format("vela").options(**options).schema(columns).load()

    assert [tuple(row) for row in frame.collect()] == [(1, None)]


def _changed(**fields: Any) -> Any:
    return type("Reading", (Record,), fields)


def test_a_newer_schema_keeps_older_messages_readable(
    spark: SparkSession, client: pulsar.Client, options: Options, topic: str
) -> None:
    publish(client, topic, [Reading(name="old", level=1)], schema=AvroSchema(Reading))
    wider = _changed(name=String(), level=Integer(), unit=String(required_default=True))
    publish(client, topic, [wider(name="new", level=2, unit="m")], schema=AvroSchema(wider))

    rows = read(spark, options).collect()

    assert [(row["name"], row["level"], row["unit"]) for row in rows] == [
        ("old", 1, None),
        ("new", 2, "m"),
    ]


def test_text_and_numbers(
    spark: SparkSession, client: pulsar.Client, options: Options, topic: str
) -> None:
    publish(client, topic, ["grüße", ""], schema=StringSchema())
    numbers = options["topic"] = topic + "-numbers"
    schema = {"type": "INT64", "schema": "", "properties": {}}
    name = numbers.rpartition("/")[2]
    admin(options, "POST", f"/schemas/public/default/{name}/schema", schema)
    publish(client, numbers, [struct.pack(">q", -5)])

    assert values_of(read(spark, {**options, "topic": topic})) == ["grüße", ""]
    assert values_of(read(spark, options)) == [-5]


def test_keys_and_values_become_two_columns(
    spark: SparkSession, client: pulsar.Client, options: Options, topic: str
) -> None:
    name = topic.rpartition("/")[2]
    properties = {
        "key.schema.type": "STRING",
        "value.schema.type": "INT32",
        "kv.encoding.type": "INLINE",
    }
    body = {"type": "KEY_VALUE", "schema": '{"key":"","value":""}', "properties": properties}
    admin(options, "POST", f"/schemas/public/default/{name}/schema", body)
    publish(client, topic, [struct.pack(">i3sii", 3, b"abc", 4, 42)])

    (row,) = read(spark, options).collect()

    assert (row["key"], row["value"]) == ("abc", 42)


@pytest.mark.parametrize("type_name", ["PROTOBUF", "PROTOBUF_NATIVE"])
def test_protobuf_is_refused_with_the_way_out_and_read_as_bytes(
    spark: SparkSession, client: pulsar.Client, options: Options, type_name: str
) -> None:
    topic = options["topic"] = f"{options['topic']}-{type_name}"
    duration = duration_pb2.Duration(seconds=5, nanos=6)
    schema = _protobuf_schema(type_name)
    name = topic.rpartition("/")[2]
    admin(options, "POST", f"/schemas/public/default/{name}/schema", schema)
    publish(client, topic, [duration.SerializeToString()])

    with pytest.raises(Exception, match=f"{type_name} is not supported.*rawValues=true"):
        read(spark, options)
    (payload,) = values_of(read(spark, options, rawValues="true"))

    assert duration_pb2.Duration.FromString(bytes(payload)) == duration


def _protobuf_schema(type_name: str) -> dict[str, Any]:
    """As the Java client registers google.protobuf.Duration."""
    if type_name == "PROTOBUF":
        fields = [{"name": "seconds", "type": "long"}, {"name": "nanos", "type": "int"}]
        text = json.dumps({"type": "record", "name": "Duration", "fields": fields})
        return {"type": type_name, "schema": text, "properties": {}}
    file = descriptor_pb2.FileDescriptorProto()
    duration_pb2.DESCRIPTOR.CopyToProto(file)
    files = descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()
    parts = {
        "fileDescriptorSet": base64.b64encode(files).decode(),
        "rootMessageTypeName": "google.protobuf.Duration",
        "rootFileDescriptorName": file.name,
    }
    return {"type": type_name, "schema": json.dumps(parts), "properties": {}}


def test_filters_are_applied_where_the_messages_are_read(
    spark: SparkSession, client: pulsar.Client, options: Options, topic: str
) -> None:
    admin(options, "PUT", path_of(topic) + "/partitions", 2)
    parts = [f"{topic}-partition-{index}" for index in range(2)]
    bounds = []
    for begin in (0, 20):
        for part in parts:
            numbers = range(begin, begin + 20)
            publish(
                client,
                part,
                [b"%d" % number for number in numbers],
                keys=[f"k{number % 4}" for number in numbers],
                event_times=[1_700_000_000_000 + number for number in numbers],
                batched=bool(begin),
            )
        bounds.append(_next_millisecond())
    middle = f"timestamp_millis({bounds[0]}L)"
    queries = {
        f"__topic = '{parts[0]}'": 40,
        f"startswith(__topic, '{topic}') AND __topic <> '{parts[0]}'": 40,
        "__key = CAST('k1' AS BINARY)": 20,
        "__key IN (CAST('k1' AS BINARY), CAST('k2' AS BINARY))": 40,
        "__key <> CAST('k1' AS BINARY)": 60,
        "__key IS NULL": 0,
        f"__publishTime < {middle}": 40,
        f"__publishTime >= {middle} AND __key > CAST('k2' AS BINARY)": 10,
        f"__publishTime > timestamp_millis({bounds[1]}L)": 0,
        "__eventTime = timestamp_millis(1700000000007L) OR __eventTime IS NULL": 2,
        "__eventTime BETWEEN timestamp_millis(1700000000005L) AND "
        "timestamp_micros(1700000000006500L)": 4,
        f"__topic = '{topic}' AND value = CAST('1' AS BINARY)": 0,
    }

    for condition, count in queries.items():
        frame = read(spark, options, publishTimeSkewMs="0").where(condition)
        unfiltered = read(spark, options).localCheckpoint().where(condition)
        assert len(frame.collect()) == unfiltered.count() == count, condition


def test_a_filter_on_the_time_of_publishing_bounds_what_is_read(
    spark: SparkSession, client: pulsar.Client, options: Options, topic: str
) -> None:
    publish(client, topic, [b"x" * 1000] * 250)
    middle = _next_millisecond()
    publish(client, topic, [b"y" * 1000] * 10)
    stats = path_of(topic) + "/stats"
    before = admin(options, "GET", stats)["bytesOutCounter"]

    frame = read(spark, options, publishTimeSkewMs="0")
    found = frame.where(f"__publishTime >= timestamp_millis({middle}L)").collect()

    assert len(found) == 10
    assert admin(options, "GET", stats)["bytesOutCounter"] - before < 30_000


def test_a_chunked_message_is_one_row(
    spark: SparkSession, client: pulsar.Client, options: Options, topic: str
) -> None:
    large = bytes(range(256)) * 32 * 1024
    publish(client, topic, [b"small", large, b"small"], chunking_enabled=True)

    assert values_of(read(spark, options)) == [b"small", large, b"small"]


def test_a_reader_can_be_positioned_at_a_chunked_message(
    spark: SparkSession, client: pulsar.Client, options: Options, topic: str
) -> None:
    """Its id names the first chunk, too: a client that starts there needs it."""
    large = bytes(range(256)) * 32 * 1024
    ids = publish(client, topic, [b"small", large, b"small"], chunking_enabled=True)

    row = read(spark, options).where("length(value) > 10").first()

    assert bytes(row["__messageId"]) == ids[1]
    start = pulsar.MessageId.deserialize(bytes(row["__messageId"]))
    reader = client.create_reader(topic, start, start_message_id_inclusive=True)
    assert reader.read_next(20_000).data() == large
    reader.close()


def test_a_time_that_no_column_can_hold_is_named(
    spark: SparkSession, client: pulsar.Client, options: Options, topic: str
) -> None:
    publish(client, topic, [b"far"], event_times=[2**62])

    with pytest.raises(Exception, match=f"time {2**62} ms since 1970, which no column can hold"):
        read(spark, options).collect()

    rows = spark.read.format("vela").options(**options).schema("value BINARY").load()
    assert [row.value for row in rows.collect()] == [b"far"]


def test_partitions_are_read_together(
    spark: SparkSession, client: pulsar.Client, options: Options, topic: str
) -> None:
    admin(options, "PUT", path_of(topic) + "/partitions", 3)
    keys = [f"k{number}" for number in range(50)]
    ids = publish(client, topic, [b"x"] * 50, keys=keys)

    frame = read(spark, options)

    assert frame.select("__topic").distinct().count() == 3
    assert sorted(ids_of(frame)) == sorted(ids)


def test_an_empty_topic_is_an_empty_frame(
    spark: SparkSession, options: Options, topic: str
) -> None:
    admin(options, "PUT", path_of(topic))

    assert read(spark, options).count() == 0


def test_bad_input_is_told_in_a_sentence(
    spark: SparkSession, client: pulsar.Client, options: Options, topic: str
) -> None:
    with pytest.raises(Exception, match="does not exist"):
        read(spark, options)
    publish(client, topic, [b"x"])
    with pytest.raises(Exception, match="did you mean 'startingOffsets'"):
        read(spark, options, startingOfsets="earliest")
    with pytest.raises(Exception, match="is no longer held"):
        read(
            spark,
            options,
            startingOffsets=f'{{"{topic}": "0:0"}}',
            endingOffsets=f'{{"{topic}": "999999:0"}}',
        ).count()
    lenient = {**options, "failOnDataLoss": "false"}
    assert read(spark, lenient, startingOffsets=f'{{"{topic}": "0:0"}}').count() == 1


def test_a_topic_that_is_not_there_yet_can_be_waited_for(
    spark: SparkSession, client: pulsar.Client, options: Options, topic: str
) -> None:
    with ThreadPoolExecutor(1) as one:
        waiting = one.submit(read, spark, options, waitingForNonExistedTopic="true")
        with pytest.raises(TimeoutError):
            waiting.result(3)
        assert topic not in admin(options, "GET", "/persistent/public/default")
        publish(client, topic, [b"x"] * 3)

        assert waiting.result(60).count() == 3
