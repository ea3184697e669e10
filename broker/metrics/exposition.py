"""The Prometheus page of one broker and its bookie, made from live state when it is asked for.

With `exposeTopicLevelMetricsInPrometheus` there is a set of series per topic and subscription, else
their sums per namespace. Series per consumer are off by default: a topic may have very many.
Histograms are Pulsar's (see `histograms`): counts of the last full minute.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final, final

import trio

from bookie.statistics import LATENCY_BUCKETS_MS
from broker.admin.topic_json import topic_stats
from broker.metrics.histograms import (
    LATENCY_LIMITS_MS,
    LATENCY_NAMES,
    SIZE_NAMES,
    MinuteCounts,
    quantile,
)
from broker.metrics.names import CONSUMER_SERIES, SUBSCRIPTION_SERIES, SUMMED, TOPIC_SERIES
from broker.metrics.page import Page, label_text
from broker.metrics.subscription_series import add_series
from broker.topic.persistent import PersistentTopic

if TYPE_CHECKING:
    from bookie.bookie import Bookie
    from bookie.net.server import BookieServer
    from broker.config import BrokerConfig
    from broker.service import BrokerService
    from broker.topic.topic import Topic

Json = dict[str, Any]

WINDOW_SECONDS: Final = 60.0
_OF_BOOKIE: Final = "Of the bookie in this process"
_QUANTILES: Final = (0.5, 0.95, 0.99, 0.999, 0.9999, 1.0)
_LATENCY_FAMILIES: Final = (
    "pulsar_storage_write_latency",
    "pulsar_storage_ledger_write_latency",
    "pulsar_add_entry_latency",
)


@final
class MetricsSource:
    """Reads the broker's state when asked; `run` closes the minutes of the histograms."""

    def __init__(
        self,
        config: BrokerConfig,
        service: BrokerService,
        bookie: Bookie | None,
        version: str,
        bookie_server: BookieServer | None = None,
    ) -> None:
        self._config = config
        self._service = service
        self._bookie = bookie
        self._version = version
        self._bookie_server = bookie_server
        self._windows: dict[Topic, MinuteCounts] = {}
        self._cluster = {"cluster": config.clusterName}

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Close a minute every minute, until cancelled."""
        task_status.started()
        while True:
            await trio.sleep(WINDOW_SECONDS)
            self.close_minute()

    def close_minute(self) -> None:
        """What was counted since the last call is what is exported until the next."""
        windows: dict[Topic, MinuteCounts] = {}
        for topic in self._service.topics.values():
            if isinstance(topic, PersistentTopic):
                window = self._windows.get(topic) or MinuteCounts()
                window.close(_numbers(topic, _delivered(topic)))
                windows[topic] = window
        self._windows = windows

    def exposition(self) -> str:
        """The whole page."""
        page = Page()
        version = label_text({**self._cluster, "version": self._version})
        page.add("pulsar_version_info", "gauge", "Version of the broker", version, 1)
        self._broker(page)
        by_topic = self._config.exposeTopicLevelMetricsInPrometheus
        by_consumer = by_topic and self._config.exposeConsumerLevelMetricsInPrometheus
        by_namespace: dict[str, list[tuple[Topic, Json]]] = defaultdict(list)
        for topic in list(self._service.topics.values()):
            stats = topic_stats(topic, "", publishers=False, consumers=by_consumer)
            by_namespace[topic.name.namespace_name].append((topic, stats))
        for namespace_name, topics in sorted(by_namespace.items()):
            labels = {**self._cluster, "namespace": namespace_name}
            page.add("pulsar_topics_count", "gauge", "Topics", label_text(labels), len(topics))
            if by_topic:
                for topic, stats in topics:
                    self._topic(page, {**labels, "topic": topic.name.full}, [(topic, stats)])
            else:
                self._topic(page, labels, topics)
        if self._bookie is not None:
            _bookie(page, self._bookie)
        if self._bookie_server is not None:
            for name, kind, help_text, value in self._bookie_server.statistics.series():
                page.add(name, kind, help_text, "", value)
        return page.text()

    def _broker(self, page: Page) -> None:
        labels = label_text(self._cluster)
        service = self._service
        page.add("pulsar_active_connections", "gauge", "Connections", labels, len(service.sessions))
        page.add("pulsar_broker_topics_count", "gauge", "Topics", labels, len(service.topics))
        counts = [0] * (len(LATENCY_NAMES) + 1)
        seconds = 0.0
        for topic in service.topics.values():
            if isinstance(topic, PersistentTopic):
                seconds += topic.publish_times.sum_seconds
                for index, count in enumerate(topic.publish_times.counts()):
                    counts[index] += count
        name = "pulsar_broker_publish_latency"
        lines = page.family(name, "summary", "Milliseconds until a message is durable")
        for fraction in _QUANTILES:
            quantile_labels = label_text({**self._cluster, "quantile": str(fraction)})
            value = quantile(counts, LATENCY_LIMITS_MS, fraction)
            lines.append(f"{name}{quantile_labels} {value}")
        lines.append(f"{name}_count{labels} {sum(counts)}")
        lines.append(f"{name}_sum{labels} {seconds * 1000}")

    def _topic(self, page: Page, labels: dict[str, str], topics: list[tuple[Topic, Json]]) -> None:
        """Series of one topic, or sums over the topics of a namespace."""
        text = label_text(labels)
        single = len(topics) == 1 and "topic" in labels
        for series in TOPIC_SERIES:
            if single or series.name in SUMMED:
                value = sum(stats[series.field] for _, stats in topics)
                page.add(series.name, series.kind, series.help_text, text, value)
        backlog = sum(
            each["msgBacklog"] for _, stats in topics for each in stats["subscriptions"].values()
        )
        page.add("pulsar_msg_backlog", "gauge", "Messages not acknowledged", text, backlog)
        producers = sum(len(topic.access.producers) for topic, _ in topics)
        consumers = sum(topic.consumer_count() for topic, _ in topics)
        subscriptions = sum(len(topic.subscriptions) for topic, _ in topics)
        page.add("pulsar_producers_count", "gauge", "Producers", text, producers)
        page.add("pulsar_consumers_count", "gauge", "Consumers", text, consumers)
        page.add("pulsar_subscriptions_count", "gauge", "Subscriptions", text, subscriptions)
        for direction in ("rate_in", "rate_out", "backlog"):
            name = f"pulsar_replication_{direction}"
            page.add(name, "gauge", "There is no replication", text, 0)
        self._histograms(page, text, topics)
        if single:
            self._subscriptions(page, labels, topics[0][1])
            add_series(page, labels, topics[0][0])

    def _histograms(self, page: Page, labels: str, topics: list[tuple[Topic, Json]]) -> None:
        total = [0.0] * (len(LATENCY_NAMES) + 2 + len(SIZE_NAMES) + 2 + 2)
        for topic, stats in topics:
            if isinstance(topic, PersistentTopic):
                numbers = _numbers(topic, stats["msgOutCounter"])
                window = self._windows.get(topic)
                last = window.last(numbers) if window is not None else numbers
                total = [a + b for a, b in zip(total, last, strict=True)]
        latency_end = len(LATENCY_NAMES) + 1
        size_end = latency_end + len(SIZE_NAMES) + 1
        latency, sizes = total[:latency_end], total[latency_end:size_end]
        latency_sum, size_sum, entries, delivered = total[size_end:]
        for family in _LATENCY_FAMILIES:
            names = [f"{family}_le_{name}" for name in LATENCY_NAMES] + [f"{family}_overflow"]
            _add_buckets(page, labels, names, latency, family, latency_sum * 1000)
        names = [f"pulsar_entry_size_le_{name}" for name in (*SIZE_NAMES, "overflow")]
        _add_buckets(page, labels, names, sizes, "pulsar_entry_size", size_sum)
        per_second = 1 / WINDOW_SECONDS
        page.add(
            "pulsar_storage_write_rate",
            "gauge",
            "Entries per second stored",
            labels,
            entries * per_second,
        )
        page.add(
            "pulsar_storage_read_rate",
            "gauge",
            "Messages per second read for delivery, from cache or storage",
            labels,
            max(0.0, delivered) * per_second,
        )

    def _subscriptions(self, page: Page, labels: dict[str, str], stats: Json) -> None:
        for name, subscription in stats["subscriptions"].items():
            own = {**labels, "subscription": name}
            text = label_text(own)
            for series in SUBSCRIPTION_SERIES:
                value = subscription[series.field]
                page.add(series.name, series.kind, series.help_text, text, _as_number(value))
            page.add(
                "pulsar_subscription_consumers_count",
                "gauge",
                "Consumers",
                text,
                subscription["consumersCount"],
            )
            for consumer in subscription["consumers"]:
                consumer_text = label_text({**own, "consumer_name": consumer["consumerName"]})
                for series in CONSUMER_SERIES:
                    value = _as_number(consumer[series.field])
                    page.add(series.name, series.kind, series.help_text, consumer_text, value)


def _numbers(topic: PersistentTopic, delivered: int) -> list[float]:
    """Everything about a topic that only grows, in one row for its window."""
    return [
        *topic.publish_times.counts(),
        *topic.entry_sizes.counts(),
        topic.publish_times.sum_seconds,
        topic.entry_sizes.size_bytes,
        topic.ledger.appender.entries_added,
        delivered,
    ]


def _delivered(topic: Topic) -> int:
    """`msgOutCounter` of its statistics."""
    subscriptions = topic.subscriptions.values()
    return topic.messages_out_before + sum(
        subscription.statistics().messages_out for subscription in subscriptions
    )


def _add_buckets(
    page: Page, labels: str, names: list[str], counts: list[float], family: str, total: float
) -> None:
    for name, count in zip(names, counts, strict=True):
        page.add(name, "gauge", "In this range, within the last minute", labels, count)
    page.add(f"{family}_count", "gauge", "Within the last minute", labels, sum(counts))
    page.add(f"{family}_sum", "gauge", "Within the last minute", labels, total)


def _bookie(page: Page, bookie: Bookie) -> None:
    statistics = bookie.statistics()
    histograms = statistics.histograms()
    counted = {f"{name}_count" for name, _ in histograms}
    single = [
        *statistics.series(),
        ("bookie_read_cache_hits", statistics.read_cache_hits),
        ("bookie_read_cache_misses", statistics.read_cache_misses),
    ]
    for name, value in single:
        if name not in counted:
            page.add(name, "gauge", _OF_BOOKIE, "", value)
    for name, histogram in histograms:
        lines = page.family(name, "summary", f"Milliseconds. {_OF_BOOKIE}")
        for fraction in _QUANTILES:
            labels = label_text({"success": "true", "quantile": str(fraction)})
            value = quantile(histogram.counts, LATENCY_BUCKETS_MS, fraction)
            lines.append(f"{name}{labels} {value}")
        lines.append(f"{name}_count {histogram.count}")
        lines.append(f"{name}_sum {histogram.sum_seconds * 1000}")


def _as_number(value: float | bool) -> float:
    return int(value) if isinstance(value, bool) else value
