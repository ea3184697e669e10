"""The Prometheus page of one broker and its bookie, made from live state on request.

It is collected and sent in slices of a bounded number of rows, so that a broker with very many
topics serves its clients meanwhile. The rows of one page show different instants; each row shows
one instant.

With `exposeTopicLevelMetricsInPrometheus` there is a set of series per topic and subscription,
otherwise their sums per namespace. Series per consumer are off by default: a topic may have very
many. Histograms are Pulsar's (see `histograms`): counts of the last full minute.
"""

from __future__ import annotations

import weakref
from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final, final

import trio

from bookie.metrics import add_bookie_series
from broker.admin.topic_json import TopicStats, consumer_json
from broker.histograms import (
    LATENCY_LIMITS_MS,
    LATENCY_NAMES,
    SIZE_NAMES,
    MinuteCounts,
)
from broker.metrics.authentication_series import add_authentication_series
from broker.metrics.backlog_series import add_check_durations, add_evictions, evictions_of
from broker.metrics.cache_series import CacheSeries
from broker.metrics.names import (
    CONSUMER_SERIES,
    SUBSCRIPTION_SERIES,
    SUMMED,
    THROTTLED_SERIES,
    TOPIC_SERIES,
)
from broker.metrics.subscription_series import add_series
from broker.slices import in_slices
from web.prometheus import Page, label_text, quantile
from web.stall_series import add_stall_series

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from bookie.bookie import Bookie
    from bookie.net.server import BookieServer
    from broker.admin.topic_json import SubscriptionRow
    from broker.config import BrokerConfig
    from broker.service import BrokerService
    from broker.topic.storage import StoredCounts
    from broker.topic.topic import Topic
    from runtime.watchdog import LoopWatchdog
    from security.authentication.counts import AuthenticationCounts
    from security.handshakes import Handshakes

Json = dict[str, Any]

WINDOW_SECONDS: Final = 60.0
STEPS_PER_SLICE: Final = 4
"""All series of a topic take 0.13 ms, those of a subscription as much."""
PAGES_MAX: Final = 4
"""Slow readers keep their page. This bounds the memory of all pages (15 MB for 10,000 topics)."""
_QUANTILES: Final = (0.5, 0.95, 0.99, 0.999, 0.9999, 1.0)
_LATENCY_FAMILIES: Final = (
    "pulsar_storage_write_latency",
    "pulsar_storage_ledger_write_latency",
    "pulsar_add_entry_latency",
)


