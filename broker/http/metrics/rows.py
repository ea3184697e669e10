"""The series of topics, of namespaces and of subscriptions: one row for each, with a number for
every family of its kind. A page of very many topics therefore costs few steps per topic
(`Page.add_row`)."""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, final

from broker.ground.histograms import LATENCY_NAMES, SIZE_NAMES
from broker.http.metrics.names import (
    CONSUMER_SERIES,
    SUBSCRIPTION_SERIES,
    SUMMED,
    THROTTLED_SERIES,
    TOPIC_SERIES,
)
from broker.http.metrics.subscription_series import add_series
from broker.http.topics.topic_json import consumer_json
from web.prometheus import Families, Family, with_label

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from broker.http.metrics.names import Series
    from broker.http.topics.topic_json import SubscriptionRow
    from broker.topics.topic.topic_base import StoredCounts
    from web.prometheus import Page

Json = dict[str, Any]

WINDOW_SECONDS: Final = 60.0
_LATENCIES: Final = len(LATENCY_NAMES) + 1
_SIZES: Final = len(SIZE_NAMES) + 1
NO_COUNTS: Final = (0.0,) * (_LATENCIES + 1 + _SIZES + 1 + 2)
"""The numbers of a topic that stores nothing, in the order of `numbers_of`."""
_LATENCY_FAMILIES: Final = (
    "pulsar_storage_write_latency",
    "pulsar_storage_ledger_write_latency",
    "pulsar_add_entry_latency",
)


def _families_of(series: Iterable[Series]) -> list[Family]:
    return [Family(each.name, each.kind, each.help_text) for each in series]


def _buckets(family: str, names: Iterable[str]) -> list[Family]:
    return [
        *(Family(name, "gauge", "In this range, within the last minute") for name in names),
        Family(f"{family}_count", "gauge", "Within the last minute"),
        Family(f"{family}_sum", "gauge", "Within the last minute"),
    ]


def _latency_buckets(family: str) -> list[Family]:
    names = [f"{family}_le_{name}" for name in LATENCY_NAMES]
    return _buckets(family, [*names, f"{family}_overflow"])


_AFTER_FIELDS: Final = (
    Family("pulsar_msg_backlog", "gauge", "Messages not acknowledged"),
    Family("pulsar_producers_count", "gauge", "Producers"),
    Family("pulsar_consumers_count", "gauge", "Consumers"),
    Family("pulsar_subscriptions_count", "gauge", "Subscriptions"),
    *(
        Family(f"pulsar_replication_{name}", "gauge", "There is no replication")
        for name in ("rate_in", "rate_out", "backlog")
    ),
    *(each for family in _LATENCY_FAMILIES for each in _latency_buckets(family)),
    *_buckets(
        "pulsar_entry_size", [f"pulsar_entry_size_le_{name}" for name in (*SIZE_NAMES, "overflow")]
    ),
    Family("pulsar_storage_write_rate", "gauge", "Entries per second stored"),
    Family(
        "pulsar_storage_read_rate",
        "gauge",
        "Messages per second read for delivery, from cache or storage",
    ),
)
_NO_REPLICATION: Final = (0, 0, 0)
_SUMMED_SERIES: Final = [each for each in TOPIC_SERIES if each.name in SUMMED]
_SUMMED_FIELDS: Final = [each.field for each in _SUMMED_SERIES]

_OF_TOPIC: Final = Families([*_families_of(TOPIC_SERIES), *_AFTER_FIELDS])
_OF_NAMESPACE: Final = Families([*_families_of(_SUMMED_SERIES), *_AFTER_FIELDS])
_OF_SUBSCRIPTION: Final = Families(
    [
        *_families_of(SUBSCRIPTION_SERIES),
        Family("pulsar_subscription_consumers_count", "gauge", "Consumers"),
    ]
)
_OF_LEVEL: Final = Families(_families_of(THROTTLED_SERIES))
_OF_CONSUMER: Final = Families(_families_of(CONSUMER_SERIES))
_topic_fields: Final = itemgetter(*(each.field for each in TOPIC_SERIES))
_namespace_fields: Final = itemgetter(*_SUMMED_FIELDS)
_subscription_fields: Final = itemgetter(
    *(each.field for each in SUBSCRIPTION_SERIES), "consumersCount"
)
_consumer_fields: Final = itemgetter(*(each.field for each in CONSUMER_SERIES))


