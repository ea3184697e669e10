"""`archive --format delta`: a table whose log takes every micro-batch once, and what reads it."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow.parquet
import pytest
from pulsar.schema import AvroSchema, Integer, Record, String

from compat_tests.oracle.maven import NotFetched
from pipeline.jobs import archive, command, replay
from tests.pipeline.delta_jars import delta_jars
from tests.pipeline.job_runs import SECONDS_MAX, archive_process, kill_after, kill_when, run
from tests.pipeline.topics import publish, received

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable
    from pathlib import Path

    import pulsar
    from pyspark.sql import SparkSession

IN_DELTA = ("--format", "delta")


@pytest.fixture
def jars() -> str:
    try:
        return delta_jars()
    except NotFetched as error:
        pytest.skip(f"Delta Lake is absent: {error}")


def ids_of(spark: SparkSession, table: Path, version: int) -> list[bytes]:
    frame = spark.read.format("delta").option("versionAsOf", version).load(str(table))
    return [bytes(row["__messageId"]) for row in frame.select("__messageId").collect()]


def versions_of(spark: SparkSession, table: Path) -> list[int]:
    history = spark.sql(f"DESCRIBE HISTORY delta.`{table}`").select("version").collect()
    return sorted(row["version"] for row in history)


def ids_by_the_log(table: Path) -> Counter[bytes]:
    """The rows for a reader that follows the table's log, without Delta's code.

    https://github.com/delta-io/delta/blob/master/PROTOCOL.md, "Delta Log Entries", "Actions"
    """
    files: set[str] = set()
    for commit in sorted((table / "_delta_log").glob("*.json")):
        for action in map(json.loads, commit.read_text().splitlines()):
            if "add" in action:
                files.add(unquote(action["add"]["path"]))
            if "remove" in action:
                files.remove(unquote(action["remove"]["path"]))
    ids: Counter[bytes] = Counter()
    for name in files:
        read = pyarrow.parquet.ParquetFile(table / name).read(columns=["__messageId"])
        ids.update(read.column("__messageId").to_pylist())
    return ids


def test_a_micro_batch_that_is_repeated_adds_nothing_and_every_version_can_be_read(
    jars: str,
    spark: SparkSession,
    client: pulsar.Client,
    topic: str,
    server_arguments: list[str],
    tmp_path: Path,
) -> None:
    ids = publish(client, topic, [b"x" * 100] * 250)
    table = tmp_path / "table"
    arguments = [*server_arguments, "--topic", topic, "--output", str(table), *IN_DELTA]
    arguments += ["--max-rows-per-trigger", "100", "--verify"]
    first = run(archive, tmp_path, *arguments)
    at_first = [sorted(ids_of(spark, table, version)) for version in versions_of(spark, table)]

    # What a driver leaves that dies when Delta has the micro-batch and Spark's checkpoint not yet.
    last = first["micro_batches"] - 1
    for name in (f"{last}", f".{last}.crc"):
        (table / "_checkpoint" / "commits" / name).unlink()
    repeated = run(archive, tmp_path, *arguments)
    versions = versions_of(spark, table)
    ids += publish(client, topic, [b"y" * 100] * 50)
    later = run(archive, tmp_path, *arguments)

    assert first["micro_batches"] >= 3
    assert [len(each) for each in at_first] == sorted({len(each) for each in at_first})
    assert [each == sorted(ids[: len(each)]) for each in at_first] == [True] * (last + 1)
    assert len(at_first[-1]) == 250
    assert (repeated["micro_batches"], repeated["rows"]) == (1, 0)
    assert versions == list(range(first["micro_batches"]))
    assert (repeated["rows_in_archive"], repeated["table_version"]) == (250, last)
    assert later["rows_in_archive"] == later["message_ids_in_archive"] == len(ids)
    assert later["table_version"] == last + 1
    assert sorted(ids_of(spark, table, last)) == at_first[-1]
    assert ids_by_the_log(table) == Counter(ids)


@pytest.mark.slow
def test_killed_at_three_instants_and_restarted_the_table_has_every_message_once(
    jars: str,
    spark: SparkSession,
    client: pulsar.Client,
    options: dict[str, str],
    topic: str,
    tmp_path: Path,
) -> None:
    """Between two micro-batches, while rows are written, and when Delta has them in its log and
    Spark's checkpoint has not yet."""
    table = tmp_path / "out"

    def start() -> subprocess.Popen[str]:
        return archive_process(options, tmp_path, *IN_DELTA, "--conf", f"spark.jars={jars}")

    def one_more(pattern: str) -> Callable[[], bool]:
        before = len(list(table.glob(pattern)))
        return lambda: len(list(table.glob(pattern))) > before

    ids = publish(client, topic, [b"x" * 100] * 500)
    kill_after(start(), micro_batches=1)
    ids += publish(client, topic, [b"y" * 100] * 200, batched=True)
    kill_when(start(), one_more("date=*/hour=*/*.parquet"))
    ids += publish(client, topic, [b"z" * 100] * 200)
    kill_when(start(), one_more("_delta_log/*.json"))

    out, err = start().communicate(timeout=SECONDS_MAX)

    assert out, err
    summary = json.loads(out)
    assert ids_by_the_log(table) == Counter(ids)
    assert summary["rows_in_archive"] == summary["message_ids_in_archive"] == len(ids)
    micro_batches = sorted(
        int(each.name) for each in (table / "_checkpoint" / "commits").glob("[0-9]*")
    )
    assert versions_of(spark, table) == micro_batches == list(range(summary["table_version"] + 1))


