"""The jobs on input served by Vela, held to what plain Python computes from the same input."""

from __future__ import annotations

import random
import re
import threading
import time
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import pytest
from pulsar.schema import AvroSchema, Double, JsonSchema, Record, String

from pipeline.jobs import archive, backlog_audit, hazard_broadcast, latency_report, replay, windows
from pipeline.jobs.command import JobError
from pipeline.latency import SPREAD
from tests.pipeline.job_runs import run
from tests.pipeline.topics import admin, path_of, publish, received

if TYPE_CHECKING:
    from pathlib import Path

    import pulsar
    from pyspark.sql import SparkSession

Options = dict[str, str]
START_MS = 1_700_000_000_000
TIMEOUT_SECONDS = 20


class Reading(Record):
    road = String(required=True)
    speed = Double(required=True)


def test_replay_keeps_order_keys_properties_and_schema(
    spark: SparkSession,
    client: pulsar.Client,
    topic: str,
    server_arguments: list[str],
    options: Options,
    tmp_path: Path,
) -> None:
    readings = [Reading(road=f"r{number % 3}", speed=float(number)) for number in range(150)]
    keys = [each.road for each in readings]
    times = [START_MS + number for number in range(150)]
    for batched in (False, True):
        publish(
            client,
            topic,
            readings,
            batched=batched,
            keys=keys,
            event_times=times,
            schema=AvroSchema(Reading),
        )
    run(archive, tmp_path, *server_arguments, "--topic", topic, "--output", f"{tmp_path}/archive")
    sources = {
        "topic": ["--topic", topic],
        "archive": ["--input", f"{tmp_path}/archive", "--schema-of", topic],
    }

    for name, source in sources.items():
        target = f"{topic}-from-{name}"
        for _ in range(2):
            arguments = [*server_arguments, *source, "--to", target, "--dedup", "again"]
            assert run(replay, tmp_path, *arguments)["rows"] == 300
        messages = received(client, target, 300, AvroSchema(Reading))
        assert [each.value().speed for each in messages] == [each.speed for each in readings] * 2
        assert [each.partition_key() for each in messages] == keys * 2
        assert [each.event_timestamp() for each in messages] == times * 2
        assert [each.properties()["n"] for each in messages[:150]] == [str(n) for n in range(150)]
        local = target.rpartition("/")[2]
        schema = admin(options, "GET", f"/schemas/public/default/{local}/schema")
        assert (schema["type"], schema["version"]) == ("AVRO", 0)


@pytest.mark.slow
def test_windows_equal_a_plain_computation_and_come_once(
    spark: SparkSession,
    client: pulsar.Client,
    topic: str,
    server_arguments: list[str],
    tmp_path: Path,
) -> None:
    chance = random.Random(5)
    rows = [(START_MS + number * 500, f"r{number % 2}", chance.random()) for number in range(200)]
    late = [(START_MS, "r0", 1000.0)]
    closing = [(START_MS + 300_000, "r0", 0.0)]
    arguments = [*server_arguments, "--topic", topic, "--to", f"{topic}-windows"]
    arguments += ["--name", topic.rpartition("/")[2], "--key", "road", "--field", "speed"]
    arguments += ["--checkpoint", f"{tmp_path}/checkpoint"]
    total = 0
    for part in (rows[:100], rows[100:] + closing, late, closing):
        values = [Reading(road=road, speed=speed) for _, road, speed in part]
        times = [time for time, _, _ in part]
        publish(client, topic, values, event_times=times, schema=AvroSchema(Reading))
        total += run(windows, tmp_path, *arguments)["windows"]

    expected: dict[tuple[int, str], list[float]] = defaultdict(list)
    for at, road, speed in rows:
        expected[(at - at % 10_000, road)].append(speed)
    found = spark.read.format("vela")
    found = found.options(
        **{
            "service.url": server_arguments[1],
            "admin.url": server_arguments[3],
            "topic": f"{topic}-windows",
        }
    ).load()
    figures = {
        (row["window_start"], row["key"]): (row["count"], round(row["mean"], 9), row["maximum"])
        for row in found.collect()
    }

    assert total == found.count() == len(expected)
    assert figures == {
        key: (len(speeds), round(sum(speeds) / len(speeds), 9), max(speeds))
        for key, speeds in expected.items()
    }


