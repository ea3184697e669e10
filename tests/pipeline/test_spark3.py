"""The reader for Spark 3 gives what the data source gives; here both run on the same Spark.

On Spark 3.4 it is tested by `make compat-spark`, beside the stock connector.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pulsar
import pytest
from pulsar.schema import Array, AvroSchema, Integer, JsonSchema, Record, String
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import DayTimeIntervalType, StructField, StructType

from pipeline import spark3
from pipeline.options import InvalidOption
from tests.pipeline.topics import admin, path_of, publish

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Options = dict[str, str]


def source(spark: SparkSession, options: Options) -> DataFrame:
    return spark.read.format("vela").options(**options).load()


@pytest.mark.parametrize("engine", ["broker", "bookie"])
def test_it_gives_the_rows_the_columns_and_the_tasks_of_the_data_source(
    spark: SparkSession, client: pulsar.Client, options: Options, engine: str
) -> None:
    topic = options["topic"] = f"{options['topic']}-{engine}"
    admin(options, "PUT", path_of(topic) + "/partitions", 4)
    values = [b"%d" % number * 30 for number in range(150)]
    keys = [f"k{number % 9}" for number in range(150)]
    times = [1_700_000_000_123 + number for number in range(150)]
    kind = pulsar.CompressionType.LZ4
    for batched in (False, True):
        publish(
            client,
            topic,
            values,
            batched=batched,
            keys=keys,
            event_times=times,
            compression_type=kind,
        )
    options |= {"readEngine": engine, "minPartitions": "7"}

    frame = spark3.read(spark, **options)

    assert frame.schema == source(spark, options).schema
    assert frame.rdd.getNumPartitions() == source(spark, options).rdd.getNumPartitions() >= 7
    found = frame.collect()
    assert len(found) == 300
    assert found == source(spark, options).collect()


class Wheel(Record):
    name = String()
    size = Integer()


class Vehicle(Record):
    name = String()
    spare = Wheel()
    wheels = Array(Wheel())


@pytest.mark.parametrize("kind", [AvroSchema, JsonSchema])
def test_records_have_the_same_columns_and_rows(
    spark: SparkSession, client: pulsar.Client, options: Options, kind: Any
) -> None:
    topic = options["topic"] = f"{options['topic']}-{kind.__name__}"
    wheel = Wheel(name="w", size=3)
    vehicles = [Vehicle(name="a", spare=wheel, wheels=[wheel, wheel]), Vehicle(name=None)]
    publish(client, topic, vehicles, schema=kind(Vehicle), batched=True)

    frame = spark3.read(spark, **options)

    assert frame.schema == source(spark, options).schema
    assert frame.collect() == source(spark, options).collect()
    assert [row["name"] for row in frame.collect()] == ["a", None]


def test_columns_may_be_chosen_and_options_are_checked_as_the_data_source_does(
    spark: SparkSession, client: pulsar.Client, options: Options, topic: str
) -> None:
    publish(client, topic, [b"x", b"y"])

    few = spark3.read(spark, "__topic STRING, value BINARY", **options)
    bare = spark3.read(spark, includeMetadata=False, **options)

    assert [tuple(row) for row in few.collect()] == [(topic, b"x"), (topic, b"y")]
    assert bare.columns == ["value"]
    with pytest.raises(InvalidOption, match="did you mean 'readEngine'"):
        spark3.read(spark, readEngin="broker", **options)


def test_nothing_to_read_is_an_empty_frame(
    spark: SparkSession, options: Options, topic: str
) -> None:
    admin(options, "PUT", path_of(topic))

    frame = spark3.read(spark, **options)

    assert frame.collect() == []
    assert frame.columns[0] == "value"


def test_every_type_a_topic_can_have_becomes_what_spark_makes_of_it(spark: SparkSession) -> None:
    columns = (
        "a BINARY, b BOOLEAN, c TINYINT, d SMALLINT, e INT, f BIGINT, g FLOAT, h DOUBLE, i DATE, "
        "j TIMESTAMP, k STRING, l VOID, m DECIMAL(9, 2), n ARRAY<TIMESTAMP>, "
        "o MAP<STRING, STRUCT<p: STRUCT<q: INT>>>, r STRUCT<s: ARRAY<STRUCT<t: DATE>>>"
    )
    schema = spark.createDataFrame([], columns).schema

    assert spark3.arrow_schema(schema).types == to_arrow_schema(schema, timezone="UTC").types
    assert spark3.arrow_schema(schema).names == schema.names
    with pytest.raises(spark3.UnsupportedType, match="interval"):
        spark3.arrow_schema(StructType([StructField("a", DayTimeIntervalType())]))
