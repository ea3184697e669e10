"""Weighted samples and their percentiles.

Pure. All messages of one receive have the same arrival time, so a sample is a value and how often
it occurred. A run of 100,000 consumers makes a few thousand samples per message. Percentiles are
exact: the smallest value that at least the given part of all values does not exceed.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

PERCENTILES: Final = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "p99.9": 0.999, "max": 1.0}


@final
class Samples:
    """Latencies of messages in nanoseconds, by sequence number."""

    __slots__ = ("counts", "ended", "latencies_ns", "sequences")

    def __init__(self) -> None:
        self.sequences = array("q")
        self.latencies_ns = array("q")
        self.counts = array("q")
        self.ended = False
        """Add nothing more: later messages were held back on purpose."""

    def add(self, sequence: int, latency_ns: int, count: int) -> None:
        """`count` consumers received the message at that time."""
        if self.ended:
            return
        self.sequences.append(sequence)
        self.latencies_ns.append(latency_ns)
        self.counts.append(count)

    def extend(self, other: Samples) -> None:
        """Add all of the other's."""
        self.sequences.extend(other.sequences)
        self.latencies_ns.extend(other.latencies_ns)
        self.counts.extend(other.counts)

    def weighted_seconds(self, first_sequence: int) -> list[tuple[float, int]]:
        """(latency, count) of the messages from this one on."""
        return [
            (latency / 1e9, count)
            for sequence, latency, count in zip(
                self.sequences, self.latencies_ns, self.counts, strict=True
            )
            if sequence >= first_sequence
        ]


@final
class Recording:
    """Every single delivery: consumer, message, publish and arrival time, by the monotonic clock.
    Made only on request, because it costs some time per delivery."""

    HEADING: Final = "consumer_id,seq,publish_ns,recv_ns\n"

    __slots__ = ("_arrivals", "ended")

    def __init__(self) -> None:
        self._arrivals: list[tuple[int, int, int, array[int]]] = []
        self.ended = False
        """As in `Samples`."""

    def add(self, sequence: int, published_ns: int, now_ns: int, consumers: Iterable[int]) -> None:
        """These consumers, by number, received the message at that time."""
        if not self.ended:
            self._arrivals.append((sequence, published_ns, now_ns, array("q", consumers)))

    def lines(self, first_sequence: int) -> Iterator[str]:
        """CSV under `HEADING`, of the messages from this one on."""
        for sequence, published_ns, now_ns, consumers in self._arrivals:
            if sequence >= first_sequence:
                rest = f",{sequence},{published_ns},{now_ns}\n"
                for consumer in consumers:
                    yield f"{consumer}{rest}"


def percentiles(
    weighted: Iterable[tuple[float, int]], parts: Sequence[float]
) -> list[float | None]:
    """The percentile of each part (0..1, ascending) of all; None when there are no samples."""
    ordered = sorted(weighted)
    total = sum(count for _, count in ordered)
    if not total:
        return [None] * len(parts)
    found: list[float | None] = []
    seen, index = 0, -1
    for part in parts:
        while index < 0 or (seen < part * total - 1e-9 and index < len(ordered) - 1):
            index += 1
            seen += ordered[index][1]
        found.append(ordered[index][0])
    return found


def summary(weighted: Iterable[tuple[float, int]]) -> dict[str, float | None]:
    """The percentiles of a report, by name."""
    return dict(zip(PERCENTILES, percentiles(weighted, tuple(PERCENTILES.values())), strict=True))


def histogram(
    weighted: Iterable[tuple[float, int]], bucket_count: int
) -> tuple[list[float], list[int]]:
    """Edges (one more than buckets) and counts of equally wide buckets from 0 to the maximum."""
    values = list(weighted)
    top = max((value for value, _ in values), default=0.0) or 1.0
    width = top / bucket_count
    counts = [0] * bucket_count
    for value, count in values:
        counts[min(bucket_count - 1, int(value / width))] += count
    return [width * index for index in range(bucket_count + 1)], counts