@final
class MetricsSource:
    """Reads the broker's state on request. `run` closes the minutes of the histograms."""

    def __init__(
        self,
        config: BrokerConfig,
        service: BrokerService,
        bookie: Bookie | None,
        version: str,
        bookie_server: BookieServer | None = None,
        handshakes: Mapping[str, Handshakes] | None = None,
        authentication: AuthenticationCounts | None = None,
        watchdog: LoopWatchdog | None = None,
    ) -> None:
        """`handshakes`: those of the ports with TLS, by the keys of the ports. `authentication`,
        `watchdog`: None: it is off."""
        self._watchdog = watchdog
        self._handshakes = handshakes or {}
        self._authentication = authentication
        self._config = config
        self._service = service
        self._bookie = bookie
        self._version = version
        self._bookie_server = bookie_server
        self._windows: dict[Topic, MinuteCounts] = {}
        self._cache = CacheSeries(service.factory.cache)
        self._cluster = {"cluster": config.clusterName}
        self._collecting = trio.Lock()
        self._pages_begun = 0
        self._pages: weakref.WeakSet[Page] = weakref.WeakSet()
        """Pages that are being read."""
        self._newest: weakref.ref[Page] | None = None
        self._newest_number = 0

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Close a minute every minute, until cancelled."""
        task_status.started()
        while True:
            await trio.sleep(WINDOW_SECONDS)
            await self.close_minute()

    async def close_minute(self) -> None:
        """The counts since the last call are exported until the next."""
        self._cache.close_minute()
        windows: dict[Topic, MinuteCounts] = {}
        await in_slices(self._close_windows(windows))
        self._windows = windows

    def _close_windows(self, windows: dict[Topic, MinuteCounts]) -> Iterator[None]:
        for topic in list(self._service.topics.values()):
            stored = topic.stored_counts()
            if stored is not None:
                window = self._windows.get(topic) or MinuteCounts()
                window.close(_numbers(stored, _delivered(topic)))
                windows[topic] = window
            yield

    async def page(self) -> Page:
        """The whole page, of instants after this call, to be read once. Concurrent callers get the
        same page. While PAGES_MAX pages are being read, it is the newest of these."""
        asked = self._pages_begun
        async with self._collecting:
            newest = self._newest() if self._newest is not None else None
            fresh = asked < self._newest_number or len(self._pages) >= PAGES_MAX
            if newest is not None and fresh and not newest.is_used_up:
                newest.readers += 1
                return newest
            self._pages_begun += 1
            number = self._pages_begun
            page = Page()
            await in_slices(self._collect(page), STEPS_PER_SLICE)
            self._newest, self._newest_number = weakref.ref(page), number
            self._pages.add(page)
            page.readers += 1
            return page

    def _collect(self, page: Page) -> Iterator[None]:
        """Add everything. Each step is one topic or subscription."""
        version = label_text({**self._cluster, "version": self._version})
        page.add("pulsar_version_info", "gauge", "Version of the broker", version, 1)
        yield from self._broker(page)
        by_topic = self._config.exposeTopicLevelMetricsInPrometheus
        sums: dict[str, _Row] = defaultdict(_Row)
        for topic in list(self._service.topics.values()):
            row = _Row()
            yield from self._topic(page if by_topic else None, topic, row)
            sums[topic.name.namespace_name].add(row)
        for namespace_name, row in sorted(sums.items()):
            labels = label_text({**self._cluster, "namespace": namespace_name})
            page.add("pulsar_topics_count", "gauge", "Topics", labels, row.topics)
            if not by_topic:
                _add_row(page, labels, row, all_series=False)
        if self._bookie is not None:
            add_bookie_series(page, self._bookie, self._bookie_server)

    def _broker(self, page: Page) -> Iterator[None]:
        labels = label_text(self._cluster)
        service = self._service
        page.add(
            "pulsar_active_connections",
            "gauge",
            "Connections",
            labels,
            len(service.connections.open),
        )
        for key, of_port in self._handshakes.items():
            port = label_text({**self._cluster, "port": key})
            for name, kind, help_text, count in of_port.series():
                page.add(name, kind, help_text, port, count)
        if self._authentication is not None:
            add_authentication_series(page, self._authentication, self._cluster)
        add_stall_series(page, self._watchdog, self._cluster)
        page.add("pulsar_broker_topics_count", "gauge", "Topics", labels, len(service.topics))
        self._cache.add(page, service.factory.open_count, self._cluster, WINDOW_SECONDS)
        add_check_durations(page, service.backlog_checks.durations, self._cluster)
        counts = [0] * (len(LATENCY_NAMES) + 1)
        seconds = 0.0
        evictions = (0, 0)
        for topic in list(service.topics.values()):
            stored = topic.stored_counts()
            if stored is not None:
                by_size, by_age = evictions_of(stored)
                evictions = (evictions[0] + by_size, evictions[1] + by_age)
                seconds += stored.latency_seconds
                for index, count in enumerate(stored.latencies):
                    counts[index] += count
            yield
        add_evictions(page, "pulsar_broker_storage", self._cluster, evictions)
        name = "pulsar_broker_publish_latency"
        lines = page.family(name, "summary", "Milliseconds until a message is durable")
        for fraction in _QUANTILES:
            quantile_labels = label_text({**self._cluster, "quantile": str(fraction)})
            value = quantile(counts, LATENCY_LIMITS_MS, fraction)
            lines.append(f"{name}{quantile_labels} {value}")
        lines.append(f"{name}_count{labels} {sum(counts)}")
        lines.append(f"{name}_sum{labels} {seconds * 1000}")

    def _topic(self, page: Page | None, topic: Topic, row: _Row) -> Iterator[None]:
        """Fill the row of a topic, and add its series to the page if there is one."""
        by_consumer = page is not None and self._config.exposeConsumerLevelMetricsInPrometheus
        full = topic.name.full
        labels = {**self._cluster, "namespace": topic.name.namespace_name, "topic": full}
        stats = TopicStats(topic, "", publishers=False, consumers=by_consumer)
        row.topics = 1
        for subscription in stats.subscriptions():
            if subscription is not None:
                row.backlog += subscription.fields["msgBacklog"]
                row.subscriptions += 1
                if page is not None:
                    yield from _subscription(page, labels, subscription)
            yield
        row.fields = stats.fields()
        row.producers = len(topic.access.producers)
        row.consumers = topic.consumer_count()
        stored = topic.stored_counts()
        if stored is not None:
            numbers = _numbers(stored, row.fields["msgOutCounter"])
            window = self._windows.get(topic)
            row.histograms = window.last(numbers) if window is not None else numbers
        if page is not None:
            _add_row(page, label_text(labels), row, all_series=True)
            if stored is not None:
                add_evictions(page, "pulsar_storage", labels, evictions_of(stored))
        yield


@final
class _Row:
    """Numbers of one topic, or their sums over the topics of a namespace."""

    def __init__(self) -> None:
        self.topics = 0
        self.fields: Json = {}
        self.backlog = 0
        self.producers = 0
        self.consumers = 0
        self.subscriptions = 0
        self.histograms = [0.0] * (len(LATENCY_NAMES) + 2 + len(SIZE_NAMES) + 2 + 2)

    def add(self, other: _Row) -> None:
        """Add up the fields in `SUMMED`."""
        self.topics += other.topics
        for series in TOPIC_SERIES:
            if series.name in SUMMED:
                field = series.field
                self.fields[field] = self.fields.get(field, 0) + other.fields[field]
        self.backlog += other.backlog
        self.producers += other.producers
        self.consumers += other.consumers
        self.subscriptions += other.subscriptions
        self.histograms = [a + b for a, b in zip(self.histograms, other.histograms, strict=True)]


def _add_row(page: Page, labels: str, row: _Row, *, all_series: bool) -> None:
    """Series of one topic, or of a namespace."""
    for series in TOPIC_SERIES:
        if all_series or series.name in SUMMED:
            page.add(series.name, series.kind, series.help_text, labels, row.fields[series.field])
    page.add("pulsar_msg_backlog", "gauge", "Messages not acknowledged", labels, row.backlog)
    page.add("pulsar_producers_count", "gauge", "Producers", labels, row.producers)
    page.add("pulsar_consumers_count", "gauge", "Consumers", labels, row.consumers)
    page.add("pulsar_subscriptions_count", "gauge", "Subscriptions", labels, row.subscriptions)
    for direction in ("rate_in", "rate_out", "backlog"):
        name = f"pulsar_replication_{direction}"
        page.add(name, "gauge", "There is no replication", labels, 0)
    _add_histograms(page, labels, row.histograms)


def _add_histograms(page: Page, labels: str, total: list[float]) -> None:
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


def _subscription(page: Page, labels: dict[str, str], row: SubscriptionRow) -> Iterator[None]:
    labels = {**labels, "subscription": row.name}
    text = label_text(labels)
    for series in SUBSCRIPTION_SERIES:
        value = _as_number(row.fields[series.field])
        page.add(series.name, series.kind, series.help_text, text, value)
    for level, times in row.statistics.throttled.items():
        reason = label_text({**labels, "reason": level})
        for series, value in zip(THROTTLED_SERIES, times, strict=True):
            page.add(series.name, series.kind, series.help_text, reason, value)
    name, count = "pulsar_subscription_consumers_count", row.fields["consumersCount"]
    page.add(name, "gauge", "Consumers", text, count)
    add_series(page, labels, row.subscription.series(row.statistics))
    for each in row.consumers:
        consumer = consumer_json(each)
        consumer_text = label_text({**labels, "consumer_name": consumer["consumerName"]})
        for series in CONSUMER_SERIES:
            value = _as_number(consumer[series.field])
            page.add(series.name, series.kind, series.help_text, consumer_text, value)
        yield


def _numbers(stored: StoredCounts, delivered: int) -> list[float]:
    """All counters of a topic, in one row for its window."""
    return [
        *stored.latencies,
        *stored.sizes,
        stored.latency_seconds,
        stored.size_bytes,
        stored.entries,
        delivered,
    ]


def _delivered(topic: Topic) -> int:
    """`msgOutCounter` of its statistics."""
    subscriptions = topic.subscriptions.values()
    return topic.messages_out_before + sum(
        subscription.delivered()[0] for subscription in subscriptions
    )


def _add_buckets(
    page: Page, labels: str, names: list[str], counts: list[float], family: str, total: float
) -> None:
    for name, count in zip(names, counts, strict=True):
        page.add(name, "gauge", "In this range, within the last minute", labels, count)
    page.add(f"{family}_count", "gauge", "Within the last minute", labels, sum(counts))
    page.add(f"{family}_sum", "gauge", "Within the last minute", labels, total)


def _as_number(value: float | bool) -> float:
    return int(value) if isinstance(value, bool) else value
