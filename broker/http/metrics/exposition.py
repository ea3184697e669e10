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
from broker.ground.histograms import LATENCY_LIMITS_MS, LATENCY_NAMES, MinuteCounts
from broker.ground.slices import in_slices
from broker.http.metrics.authentication_series import add_authentication_series
from broker.http.metrics.backlog_series import (
    add_check_durations,
    add_evictions,
    add_evictions_of_broker,
)
from broker.http.metrics.cache_series import CacheSeries
from broker.http.metrics.rows import (
    WINDOW_SECONDS,
    Row,
    add_row,
    add_subscription,
    numbers_of,
)
from broker.http.topics.topic_json import TopicStats
from web.prometheus import Page, add_stall_series, label_text, quantile

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from bookie.bookie import Bookie
    from bookie.net.server import BookieServer
    from broker.ground.config import BrokerConfig
    from broker.topics.service import BrokerService
    from broker.topics.topic.topic import Topic
    from runtime.watchdog import LoopWatchdog
    from security.authentication.counts import AuthenticationCounts
    from security.handshakes import Handshakes

Json = dict[str, Any]

STEPS_PER_SLICE: Final = 16
"""All series of a topic take 0.03 ms, those of a subscription as much."""
PAGES_MAX: Final = 4
"""Slow readers keep their page. This bounds the memory of all pages."""
_QUANTILES: Final = (0.5, 0.95, 0.99, 0.999, 0.9999, 1.0)


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
                window.close(numbers_of(stored, _delivered(topic)))
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
        sums: dict[str, Row] = defaultdict(Row)
        for topic in list(self._service.topics.values()):
            row = Row()
            yield from self._topic(page if by_topic else None, topic, row)
            of_namespace = sums[topic.name.namespace_name]
            if by_topic:
                of_namespace.topics += 1
            else:
                of_namespace.add(row)
        for namespace_name, row in sorted(sums.items()):
            labels = label_text({**self._cluster, "namespace": namespace_name})
            page.add("pulsar_topics_count", "gauge", "Topics", labels, row.topics)
            if not by_topic:
                add_row(page, labels, row, all_series=False)
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
                evictions = (
                    evictions[0] + stored.evictions_by_size,
                    evictions[1] + stored.evictions_by_age,
                )
                seconds += stored.latency_seconds
                for index, count in enumerate(stored.latencies):
                    counts[index] += count
            yield
        add_evictions_of_broker(page, labels, evictions)
        name = "pulsar_broker_publish_latency"
        lines = page.family(name, "summary", "Milliseconds until a message is durable")
        for fraction in _QUANTILES:
            quantile_labels = label_text({**self._cluster, "quantile": str(fraction)})
            value = quantile(counts, LATENCY_LIMITS_MS, fraction)
            lines.append(f"{name}{quantile_labels} {value}")
        lines.append(f"{name}_count{labels} {sum(counts)}")
        lines.append(f"{name}_sum{labels} {seconds * 1000}")

    def _topic(self, page: Page | None, topic: Topic, row: Row) -> Iterator[None]:
        """Fill the row of a topic, and add its series to the page if there is one."""
        by_consumer = page is not None and self._config.exposeConsumerLevelMetricsInPrometheus
        full = topic.name.full
        labels = {**self._cluster, "namespace": topic.name.namespace_name, "topic": full}
        text = label_text(labels)
        stats = TopicStats(topic, "", publishers=False, consumers=by_consumer)
        row.topics = 1
        for subscription in stats.subscriptions():
            if subscription is not None:
                row.backlog += subscription.fields["msgBacklog"]
                row.subscriptions += 1
                if page is not None:
                    yield from add_subscription(page, labels, text, subscription)
            yield
        row.fields = stats.fields()
        row.producers = len(topic.access.producers)
        row.consumers = topic.consumer_count()
        stored = topic.stored_counts()
        if stored is not None:
            numbers = numbers_of(stored, row.fields["msgOutCounter"])
            window = self._windows.get(topic)
            row.histograms = window.last(numbers) if window is not None else numbers
        if page is not None:
            add_row(page, text, row, all_series=True)
            if stored is not None:
                add_evictions(page, text, stored)
        yield


def _delivered(topic: Topic) -> int:
    """`msgOutCounter` of its statistics."""
    subscriptions = topic.subscriptions.values()
    return topic.messages_out_before + sum(
        subscription.delivered()[0] for subscription in subscriptions
    )
