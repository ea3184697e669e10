"""Latency of a broadcast message in six stages, from the producer to the last consumer.

Pure. The stages are those of the published breakdown of a large broadcast:

- producing: from the publish time the producer wrote to the arrival of the message here;
- processing: until it is handed to storage;
- persistence: until it is durable;
- notification: until the fan-out turns to it;
- preparing: until its frames are ready and the first one is queued;
- broadcasting: until all consumers in step have been sent it; observed once per connection.

Histograms have fixed buckets that double from 50 us to 26 s, so that they can be added up over
time and over brokers. A percentile is the upper end of its bucket.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import deque
from typing import Final, final

STAGES: Final = (
    "producing",
    "processing",
    "persistence",
    "notification",
    "preparing",
    "broadcasting",
)
BUCKETS_SECONDS: Final = tuple(0.00005 * 2**power for power in range(20))
_IN_FLIGHT_MAX: Final = 10_000
_STARTED_MAX: Final = 1_000


@final
class Histogram:
    """Durations in doubling buckets; the last one has no upper end."""

    __slots__ = ("counts", "maximum", "total")

    def __init__(self) -> None:
        self.counts = array("q", [0] * (len(BUCKETS_SECONDS) + 1))
        self.total = 0.0
        self.maximum = 0.0

    def observe(self, seconds: float) -> None:
        """Add one; a clock that ran backwards counts as 0."""
        seconds = max(0.0, seconds)
        self.counts[bisect_left(BUCKETS_SECONDS, seconds)] += 1
        self.total += seconds
        self.maximum = max(self.maximum, seconds)

    @property
    def count(self) -> int:
        """How many were added."""
        return int(sum(self.counts))

    def percentile(self, part: float) -> float:
        """An upper bound of the given quantile (0..1); 0 when there are no values."""
        wanted = part * self.count
        seen = 0
        for index, count in enumerate(self.counts):
            seen += count
            if count and seen >= wanted:
                if index < len(BUCKETS_SECONDS):
                    upper: float = BUCKETS_SECONDS[index]
                    return min(upper, self.maximum)
                return self.maximum
        return 0.0


@final
class Stages:
    """The histograms of one subscription, and the start times of messages in progress.

    The topic reports each publish (`published`) in order, and its outcome (`durable` or `lost`) in
    the same order. The fan-out reports each ordinal it starts, and each connection it has served.
    """

    __slots__ = ("_durable_at", "_in_flight", "_started", "_unprepared", "histograms")

    def __init__(self) -> None:
        self.histograms = {name: Histogram() for name in STAGES}
        self._in_flight: deque[float] = deque()
        self._durable_at: dict[int, float] = {}
        self._started: dict[int, float] = {}
        self._unprepared: set[int] = set()

    def published(self, publish_time_ms: int, wall_ms: int, arrived: float, now: float) -> None:
        """A message was handed to storage."""
        if publish_time_ms:
            self.histograms["producing"].observe((wall_ms - publish_time_ms) / 1000)
        self.histograms["processing"].observe(now - arrived)
        self._in_flight.append(now)

    def durable(self, ordinal: int, count: int, now: float) -> None:
        """The next `count` messages are durable, the last one is entry `ordinal`."""
        persistence = self.histograms["persistence"]
        for _ in range(min(count, len(self._in_flight))):
            persistence.observe(now - self._in_flight.popleft())
        waiting = self._durable_at
        for each in range(max(ordinal - count, ordinal - _IN_FLIGHT_MAX) + 1, ordinal + 1):
            waiting[each] = now
        while len(waiting) > _IN_FLIGHT_MAX:
            del waiting[next(iter(waiting))]

    def lost(self) -> None:
        """The oldest message on its way to storage was not stored."""
        if self._in_flight:
            self._in_flight.popleft()

    def turned_to(self, ordinal: int, now: float) -> None:
        """The fan-out looks at the entry for the first time."""
        since = self._durable_at.pop(ordinal, None)
        if since is not None:
            self.histograms["notification"].observe(now - since)
            self._started[ordinal] = now
            self._unprepared.add(ordinal)
            if len(self._started) > _STARTED_MAX:
                oldest = next(iter(self._started))
                del self._started[oldest]
                self._unprepared.discard(oldest)

    def is_unprepared(self, ordinal: int) -> bool:
        """Whether `queued_first` is still expected."""
        return ordinal in self._unprepared

    def queued_first(self, ordinal: int, now: float) -> None:
        """Frames of the entry are queued; the first time counts."""
        if ordinal in self._unprepared:
            self._unprepared.discard(ordinal)
            self.histograms["preparing"].observe(now - self._started[ordinal])
            self._started[ordinal] = now

    def served(self, ordinal: int, now: float) -> None:
        """One connection has been given all its frames of the entry."""
        since = self._started.get(ordinal)
        if since is not None:
            self.histograms["broadcasting"].observe(now - since)
