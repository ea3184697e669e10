"""The smart city: simulated vehicles on a topic, and what the jobs make of their readings."""

from __future__ import annotations

import itertools
import json
from argparse import Namespace
from collections import defaultdict
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import pulsar
import pytest
from pulsar.schema import AvroSchema, Double, Long, Record, String

from pipeline.jobs import last_position, seed_telemetry, vehicle_trips
from pipeline.jobs.command import JobError
from pipeline.telemetry import Fleet, Reading
from tests.pipeline.job_runs import run
from tests.pipeline.topics import admin, path_of, publish

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

Options = dict[str, str]
START_SECOND = 1_700_000_000
FLEET = Fleet(interval_seconds=10, drive_seconds=200, pause_seconds=100)
VEHICLES = 6


def seed(
    tmp_path: Path, server: list[str], topic: str, first_second: int, seconds: int, vehicles: int
) -> list[Reading]:
    """Publish, and return what must be there, in the order of time."""
    arguments = [*server, "--topic", topic, "--vehicles", str(vehicles)]
    arguments += ["--start-ms", str(first_second * 1000), "--seconds", str(seconds)]
    arguments += ["--interval-seconds", str(FLEET.interval_seconds)]
    arguments += ["--drive-seconds", str(FLEET.drive_seconds)]
    arguments += ["--pause-seconds", str(FLEET.pause_seconds)]
    readings = list(FLEET.readings(range(vehicles), first_second, seconds))
    assert run(seed_telemetry, tmp_path, *arguments)["rows"] == len(readings)
    return readings


def by_vehicle(readings: list[Reading]) -> dict[str, list[Reading]]:
    found = defaultdict(list)
    for reading in readings:
        found[reading.vehicle_id].append(reading)
    return found


DOUBLES = ("lat", "lon", "speed", "heading", "battery")
FIELDS = {name: Double() for name in DOUBLES} | {"ts": Long()}
# The name that the record has in the schema Spark registers.
Telemetry: Any = type(
    "topLevelRecord", (Record,), {name: FIELDS.get(name, String()) for name in Reading._fields}
)


def test_seeded_twice_a_topic_has_one_schema_and_each_vehicles_readings_in_order(
    client: pulsar.Client,
    spark: SparkSession,
    options: Options,
    topic: str,
    server_arguments: list[str],
    tmp_path: Path,
) -> None:
    readings = seed(tmp_path, server_arguments, topic, START_SECOND, 100, VEHICLES)
    readings += seed(tmp_path, server_arguments, topic, START_SECOND + 100, 200, VEHICLES)

    reader = client.create_reader(topic, pulsar.MessageId.earliest, schema=AvroSchema(Telemetry))
    found: dict[str, list[Reading]] = defaultdict(list)
    for _ in readings:
        message = reader.read_next(20_000)
        value = message.value()
        assert message.partition_key() == value.vehicle_id
        assert message.event_timestamp() == value.ts
        found[value.vehicle_id].append(Reading(*(getattr(value, n) for n in Reading._fields)))
    assert not reader.has_message_available()
    reader.close()
    assert found == by_vehicle(readings)
    schema = admin(options, "GET", f"/schemas/public/default/{topic.rpartition('/')[2]}/schema")
    assert (schema["type"], schema["version"]) == ("AVRO", 0)
    assert json.loads(schema["data"])["name"] == "topLevelRecord"


