"""Histograms in Pulsar's own style: fixed buckets, exported as one series per bucket.

Dashboards divide the buckets by 60, so the exported counts are those of the last full minute. Until
the first minute is over, they are those since the start. Pure: time is an argument.
"""

from __future__ import annotations

from bisect import bisect_left
from functools import lru_cache
from typing import Final, final

LATENCY_LIMITS_MS: Final = (0.5, 1, 5, 10, 20, 50, 100, 200, 1000)
LATENCY_NAMES: Final = ("0_5", "1", "5", "10", "20", "50", "100", "200", "1000")
SIZE_NAMES: Final = ("128", "512", "1_kb", "2_kb", "4_kb", "16_kb", "100_kb", "1_mb")
_LATENCY_LIMITS_SECONDS: Final = tuple(limit / 1000 for limit in LATENCY_LIMITS_MS)
_SIZE_BITS: Final = (7, 9, 10, 11, 12, 14, 17, 20)
_SIZE_100_KB: Final = 100 * 1024
_SIZE_128_KB_BITS: Final = 17
_BITS_MAX: Final = 40
_BUCKET_OF_BITS: Final = tuple(bisect_left(_SIZE_BITS, bits) for bits in range(_BITS_MAX + 1))
_NO_SIZES: Final = [0] * (len(_SIZE_BITS) + 1)
"""Shared by all that have counted nothing, and never changed. So is the next."""
_NO_TIMES: Final = [0] * (len(LATENCY_LIMITS_MS) + 1)


@final
class EntrySizes:
    """Sizes of entries, counted by the number of bits of the size: one addition per entry, or per
    run of entries of one size.

    The limit of 100 KB is no power of two: sizes between it and 128 KB are counted one bucket up.
    """

    __slots__ = ("_counts", "size_bytes")

    def __init__(self) -> None:
        self._counts = _NO_SIZES
        self.size_bytes = 0

    def add(self, size: int, count: int = 1) -> None:
        """Count entries of this size."""
        bits = (size - 1).bit_length()
        if bits == _SIZE_128_KB_BITS and size > _SIZE_100_KB:
            bits += 1
        if self._counts is _NO_SIZES:
            self._counts = list(_NO_SIZES)
        self._counts[_BUCKET_OF_BITS[bits]] += count
        self.size_bytes += size * count

    def counts(self) -> list[int]:
        """Entries per bucket of SIZE_NAMES, then those above all buckets."""
        return list(self._counts)


@final
class PublishTimes:
    """The time until messages were durable, measured per turn of the event loop, not per message.

    `taken` and `answered` are running totals of messages handed to storage and answered, in order.
    """

    __slots__ = ("_answered", "_counts", "_turns", "sum_seconds")

    def __init__(self) -> None:
        self._turns: list[tuple[int, float]] = []
        """(taken, when) of turns with messages that are not answered yet, the oldest first."""
        self._counts = _NO_TIMES
        self._answered = 0
        self.sum_seconds = 0.0

    def sent(self, taken: int, now: float) -> None:
        """At the end of a turn: everything up to `taken` has been handed to storage."""
        self._turns.append((taken, now))

    def answered(self, answered: int, now: float) -> None:
        """Everything up to `answered` is durable, or has failed."""
        turns = self._turns
        if self._counts is _NO_TIMES:
            self._counts = list(_NO_TIMES)
        done = 0
        while done < len(turns) and self._answered < answered:
            taken, sent_at = turns[done]
            count = min(taken, answered) - self._answered
            seconds = now - sent_at
            self._counts[bisect_left(_LATENCY_LIMITS_SECONDS, seconds)] += count
            self.sum_seconds += seconds * count
            self._answered += count
            if taken > answered:
                break
            done += 1
        if done == len(turns):
            self._turns = []
        else:
            del turns[:done]

    def counts(self) -> list[int]:
        """Messages per bucket of LATENCY_NAMES, then those above all buckets."""
        return list(self._counts)


@lru_cache(maxsize=4)
def _no_counts(kinds: tuple[type, ...]) -> list[float]:
    """0 or 0.0 for each count. Shared, and never changed."""
    return [kind() for kind in kinds]


@final
class MinuteCounts:
    """Turns ever-growing counts into those of the last full minute."""

    __slots__ = ("_closed", "_first", "_start")

    def __init__(self) -> None:
        self._start: list[float] = []
        self._closed: list[float] = []
        self._first = True

    def close(self, counts: list[float]) -> None:
        """A minute is over. One in which nothing was counted, as of a topic at rest, adds no
        lists."""
        none = _no_counts(tuple(map(type, counts)))
        start = self._start or [0.0] * len(counts)
        if counts == start:
            self._start, self._closed = (start if any(start) else none), none
        else:
            self._closed = [now - before for now, before in zip(counts, start, strict=True)]
            self._start = counts
        self._first = False

    def last(self, counts: list[float]) -> list[float]:
        """Counts of the last full minute."""
        return counts if self._first else self._closed
