"""Periodic work on topics: rates, idle topics, snapshots.

There is one task of each kind for all topics together, so an idle topic costs no task and no timer.
A failure for one topic is logged with its name. The other topics are still served, and the failed
one is tried again in the next round.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, final

import structlog
import trio

from broker.slices import STEPS_PER_SLICE, in_slices
from broker.topic.failures import told
from broker.topic.persistent import PersistentTopic
from protocol.errors import BrokerError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from broker.subscription.api import Subscription
    from broker.topic.dedup_store import DedupStore
    from broker.topic.services import TopicServices
    from broker.topic.topic import Topic

log = structlog.get_logger()

SNAPSHOT_CHECK_SECONDS = 10.0
ORPHAN_CHECK_SECONDS = 120.0
"""Longer than the position of a reader is kept after a seek."""


class Loaded(Protocol):
    """The topics of a broker, as the timers see them."""

    @property
    def topics(self) -> Mapping[str, Topic]:
        """The topics in memory, by full name."""

    async def collect_idle(self, topic: Topic) -> None:
        """Delete a topic that has been unused for long enough."""


@final
class Housekeeping:
    """The timers of all topics."""

    def __init__(self, loaded: Loaded, services: TopicServices) -> None:
        self._loaded = loaded
        self._services = services

    async def run(self) -> None:
        """Run all timers until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._update_rates)
            nursery.start_soon(self._write_dedup_snapshots)
            nursery.start_soon(self._drop_orphans)
            if self._services.config.brokerDeleteInactiveTopicsEnabled:
                nursery.start_soon(self._collect_idle_topics)

    async def _update_rates(self) -> None:
        services = self._services
        seconds = services.config.statsUpdateFrequencyInSecs
        before = services.clock.now()
        while True:
            await trio.sleep(seconds)
            now = services.clock.now()
            await in_slices(self._rate_steps(max(now - before, 0.001), now))
            before = now

    def _rate_steps(self, seconds: float, now: float) -> Iterator[None]:
        for topic in list(self._loaded.topics.values()):
            try:
                yield from topic.update_rates(seconds, now)
            except Exception as error:
                log.error("cannot update rates", topic=topic.name.full, **told(error))
            yield

    async def _write_dedup_snapshots(self) -> None:
        while True:
            await trio.sleep(SNAPSHOT_CHECK_SECONDS)
            for number, topic in enumerate(list(self._loaded.topics.values()), 1):
                if isinstance(topic, PersistentTopic) and topic.dedup is not None:
                    await self._snapshot(topic, topic.dedup)
                if number % STEPS_PER_SLICE == 0:
                    await trio.lowlevel.checkpoint()

    async def _snapshot(self, topic: PersistentTopic, dedup: DedupStore) -> None:
        try:
            dedup.forget_inactive(set(topic.access.producers))
            if dedup.wants_snapshot and not topic.closing:
                await dedup.snapshot()
        except BrokerError as error:
            log.warning(
                "cannot keep the deduplication state; a restart replays more",
                topic=topic.name.full,
                error=str(error),
            )
        except Exception as error:
            log.error("cannot keep the deduplication state", topic=topic.name.full, exc_info=error)

    async def _drop_orphans(self) -> None:
        """Close non-durable subscriptions that no consumer ever reached, because the connection
        ended while the subscription was being opened."""
        empty: set[Subscription] = set()
        while True:
            await trio.sleep(ORPHAN_CHECK_SECONDS)
            seen: set[Subscription] = set()
            await in_slices(self._orphan_steps(empty, seen))
            empty = seen

    def _orphan_steps(self, empty: set[Subscription], seen: set[Subscription]) -> Iterator[None]:
        for topic in list(self._loaded.topics.values()):
            try:
                self._drop_orphans_of(topic, empty, seen)
            except Exception as error:
                log.error("cannot drop orphans", topic=topic.name.full, **told(error))
            yield

    def _drop_orphans_of(
        self, topic: Topic, empty: set[Subscription], seen: set[Subscription]
    ) -> None:
        for subscription in list(topic.subscriptions.values()):
            if subscription.durable or subscription.consumers:
                continue
            if subscription in empty:
                topic.on_subscription_abandoned(subscription)
            else:
                seen.add(subscription)

    async def _collect_idle_topics(self) -> None:
        services = self._services
        config = services.config
        interval = config.brokerDeleteInactiveTopicsFrequencySeconds
        idle_seconds = config.brokerDeleteInactiveTopicsMaxInactiveDurationSeconds
        if idle_seconds < 0:
            idle_seconds = interval
        while True:
            await trio.sleep(interval)
            now = services.clock.now()
            for number, topic in enumerate(list(self._loaded.topics.values()), 1):
                if number % STEPS_PER_SLICE == 0:
                    await trio.lowlevel.checkpoint()
                if topic.name.is_system:
                    continue
                try:
                    idle = topic.is_idle() and now - topic.active_at >= idle_seconds
                    if idle and not self._is_retained(topic, now):
                        await self._loaded.collect_idle(topic)
                except Exception as error:
                    log.error("cannot collect idle topic", topic=topic.name.full, **told(error))

    def _is_retained(self, topic: Topic, now: float) -> bool:
        """Whether the retention policy keeps messages although there is no subscription."""
        policies = topic.policies.effective
        minutes, megabytes = policies.retention_minutes, policies.retention_megabytes
        if not topic.holds_messages() or minutes == 0 or megabytes == 0:
            return False
        return minutes < 0 or now - topic.active_at < minutes * 60