def test_the_last_position_is_the_newest_by_event_time_and_the_topic_stays_untouched(
    client: pulsar.Client,
    spark: SparkSession,
    options: Options,
    topic: str,
    server_arguments: list[str],
    tmp_path: Path,
) -> None:
    readings = seed(tmp_path, server_arguments, topic, START_SECOND, 600, VEHICLES)
    newest = {reading.vehicle_id: reading for reading in readings}
    # Late: published last, but older than what is there. At the same time: the last one counts.
    late = readings[0]._replace(lat=1.0)
    twin = newest["v1"]._replace(lat=2.0)
    newest["v1"] = twin
    publish(
        client,
        topic,
        [Telemetry(**each._asdict()) for each in (late, twin)],
        schema=AvroSchema(Telemetry),
        keys=[late.vehicle_id, twin.vehicle_id],
        event_times=[late.ts, twin.ts],
    )
    output = str(tmp_path / "positions")
    arguments = [*server_arguments, "--topic", topic, "--output", output]

    summary = run(last_position, tmp_path, *arguments, "--map", str(tmp_path / "maps" / "city.png"))

    rows = spark.read.parquet(output).collect()
    assert summary["keys"] == summary["points"] == len(rows) == VEHICLES
    assert (tmp_path / "maps" / "city.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(JobError, match=r"no column where for the map: .* name one of .*lat,"):
        last_position.main([*arguments, "--map", "x.png", "--longitude", "where"])
    found = {row["vehicle_id"]: Reading(*(row[name] for name in Reading._fields)) for row in rows}
    assert found == newest
    assert admin(options, "GET", path_of(topic) + "/subscriptions") == []


def trips_of(readings: list[Reading], silence_seconds: int) -> set[tuple[Any, ...]]:
    """Vehicle, times, number of readings, first and last latitude, highest speed."""
    found = set()
    for vehicle, own in by_vehicle(readings).items():
        starts = [0]
        for index, (one, other) in enumerate(itertools.pairwise(own), start=1):
            if other.ts - one.ts >= silence_seconds * 1000:
                starts.append(index)
        for first, end in itertools.pairwise([*starts, len(own)]):
            trip = own[first:end]
            speed = max(reading.speed for reading in trip)
            ends = (trip[0].ts, trip[-1].ts, len(trip), trip[0].lat, trip[-1].lat, speed)
            found.add((vehicle, *ends))
    return found


def test_readings_without_a_vehicle_make_no_trip(spark: SparkSession) -> None:
    began = datetime(2024, 1, 1)
    times = [began + timedelta(seconds=10 * index) for index in range(4)]
    vehicles = ["v1", None, "v1", None]
    rows = [(at, at, key, 1.0, 2.0, 3.0) for at, key in zip(times, vehicles, strict=True)]
    schema = "__eventTime timestamp, __publishTime timestamp, __key string"
    frame = spark.createDataFrame(rows, f"{schema}, lat double, lon double, speed double")
    names = {"key": "__key", "latitude": "lat", "longitude": "lon", "speed": "speed"}
    given = Namespace(**names, watermark_seconds=10, silence_seconds=30)

    found = vehicle_trips.trips(frame, given).collect()

    assert [(row["vehicle_id"], row["readings"]) for row in found] == [("v1", 2)]


@pytest.mark.slow
def test_trips_are_those_of_the_generator_each_once_and_the_state_is_bounded(
    spark: SparkSession,
    options: Options,
    topic: str,
    server_arguments: list[str],
    tmp_path: Path,
) -> None:
    arguments = [*server_arguments, "--topic", topic, "--to", f"{topic}-trips"]
    arguments += ["--name", topic.rpartition("/")[2], "--checkpoint", f"{tmp_path}/checkpoint"]
    readings: list[Reading] = []
    published = 0
    state_rows = []
    # Between the first two runs vehicles are on their way; at the end all are silent but one,
    # whose report lets the last trips end.
    for first_second, seconds, vehicles in ((0, 500, 6), (500, 500, 6), (5000, 10, 1)):
        part = seed(
            tmp_path, server_arguments, topic, START_SECOND + first_second, seconds, vehicles
        )
        if vehicles > 1:
            readings += part
        else:
            assert len(part) == 1
        summary = run(vehicle_trips, tmp_path, *arguments)
        published += summary["trips"]
        state_rows.append(summary["state_rows_max"])

    rows = spark.read.format("vela").options(**{**options, "topic": f"{topic}-trips"}).load()
    names = ("vehicle_id", "trip_start", "trip_end", "readings", "first_lat", "last_lat")
    found = [tuple(row[name] for name in (*names, "speed_max")) for row in rows.collect()]
    expected = trips_of(readings, silence_seconds=30)
    assert len(found) == published == len(expected)
    assert set(found) == expected
    assert max(state_rows) < len(readings) / 4