def next_millisecond() -> None:
    """Let no message before and after this have the same publish time."""
    now = time.time_ns() // 10**6
    while time.time_ns() // 10**6 <= now + 1:
        pass


def windows_of(spark: SparkSession, options: Options, topic: str) -> list[tuple[Any, ...]]:
    names = ("window_start", "window_end", "key", "count", "minimum", "maximum")
    frame = spark.read.format("vela").options(**{**options, "topic": topic}).load()
    rows = frame.collect()
    return sorted((*(row[name] for name in names), round(row["mean"], 9)) for row in rows)


@pytest.mark.slow
def test_a_day_replayed_by_time_is_the_day_that_was_streamed(
    spark: SparkSession,
    client: pulsar.Client,
    topic: str,
    server_arguments: list[str],
    options: Options,
    tmp_path: Path,
) -> None:
    """The range begins with the message published at its start and ends before the one published
    at its end."""
    chance = random.Random(7)
    days: list[list[Reading]] = []
    for day in range(3):
        next_millisecond()
        days.append([Reading(road=f"r{n % 2}", speed=chance.random()) for n in range(120)])
        times = [START_MS + day * 60_000 + n * 500 for n in range(120)]
        batched = bool(day % 2)
        publish(
            client, topic, days[-1], event_times=times, schema=AvroSchema(Reading), batched=batched
        )
    publish(
        client, topic, days[0][:1], event_times=[START_MS + 600_000], schema=AvroSchema(Reading)
    )
    published = [message.publish_timestamp() for message in received(client, topic, 361)]
    assert published[119] < published[120]
    assert published[239] < published[240]
    one_day = ["--start-time-ms", str(published[120]), "--end-time-ms", str(published[240])]
    job = [*server_arguments, "--topic", topic, "--key", "road", "--field", "speed"]
    job += ["--name", topic.rpartition("/")[2]]

    stream = [*job, "--to", f"{topic}-streamed", "--checkpoint", f"{tmp_path}/checkpoint"]
    assert run(windows, tmp_path, *stream)["windows"] == 36
    for _ in range(2):
        again = run(windows, tmp_path, *job, "--to", f"{topic}-again", *one_day)
        assert again["windows"] == 12
    run(archive, tmp_path, *server_arguments, "--topic", topic, "--output", f"{tmp_path}/archive")
    sources = {"topic": ["--topic", topic], "archive": ["--input", f"{tmp_path}/archive"]}
    for name, source in sources.items():
        arguments = [*server_arguments, *source, *one_day, "--schema-of", topic]
        assert run(replay, tmp_path, *arguments, "--to", f"{topic}-from-{name}")["rows"] == 120

    begin = START_MS + 60_000
    streamed = windows_of(spark, options, f"{topic}-streamed")
    assert windows_of(spark, options, f"{topic}-again") == [
        row for row in streamed if begin <= row[0] < begin + 60_000
    ]
    for name in sources:
        messages = received(client, f"{topic}-from-{name}", 120, AvroSchema(Reading))
        assert [each.value().speed for each in messages] == [each.speed for each in days[1]]
    for wrong in (one_day[:2], [*one_day, "--checkpoint", "x"], []):
        with pytest.raises(JobError, match="either --checkpoint, or both"):
            windows.main([*job, "--to", f"{topic}-again", *wrong])


class CameraEvent(Record):
    camera_id = String(required=True)
    road_id = String(required=True)
    hazard = String(required=True)


VEHICLES = 3


