"""Both engines give the same rows, and reading past the broker leaves the broker alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pulsar
import pytest

from tests.pipeline.topics import admin, path_of, publish

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Options = dict[str, str]


def rows(spark: SparkSession, options: Options, engine: str) -> list[Any]:
    frame = spark.read.format("vela").options(**options, readEngine=engine).load()
    return sorted(frame.collect(), key=lambda row: bytes(row["__messageId"]))


def bytes_out(options: Options, topic: str) -> int:
    return admin(options, "GET", path_of(topic) + "/stats")["bytesOutCounter"]


def test_both_engines_give_the_same_rows_and_the_broker_serves_none_of_the_bookies(
    spark: SparkSession, client: pulsar.Client, options: Options, topic: str
) -> None:
    values = [b"%d" % number * 50 for number in range(250)]
    keys = [f"k{number}" for number in range(250)]
    for batched in (False, True):
        kind = pulsar.CompressionType.LZ4
        publish(client, topic, values, batched=batched, keys=keys, compression_type=kind)

    through_broker = rows(spark, options, "broker")
    before = bytes_out(options, topic)
    straight = rows(spark, options, "bookie")
    after = bytes_out(options, topic)
    chosen = rows(spark, options, "auto")

    assert before > 0
    assert after == before
    assert len(straight) == 500
    assert straight == through_broker == chosen


def test_what_only_a_broker_can_tell_is_read_through_it(
    spark: SparkSession, client: pulsar.Client, options: Options, topic: str
) -> None:
    large = bytes(range(256)) * 32 * 1024
    publish(client, topic, [b"before", large, b"behind"], chunking_enabled=True)

    found = rows(spark, options, "bookie")

    assert sorted(bytes(row["value"]) for row in found) == sorted([b"before", large, b"behind"])


def test_a_ledger_is_not_fenced_by_reading_it(
    spark: SparkSession, client: pulsar.Client, options: Options, topic: str
) -> None:
    producer = client.create_producer(topic)
    producer.send(b"one")
    ledgers = admin(options, "GET", path_of(topic) + "/internalStats")["ledgers"]

    assert len(rows(spark, options, "bookie")) == 1
    producer.send(b"two")

    assert admin(options, "GET", path_of(topic) + "/internalStats")["ledgers"] == ledgers
    assert len(rows(spark, options, "bookie")) == 2


@pytest.mark.parametrize("engine", ["broker", "bookie"])
def test_bounds_inside_batches_hold_for_both_engines(
    spark: SparkSession, client: pulsar.Client, options: Options, engine: str
) -> None:
    topic = options["topic"] = f"{options['topic']}-{engine}"
    values = [b"%d" % number for number in range(40)]
    ids = [
        pulsar.MessageId.deserialize(each) for each in publish(client, topic, values, batched=True)
    ]
    first, last = ids[7], ids[23]
    bounds = {
        name: f'{{"{topic}": "{each.ledger_id()}:{each.entry_id()}:-1:{each.batch_index()}"}}'
        for name, each in (("startingOffsets", first), ("endingOffsets", last))
    }

    found = rows(spark, {**options, **bounds}, engine)

    assert sorted(int(bytes(row["value"])) for row in found) == list(range(7, 24))
