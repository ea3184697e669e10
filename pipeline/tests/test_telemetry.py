"""Simulated vehicles: readings that follow from vehicle and time alone."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from pipeline.telemetry import Fleet

START = 1_700_000_000


@given(st.integers(min_value=1, max_value=300))
def test_runs_that_follow_each_other_continue_the_same_drives(cut: int) -> None:
    fleet = Fleet(interval_seconds=1)
    parts = [*fleet.readings(range(3), START, cut), *fleet.readings(range(3), START + cut, 400)]

    assert parts == list(fleet.readings(range(3), START, cut + 400))


def test_a_vehicle_drives_falls_silent_and_drives_on_another_road() -> None:
    fleet = Fleet(interval_seconds=1, drive_seconds=100, pause_seconds=40)
    times = [reading.ts // 1000 for reading in fleet.readings([7], START, 1400)]
    roads = {reading.road_id for reading in fleet.readings([7], START, 1400)}
    gaps = [later - earlier for earlier, later in itertools.pairwise(times)]

    assert len(times) == 1000
    assert set(gaps) == {1, 41}
    assert 9 <= gaps.count(41) <= 10
    assert len(roads) in (10, 11)


@given(st.integers(min_value=0, max_value=10**5), st.integers(min_value=0, max_value=2**31))
def test_every_reading_is_one_a_vehicle_could_make(vehicle: int, second: int) -> None:
    reading = Fleet().reading(vehicle, second)

    if reading is not None:
        assert (reading.vehicle_id, reading.ts) == (f"v{vehicle}", second * 1000)
        assert 0 <= reading.speed <= 60
        assert 0 <= reading.heading < 360
        assert 50 <= reading.battery <= 100
        assert -90 <= reading.lat <= 90