class Listener:
    """A vehicle in an area: what it was told, and when that arrived."""

    def __init__(self) -> None:
        self._arrived: list[tuple[int, pulsar.Message]] = []
        self._changed = threading.Condition()

    def __call__(self, consumer: pulsar.Consumer, message: pulsar.Message) -> None:
        at = time.time_ns()
        with self._changed:
            self._arrived.append((at, message))
            self._changed.notify()
        consumer.acknowledge(message)

    def got(self, count: int, timeout_seconds: float) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: len(self._arrived) >= count, timeout_seconds)

    @property
    def hazards(self) -> list[str]:
        found = [re.search(rb"h\d+", message.data()) for _, message in self._arrived]
        return [each[0].decode() if each else "" for each in found]

    def deliveries(self) -> list[tuple[int, int, int]]:
        """The number of the event, when its alert was published and when it arrived, in ns."""
        return [
            (int(hazard[1:]), message.publish_timestamp() * 10**6, at)
            for hazard, (at, message) in zip(self.hazards, self._arrived, strict=True)
        ]


def test_hazards_reach_everybody_in_their_area_once_and_in_order(
    spark: SparkSession,
    client: pulsar.Client,
    topic: str,
    server_arguments: list[str],
    tmp_path: Path,
) -> None:
    areas = {"road0": ["north"], "road1": ["south"], "road2": ["north", "south"], "road3": ["east"]}
    table = [f"{road},{area}" for road, names in areas.items() for area in names]
    (tmp_path / "areas.csv").write_text("\n".join(["road_id,area", *table]) + "\n")
    prefix = f"{topic}-"
    names = ("north", "south", "east")
    listeners = {(area, vehicle): Listener() for area in names for vehicle in range(VEHICLES)}
    consumers = [
        client.subscribe(
            f"{prefix}{area}",
            "vehicles",
            consumer_name=f"vehicle-{vehicle}",
            properties={"vela.broadcast": "true"},
            message_listener=listener,
        )
        for (area, vehicle), listener in listeners.items()
    ]
    events = [
        CameraEvent(camera_id=f"c{number % 5}", road_id=f"road{number % 4}", hazard=f"h{number}")
        for number in range(80)
    ]
    arguments = [*server_arguments, "--topic", topic, "--areas", str(tmp_path / "areas.csv")]
    arguments += ["--prefix", prefix, "--name", topic.rpartition("/")[2]]
    arguments += ["--checkpoint", f"{tmp_path}/checkpoint"]
    alerts = 0
    for first in (0, 40):
        part = events[first : first + 40]
        times = [START_MS + first + index for index in range(40)]
        publish(client, topic, part, event_times=times, schema=JsonSchema(CameraEvent))
        alerts += run(hazard_broadcast, tmp_path, *arguments)["alerts"]

    expected = {
        area: [each.hazard for each in events if area in areas[each.road_id]] for area in names
    }
    assert alerts == sum(len(each) for each in expected.values())
    for (area, _), listener in listeners.items():
        assert listener.got(len(expected[area]), TIMEOUT_SECONDS)
    more_until = time.monotonic() + 0.3
    for (area, _), listener in listeners.items():
        assert not listener.got(len(expected[area]) + 1, more_until - time.monotonic())
    for consumer in consumers:
        consumer.close()
    for (area, _), listener in listeners.items():
        assert listener.hazards == expected[area]
    for area, hazards in expected.items():
        frame = spark.read.format("vela").options(
            **{
                "service.url": server_arguments[1],
                "admin.url": server_arguments[3],
                "topic": f"{prefix}{area}",
            }
        )
        assert [row["hazard"] for row in frame.load().collect()] == hazards
    assert_latencies(listeners, {area: len(each) for area, each in expected.items()}, tmp_path)


def assert_latencies(
    listeners: dict[tuple[str, int], Listener], alerts: dict[str, int], tmp_path: Path
) -> None:
    """`latency-report` gives the figures that the listeners of each area recorded."""
    arguments = ["--output", str(tmp_path / "report")]
    for area in alerts:
        lines = ["consumer_id,seq,publish_ns,recv_ns"]
        for (where, vehicle), listener in listeners.items():
            if where == area:
                lines += [f"v{vehicle},{seq},{ns},{at}" for seq, ns, at in listener.deliveries()]
        (tmp_path / f"{area}.csv").write_text("\n".join(lines) + "\n")
        arguments += ["--samples", f"{area}={tmp_path / area}.csv"]

    report = run(latency_report, tmp_path, *arguments)

    for index, (area, count) in enumerate(alerts.items()):
        found = report["samples"][f"{area}-{index}"]
        assert (found["consumers"], found["deliveries"]) == (VEHICLES, VEHICLES * count)
        assert [found[name] for name in ("lost", "duplicated", "out_of_order")] == [0, 0, 0]
        every = [
            (at - ns) / 1e6
            for (where, _), listener in listeners.items()
            if where == area
            for _, ns, at in listener.deliveries()
        ]
        assert found["delivery_ms"]["max"] == pytest.approx(max(every))
        assert 0 <= min(every) <= found["delivery_ms"]["p50"] <= max(every)