@final
class Row:
    """Numbers of one topic, or their sums over the topics of a namespace."""

    __slots__ = (
        "backlog",
        "consumers",
        "fields",
        "histograms",
        "producers",
        "subscriptions",
        "topics",
    )

    def __init__(self) -> None:
        self.topics = 0
        self.fields: Json = {}
        self.backlog = 0
        self.producers = 0
        self.consumers = 0
        self.subscriptions = 0
        self.histograms: Sequence[float] = NO_COUNTS

    def add(self, other: Row) -> None:
        """Add up the fields in `SUMMED`."""
        self.topics += other.topics
        for field in _SUMMED_FIELDS:
            self.fields[field] = self.fields.get(field, 0) + other.fields[field]
        self.backlog += other.backlog
        self.producers += other.producers
        self.consumers += other.consumers
        self.subscriptions += other.subscriptions
        self.histograms = [a + b for a, b in zip(self.histograms, other.histograms, strict=True)]


def numbers_of(stored: StoredCounts, delivered: int) -> list[float]:
    """All counters of a topic, in one row for its window."""
    return [
        *stored.latencies,
        *stored.sizes,
        stored.latency_seconds,
        stored.size_bytes,
        stored.entries,
        delivered,
    ]


def add_row(page: Page, labels: str, row: Row, *, all_series: bool) -> None:
    """Series of one topic, or of a namespace: these are fewer."""
    latencies = row.histograms[:_LATENCIES]
    sizes = row.histograms[_LATENCIES : _LATENCIES + _SIZES]
    latency_seconds, size_bytes, entries, delivered = row.histograms[_LATENCIES + _SIZES :]
    times = (*latencies, sum(latencies), latency_seconds * 1000)
    families, fields = (
        (_OF_TOPIC, _topic_fields) if all_series else (_OF_NAMESPACE, _namespace_fields)
    )
    page.add_row(
        families,
        labels,
        (
            *fields(row.fields),
            row.backlog,
            row.producers,
            row.consumers,
            row.subscriptions,
            *_NO_REPLICATION,
            *times,
            *times,
            *times,
            *sizes,
            sum(sizes),
            size_bytes,
            entries / WINDOW_SECONDS,
            max(0.0, delivered) / WINDOW_SECONDS,
        ),
    )


def add_subscription(
    page: Page, topic_labels: dict[str, str], topic_text: str, row: SubscriptionRow
) -> Iterator[None]:
    """Series of one subscription, and a step for each of its consumers in the row. `topic_text` is
    the text of `topic_labels`."""
    text = with_label(topic_text, "subscription", row.name)
    page.add_row(_OF_SUBSCRIPTION, text, _as_numbers(_subscription_fields(row.fields)))
    for level, times in row.statistics.throttled.items():
        page.add_row(_OF_LEVEL, with_label(text, "reason", level), tuple(times))
    own = row.subscription.series(row.statistics)
    if own:
        add_series(page, {**topic_labels, "subscription": row.name}, own)
    for each in row.consumers:
        consumer = consumer_json(each)
        consumer_text = with_label(text, "consumer_name", consumer["consumerName"])
        page.add_row(_OF_CONSUMER, consumer_text, _as_numbers(_consumer_fields(consumer)))
        yield


def _as_numbers(values: Sequence[float | bool]) -> tuple[float, ...]:
    return tuple([int(value) if value is True or value is False else value for value in values])
