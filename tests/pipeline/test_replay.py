"""Messages that a replay takes out of an archive, and that a repeated one adds."""

from __future__ import annotations

import time
from itertools import count
from typing import TYPE_CHECKING

import pytest
from pulsar.schema import AvroSchema, Record, String

from pipeline.jobs import archive, replay
from pipeline.jobs.command import JobError
from tests.pipeline.job_runs import run
from tests.pipeline.topics import admin, path_of, publish, received

if TYPE_CHECKING:
    from pathlib import Path

    import pulsar
    from pyspark.sql import SparkSession

Options = dict[str, str]


class Frame(Record):
    camera = String(required=True)


def archived(tmp_path: Path, server_arguments: list[str], *more: str) -> str:
    output = f"{tmp_path}/archive"
    run(archive, tmp_path, *server_arguments, "--output", output, *more)
    return output


def values(client: pulsar.Client, topic: str, rows: int) -> list[bytes]:
    return [each.data() for each in received(client, topic, rows)]


def test_a_source_topic_is_that_topic_and_its_partitions_only(
    spark: SparkSession,
    client: pulsar.Client,
    topic: str,
    server_arguments: list[str],
    options: Options,
    tmp_path: Path,
) -> None:
    night, parts = f"{topic}-night", f"{topic}-parts"
    admin(options, "PUT", path_of(parts) + "/partitions", 11)
    for name in (topic, night, *[f"{parts}-partition-{part}" for part in (1, 10)]):
        publish(client, name, [name.encode()])
    output = archived(tmp_path, server_arguments, "--topics", f"{topic},{night},{parts}")

    numbers = count()

    def replayed(source: str) -> list[bytes]:
        target = f"{topic}-to-{next(numbers)}"
        arguments = [*server_arguments, "--input", output, "--source-topic", source]
        rows = run(replay, tmp_path, *arguments, "--to", target)["rows"]
        return values(client, target, rows)

    short = topic.rpartition("/")[2]
    assert replayed(topic) == [topic.encode()]
    assert replayed(short) == [topic.encode()]
    assert replayed(f"{parts}-partition-1") == [f"{parts}-partition-1".encode()]
    both = [f"{parts}-partition-{part}".encode() for part in (1, 10)]
    assert sorted(replayed(parts)) == both
    with pytest.raises(JobError, match=r"has no messages of persistent://public/default/away: it"):
        replayed("away")


def test_an_archive_keeps_the_schema_of_its_messages(
    spark: SparkSession,
    client: pulsar.Client,
    topic: str,
    server_arguments: list[str],
    options: Options,
    tmp_path: Path,
) -> None:
    publish(client, topic, [Frame(camera="north")], schema=AvroSchema(Frame))
    local = topic.rpartition("/")[2]
    stored = admin(options, "GET", f"/schemas/public/default/{local}/schema")
    for name, more in (("columns", []), ("payloads", ["--raw"])):
        (tmp_path / name).mkdir()
        output = archived(tmp_path / name, server_arguments, "--topic", topic, *more)
        target = f"{topic}-from-{name}"

        run(replay, tmp_path, *server_arguments, "--input", output, "--to", target)

        kept = admin(options, "GET", f"/schemas/public/default/{local}-from-{name}/schema")
        assert (kept["type"], kept["data"]) == (stored["type"], stored["data"])
        (message,) = received(client, target, 1, AvroSchema(Frame))
        assert message.value().camera == "north"


def test_other_data_under_a_used_name_is_published_and_the_same_is_not(
    spark: SparkSession,
    client: pulsar.Client,
    topic: str,
    server_arguments: list[str],
    tmp_path: Path,
) -> None:
    publish(client, topic, [b"1", b"2"])
    output = archived(tmp_path, server_arguments, "--topic", topic)
    other = f"{topic}-other"
    publish(client, other, [b"a", b"b", b"c"])
    target = f"{topic}-to"
    once = [*server_arguments, "--input", output, "--to", target, "--dedup", "again"]

    def told(*arguments: str) -> tuple[int, int, int]:
        summary = run(replay, tmp_path, *arguments)
        return summary["rows"], summary["rows_stored"], summary["rows_dropped"]

    assert told(*once) == (2, 2, 0)
    assert told(*once) == (2, 0, 2)
    other_data = [*server_arguments, "--topic", other, "--to", target, "--dedup", "again"]
    assert told(*other_data) == (3, 3, 0)
    publish(client, topic, [b"3"])
    archived(tmp_path, server_arguments, "--topic", topic)
    assert told(*once) == (3, 1, 2)
    assert values(client, target, 6) == [b"1", b"2", b"a", b"b", b"c", b"3"]


def test_a_range_of_time_that_holds_nothing_is_refused(
    spark: SparkSession, topic: str, server_arguments: list[str], tmp_path: Path
) -> None:
    later = str((int(time.time()) + 3600) * 1000)
    for source in (["--topic", topic], ["--input", str(tmp_path)]):
        job = [*server_arguments, *source, "--to", f"{topic}-to"]
        with pytest.raises(JobError, match="is not before --end-time-ms 5"):
            replay.main([*job, "--start-time-ms", "5", "--end-time-ms", "5"])
        with pytest.raises(JobError, match="s in the future"):
            replay.main([*job, "--start-time-ms", later])
