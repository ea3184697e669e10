"""Whether the disk stood still: requests were under way, and none was completed.

A virtual disk may do so for tens or hundreds of milliseconds, whatever is written to it. Whoever
syncs waits as long, and whoever does not sync does not notice.
"""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

SAMPLE_SECONDS: Final = 0.005
_STATISTICS: Final = "/proc/diskstats"


class Sample(NamedTuple):
    """Of one time."""

    seconds: float
    completed: int
    """Reads and writes, so far."""
    under_way: int


def sample_of(statistics: str, device: tuple[int, int], seconds: float) -> Sample | None:
    """Of a device (major, minor) in the text of /proc/diskstats (Linux, iostats.rst). None: it has
    no such device, as for a file system in memory."""
    for line in statistics.splitlines():
        fields = line.split()
        if (int(fields[0]), int(fields[1])) == device:
            return Sample(seconds, int(fields[3]) + int(fields[7]), int(fields[11]))
    return None


def still_seconds_max(samples: Iterable[Sample]) -> float:
    """The longest time in which requests were under way and none was completed."""
    longest = 0.0
    begun: Sample | None = None
    for sample in samples:
        if begun is not None and begun.completed == sample.completed and sample.under_way:
            longest = max(longest, sample.seconds - begun.seconds)
        else:
            begun = sample if sample.under_way else None
    return longest


class DeviceWatch:
    """Looks at the disk of a directory while it is entered."""

    def __init__(self, directory: Path) -> None:
        number = os.stat(directory).st_dev
        self._device = os.major(number), os.minor(number)
        self._has_disk = False
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look, name="device watch", daemon=True)
        self.still_ms_max: float | None = None
        """Of the whole time, when it has been left. None: the directory has no disk."""

    def __enter__(self) -> DeviceWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _look(self) -> None:
        longest = still_seconds_max(self._samples()) * 1e3
        self.still_ms_max = longest if self._has_disk else None

    def _samples(self) -> Iterator[Sample]:
        while not self._ended.wait(SAMPLE_SECONDS):
            with open(_STATISTICS) as file:
                sample = sample_of(file.read(), self._device, time.monotonic())
            if sample is None:
                return
            self._has_disk = True
            yield sample
