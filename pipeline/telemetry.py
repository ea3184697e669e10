"""Simulated vehicles of a city: telemetry that anybody can compute again. Pure.

Each vehicle drives for a while, is silent for a while, and drives again on the next road. What it
reports at a moment depends on the vehicle and the moment alone, so runs that follow each other in
time continue the same drives, and a test knows every reading without having kept it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, final

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

PHASE: Final = 7919
"""Seconds by which a vehicle is ahead of the one before; prime, so that few stop together."""
RADIUS_DEGREES: Final = 0.01
SPEED_KMH_MAX: Final = 60.0


class Reading(NamedTuple):
    """One report of a vehicle. `ts` is ms since 1970, `speed` km/h, `heading` and places degrees,
    `battery` percent."""

    vehicle_id: str
    ts: int
    lat: float
    lon: float
    speed: float
    heading: float
    road_id: str
    battery: float


@final
@dataclass(frozen=True, slots=True)
class Fleet:
    """How the vehicles of a city drive."""

    interval_seconds: int = 5
    drive_seconds: int = 300
    pause_seconds: int = 120
    roads: int = 50

    def reading(self, vehicle: int, second: int) -> Reading | None:
        """The report of a vehicle at a second since 1970; None while it is silent."""
        cycle, offset = divmod(second + vehicle * PHASE, self.drive_seconds + self.pause_seconds)
        if offset >= self.drive_seconds:
            return None
        part = offset / self.drive_seconds
        road = (vehicle + cycle) % self.roads
        angle = 2 * math.pi * part
        return Reading(
            vehicle_id=f"v{vehicle}",
            ts=second * 1000,
            lat=35.6 + road / 100 + RADIUS_DEGREES * math.sin(angle),
            lon=139.7 + RADIUS_DEGREES * math.cos(angle),
            speed=SPEED_KMH_MAX * math.sin(math.pi * part),
            heading=math.degrees(angle) % 360,
            road_id=f"r{road}",
            battery=100.0 - 50 * part,
        )

    def readings(
        self, vehicles: Sequence[int], first_second: int, seconds: int
    ) -> Iterator[Reading]:
        """Of some vehicles, in the order of time."""
        for second in range(first_second, first_second + seconds, self.interval_seconds):
            for vehicle in vehicles:
                reading = self.reading(vehicle, second)
                if reading is not None:
                    yield reading