def test_the_audit_finds_what_was_planted(
    client: pulsar.Client,
    options: Options,
    topic: str,
    server_arguments: list[str],
    spark: SparkSession,
    tmp_path: Path,
) -> None:
    leaked = "spark-pulsar-0f3c9d52-5b8e-4a55-9a0f-6d1f0a3c2b11"
    for name in ("forgotten", leaked):
        path = f"{path_of(topic)}/subscription/{name}"
        admin(options, "PUT", path, {"ledgerId": -1, "entryId": -1, "partitionIndex": -1})
    publish(client, topic, [b"x"] * 7)

    output = tmp_path / "audit"
    result = run(backlog_audit, tmp_path, *server_arguments, "--output", str(output))

    mine = {row["subscription"]: row for row in result["findings"] if row["topic"] == topic}
    stats = admin(options, "GET", path_of(topic) + "/stats")["subscriptions"]
    assert {name: row["state"] for name, row in mine.items()} == {
        "forgotten": "abandoned",
        leaked: "leaked",
    }
    assert {name: row["backlog"] for name, row in mine.items()} == {
        name: each["msgBacklog"] for name, each in stats.items()
    }
    assert spark.read.parquet(str(output / "subscriptions")).count() == result["subscriptions"]
    assert (output / "backlog.png").read_bytes()[:4] == b"\x89PNG"


def _deliveries() -> list[tuple[str, int, int, int]]:
    """Consumer c gets message n after n + 1 ms, 100 messages: p50 is 50 ms, p99 is 99 ms."""
    rows = []
    for consumer in range(4):
        for seq in range(100):
            publish_ns = seq * 10**9
            rows.append((f"c{consumer}", seq, publish_ns, publish_ns + (seq + 1) * 10**6))
    return rows


def test_the_report_knows_the_quantiles_and_finds_gap_double_and_swap(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows = _deliveries()
    rows.remove(rows[150])
    rows.append((*rows[210][:3], rows[210][3] + 1))
    swapped = rows[320]
    rows[320] = (*swapped[:3], swapped[3] + 3 * 10**9)
    columns = "consumer_id STRING, seq BIGINT, publish_ns BIGINT, recv_ns BIGINT"
    for name, data in (("good", _deliveries()), ("bad", rows)):
        spark.createDataFrame(data, columns).write.parquet(str(tmp_path / name))

    result = run(
        latency_report,
        tmp_path,
        *("--samples", f"good={tmp_path / 'good'}", "--samples", f"bad={tmp_path / 'bad'}"),
        *("--output", str(tmp_path / "report")),
    )

    good, bad = result["samples"]["good-0"], result["samples"]["bad-1"]
    assert good["delivery_ms"] == {"p50": 50, "p95": 95, "p99": 99, "p99.9": 100, "max": 100}
    assert sum(good["histogram"]["counts"]) == good["deliveries"] == 400
    assert good["per_consumer_ms"]["p99"] == dict.fromkeys(SPREAD, 99)
    assert good["fairness"] == {"p99_gini": pytest.approx(0), "p99_max_to_median": 1}
    assert [good[name] for name in ("lost", "duplicated", "out_of_order")] == [0, 0, 0]
    assert [bad[name] for name in ("lost", "duplicated")] == [1, 1]
    assert bad["out_of_order"] >= 1
    assert any("bad" in text and "errors" in text for text in result["warnings"])
    report = (tmp_path / "report" / "report.md").read_text()
    assert "| good | p99 | 99.000 | 99.000 | 99.000 | 1.00 |" in report
    assert all((tmp_path / "report").glob("*.png"))
