"""`archive` keeps every message exactly once, whenever it is killed."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from typing import TYPE_CHECKING

import pyarrow.dataset
import pytest

from pipeline.jobs import archive, files
from pipeline.jobs.command import JobError
from tests.pipeline.job_runs import SECONDS_MAX, archive_process, kill_after, run, wait_for
from tests.pipeline.topics import admin, path_of, publish

if TYPE_CHECKING:
    from pathlib import Path

    import pulsar
    from pyspark.sql import SparkSession

    from tests.server_process import ServerProcess


def ids_by_any_reader(directory: Path) -> Counter[bytes]:
    """The rows for a reader that does not know Spark's list of files."""
    table = pyarrow.dataset.dataset(directory / "out", partitioning="hive").to_table(
        columns=["__messageId"]
    )
    return Counter(table.column("__messageId").to_pylist())


@pytest.mark.slow
def test_killed_three_times_and_restarted_it_holds_every_message_once(
    client: pulsar.Client, options: dict[str, str], topic: str, tmp_path: Path
) -> None:
    ids = publish(client, topic, [b"x" * 100] * 1200)
    for kills in range(3):
        ids += publish(client, topic, [b"y" * 100] * 200, batched=bool(kills % 2))
        kill_after(archive_process(options, tmp_path), micro_batches=1 + kills)

    out, err = archive_process(options, tmp_path).communicate(timeout=SECONDS_MAX)

    assert out, err
    summary = json.loads(out)
    assert ids_by_any_reader(tmp_path) == Counter(ids)
    assert summary["rows_in_archive"] == summary["message_ids_in_archive"] == len(ids)
    offsets = sorted(
        (tmp_path / "out" / "_checkpoint" / "offsets").glob("[0-9]*"),
        key=lambda each: int(each.name),
    )
    ends = [json.loads(each.read_text().splitlines()[-1])["t"][topic] for each in offsets]
    assert ends == sorted(ends)
    (anchor,) = admin(options, "GET", path_of(topic) + "/subscriptions")
    assert anchor.startswith("spark-vela-")


@pytest.mark.slow
def test_executors_may_be_other_processes_than_the_driver(
    client: pulsar.Client, options: dict[str, str], topic: str, tmp_path: Path
) -> None:
    """A standalone master with two workers, as `--master spark://...` names one."""
    ids = publish(client, topic, [b"x" * 100] * 300, batched=True)

    cluster = ["--master", "local-cluster[2,1,512]", "--conf", "spark.executor.memory=512m"]
    process = archive_process(options, tmp_path, *cluster)
    out, err = process.communicate(timeout=SECONDS_MAX)

    assert out, err
    assert ids_by_any_reader(tmp_path) == Counter(ids)


def test_bad_input_ends_in_one_line(options: dict[str, str], tmp_path: Path) -> None:
    out, err = archive_process(options, tmp_path).communicate(timeout=SECONDS_MAX)

    assert out == ""
    (line,) = [each for each in err.splitlines() if each.startswith("vela pipeline archive:")]
    assert "does not exist" in line


def test_an_archive_takes_rows_by_the_checkpoint_it_was_begun_with_alone(
    spark: SparkSession,
    client: pulsar.Client,
    server_arguments: list[str],
    topic: str,
    tmp_path: Path,
) -> None:
    """Spark leaves out a micro-batch whose number is in the list of files, whoever wrote that."""
    arguments = [*server_arguments, "--topic", topic, "--output", str(tmp_path / "out")]
    another = [*arguments, "--checkpoint", str(tmp_path / "another")]
    client.create_producer(topic).close()
    of_nothing = run(archive, tmp_path, *arguments, "--verify")

    assert (of_nothing["files"], of_nothing["rows_in_archive"]) == (0, 0)
    with pytest.raises(JobError, match="was begun with another checkpoint"):
        archive.main(another)
    ids = publish(client, topic, [b"x"] * 5)
    run(archive, tmp_path, *arguments)
    (tmp_path / "out" / files.OWNER).unlink()
    with pytest.raises(JobError, match="was begun with another checkpoint"):
        archive.main(another)
    ids += publish(client, topic, [b"y"] * 5)
    run(archive, tmp_path, *arguments)
    shutil.rmtree(tmp_path / "out" / "_checkpoint")
    with pytest.raises(JobError, match="was begun with another checkpoint"):
        archive.main(arguments)

    assert ids_by_any_reader(tmp_path) == Counter(ids)


def test_a_restart_of_the_broker_costs_no_row(
    spark: SparkSession,
    client: pulsar.Client,
    server: ServerProcess,
    options: dict[str, str],
    topic: str,
    tmp_path: Path,
) -> None:
    ids = publish(client, topic, [b"x" * 100] * 600)
    process = archive_process(options, tmp_path)
    wait_for(process, 1)
    server.kill()
    server.wait_ended()
    server.start()
    server.wait_ready(60)

    out, err = process.communicate(timeout=SECONDS_MAX)

    assert out, err
    assert ids_by_any_reader(tmp_path) == Counter(ids)
