"""The load of bundles over time, as the leader keeps it: BundleData and TimeAverageBrokerData of
Pulsar 4.0.8. Pure. What holds for `broker.cluster.records` holds for these records, too.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, final

from broker.cluster.records import NO_TRAFFIC, Traffic, decode, number_of

if TYPE_CHECKING:
    from broker.cluster.records import BundleLoad, Json

_SHORT_TERM_SAMPLES: Final = 10
_LONG_TERM_SAMPLES: Final = 1000


@final
@dataclass(frozen=True, slots=True)
class Average:
    """A mean over the last samples: each moves it by one part in the number of samples."""

    samples_max: int
    samples: int = 0
    traffic: Traffic = NO_TRAFFIC

    def with_sample(self, sample: Traffic) -> Average:
        """The mean after one more sample."""
        samples = min(self.samples + 1, self.samples_max)

        def mean(old: float, new: float) -> float:
            return ((samples - 1) * old + new) / samples

        old = self.traffic
        return replace(
            self,
            samples=samples,
            traffic=Traffic(
                mean(old.msg_rate_in, sample.msg_rate_in),
                mean(old.msg_rate_out, sample.msg_rate_out),
                mean(old.throughput_in, sample.throughput_in),
                mean(old.throughput_out, sample.throughput_out),
            ),
        )

    @property
    def record(self) -> Json:
        """TimeAverageMessageData."""
        return {
            "maxSamples": self.samples_max,
            "numSamples": self.samples,
            **self.traffic.record,
        }

    @classmethod
    def of(cls, record: object, samples_max: int) -> Average:
        """From TimeAverageMessageData."""
        if not isinstance(record, dict):
            return cls(samples_max)
        samples = max(0, int(number_of(record, "numSamples")))
        return cls(samples_max, samples, Traffic.of(record))


@final
@dataclass(frozen=True, slots=True)
class BundleHistory:
    """The load of a bundle over time, kept by the leader."""

    short_term: Average = Average(_SHORT_TERM_SAMPLES)
    long_term: Average = Average(_LONG_TERM_SAMPLES)
    topics: int = 0

    def with_sample(self, load: BundleLoad) -> BundleHistory:
        """The history after one more report."""
        return BundleHistory(
            self.short_term.with_sample(load.traffic),
            self.long_term.with_sample(load.traffic),
            load.topics,
        )

    @property
    def record(self) -> Json:
        """BundleData."""
        return {
            "shortTermData": self.short_term.record,
            "longTermData": self.long_term.record,
            "topics": self.topics,
        }

    @classmethod
    def parse(cls, data: bytes) -> BundleHistory:
        """From a stored record."""
        record = decode(data) or {}
        return cls(
            Average.of(record.get("shortTermData"), _SHORT_TERM_SAMPLES),
            Average.of(record.get("longTermData"), _LONG_TERM_SAMPLES),
            int(number_of(record, "topics")),
        )


def broker_averages_record(short_term: Traffic, long_term: Traffic) -> Json:
    """TimeAverageBrokerData: the sums over the bundles of a broker."""
    return {
        f"{term}{name[0].upper()}{name[1:]}": value
        for term, traffic in (("shortTerm", short_term), ("longTerm", long_term))
        for name, value in traffic.record.items()
    }