class Reading(Record):
    road = String(required=True)


def other(**fields: Any) -> AvroSchema:
    """The schema of `Reading`, with other fields."""
    return AvroSchema(type("Reading", (Record,), fields))


def test_replay_takes_a_table_in_the_topics_order(
    jars: str,
    spark: SparkSession,
    client: pulsar.Client,
    topic: str,
    server_arguments: list[str],
    tmp_path: Path,
) -> None:
    roads = [f"r{number}" for number in range(150)]
    schema = AvroSchema(Reading)
    publish(client, topic, [Reading(road=road) for road in roads], keys=roads, schema=schema)
    output = f"{tmp_path}/table"
    run(archive, tmp_path, *server_arguments, "--topic", topic, "--output", output, *IN_DELTA)

    source = ["--input", output, "--schema-of", topic, "--to", f"{topic}-again", "--dedup", "again"]
    for _ in range(2):
        assert run(replay, tmp_path, *server_arguments, *source)["rows"] == 150

    messages = received(client, f"{topic}-again", 150, schema)
    assert [each.value().road for each in messages] == roads
    assert [each.partition_key() for each in messages] == roads
    assert [each.properties()["n"] for each in messages] == [str(n) for n in range(150)]


def test_a_newer_schema_adds_a_column_and_another_type_is_refused_in_a_sentence(
    jars: str,
    spark: SparkSession,
    client: pulsar.Client,
    topic: str,
    server_arguments: list[str],
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    output = f"{tmp_path}/table"
    arguments = [*server_arguments, "--topic", topic, "--output", output, *IN_DELTA]
    publish(client, topic, [Reading(road="old")] * 3, schema=AvroSchema(Reading))
    run(archive, tmp_path, *arguments)
    newer = other(road=String(required=True), lane=String(required_default=True))
    publish(client, topic, [newer._record_cls(road="new", lane="left")], schema=newer)
    run(archive, tmp_path, *arguments)

    rows = spark.read.format("delta").load(output).select("road", "lane").collect()
    assert Counter(map(tuple, rows)) == {("old", None): 3, ("new", "left"): 1}
    numbers, numbered = f"{topic}-numbers", other(road=Integer(required=True))
    publish(client, numbers, [numbered._record_cls(road=1)], schema=numbered)
    arguments[arguments.index(topic)] = numbers
    arguments += ["--checkpoint", f"{tmp_path}/checkpoint"]
    assert command.run("archive", archive.main, arguments) == 1
    (line,) = told(capfd)
    assert line.startswith(f"vela pipeline archive: the table {output} does not take the rows: ")
    assert "road" in line


def told(capfd: pytest.CaptureFixture[str]) -> list[str]:
    lines = capfd.readouterr().err.splitlines()
    return [line for line in lines if line.startswith("vela pipeline")]


def test_one_format_is_never_written_into_the_other(
    jars: str,
    spark: SparkSession,
    client: pulsar.Client,
    topic: str,
    server_arguments: list[str],
    tmp_path: Path,
) -> None:
    ids = publish(client, topic, [b"x"] * 5)
    arguments = [*server_arguments, "--topic", topic, "--output"]
    table, files = f"{tmp_path}/table", f"{tmp_path}/files"
    run(archive, tmp_path, *arguments, table, *IN_DELTA)
    run(archive, tmp_path, *arguments, files)

    with pytest.raises(command.JobError, match="is a Delta table: add --format delta"):
        archive.main([*arguments, table])
    with pytest.raises(command.JobError, match="is an archive in Parquet"):
        archive.main([*arguments, files, *IN_DELTA])
    assert ids_by_the_log(tmp_path / "table") == Counter(ids)


def test_without_delta_on_the_class_path_nothing_is_read_and_a_line_says_what_to_pass(
    options: dict[str, str], tmp_path: Path
) -> None:
    """The topic does not exist either, which the job would see first if it asked the broker."""
    process = archive_process(options, tmp_path, *IN_DELTA)
    out, err = process.communicate(timeout=SECONDS_MAX)

    assert out == ""
    (line,) = err.splitlines()[-1:]
    assert line.startswith("vela pipeline archive: Delta Lake is not on Spark's class path: pass ")
    assert "--conf spark.jars.packages=io.delta:delta-spark_4.2_2.13:" in line
    assert not (tmp_path / "out").exists()
