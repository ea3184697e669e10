"""The load of this broker: the resources of its process, and the traffic of its topics."""

from __future__ import annotations

import os
import resource
from typing import TYPE_CHECKING, Final, NamedTuple, final

from broker.cluster.load import Resources
from broker.cluster.records import BundleLoad, Traffic, Usage

if TYPE_CHECKING:
    from collections.abc import Iterator

    from broker.topics.service import BrokerService
    from broker.topics.topic.topic import Topic
    from protocol.topic_name import TopicName
    from runtime.clock import Clock

_MEGABYTE: Final = 1024 * 1024
RATE_WINDOW_SECONDS_MIN: Final = 1.0


class _Delivered(NamedTuple):
    """The deliveries of a topic's subscriptions up to one time."""

    at: float
    messages: int
    size_bytes: int
    rates: tuple[float, float]
    """Messages and bytes per second before."""


@final
class ProcessLoad:
    """A LoadSource. Processors are counted since the last reading; the network is not measured."""

    def __init__(self, service: BrokerService, clock: Clock) -> None:
        self._service = service
        self._clock = clock
        self._read_at = clock.now()
        self._cpu_seconds = _cpu_seconds()
        page = os.sysconf("SC_PAGE_SIZE")
        self._page_bytes = page
        self._memory_megabytes = os.sysconf("SC_PHYS_PAGES") * page / _MEGABYTE
        self._usage = 0.0
        self._delivered: dict[str, _Delivered] = {}
        """By the full names of topics. Topics run compiled, and cannot be referred to weakly then.
        """

    def resources(self) -> Resources:
        """See LoadSource."""
        now, cpu = self._clock.now(), _cpu_seconds()
        if now > self._read_at:
            self._usage = 100.0 * (cpu - self._cpu_seconds) / (now - self._read_at)
            self._read_at, self._cpu_seconds = now, cpu
        processors = len(os.sched_getaffinity(0))
        return Resources(
            cpu=Usage(self._usage, 100.0 * processors),
            memory=Usage(self._resident_megabytes(), self._memory_megabytes),
        )

    def _resident_megabytes(self) -> float:
        with open("/proc/self/statm", encoding="ascii") as statm:
            return int(statm.read().split()[1]) * self._page_bytes / _MEGABYTE

    def topics(self) -> Iterator[tuple[TopicName, BundleLoad]]:
        """See LoadSource. Rates of delivery are the mean since the last reading of a topic."""
        now = self._clock.now()
        topics = self._service.topics
        self._delivered = {name: each for name, each in self._delivered.items() if name in topics}
        for topic in list(topics.values()):
            if not topic.closing:
                yield topic.name, self._load_of(topic, now)

    def _load_of(self, topic: Topic, now: float) -> BundleLoad:
        messages = size_bytes = consumers = 0
        for subscription in topic.subscriptions.values():
            delivered = subscription.delivered()
            messages += delivered[0]
            size_bytes += delivered[1]
            consumers += len(subscription.consumers)
        before = self._delivered.get(topic.name.full)
        if before is None or before.at >= now - RATE_WINDOW_SECONDS_MIN:
            rates = (0.0, 0.0) if before is None else before.rates
        else:
            seconds = now - before.at
            # A subscription that was deleted meanwhile took its counts with it, as did a topic that
            # was closed and loaded again.
            rates = (
                max(0, messages - before.messages) / seconds,
                max(0, size_bytes - before.size_bytes) / seconds,
            )
        if before is None or rates is not before.rates:
            self._delivered[topic.name.full] = _Delivered(now, messages, size_bytes, rates)
        published = topic.published
        traffic = Traffic(
            published.messages_per_second, rates[0], published.bytes_per_second, rates[1]
        )
        return BundleLoad(traffic, 1, len(topic.access.producers), consumers)


def _cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
