"""Periodic work on topics: rates, idle topics, readers that never came.

There is one task of each kind for all topics together, so an idle topic costs no task and no timer.
A failure for one topic is logged with its name. The other topics are still served, and the failed
one is tried again in the next round.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, final

import structlog
import trio

from broker.ground.slices import STEPS_PER_SLICE, in_slices
from broker.topics.topic.errors import told

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from broker.tenancy.policies.effective import EffectivePolicies
    from broker.topics.subscription.api import Subscription
    from broker.topics.topic.services import TopicServices
    from broker.topics.topic.topic import Topic
    from protocol.topic_name import TopicName

log = structlog.get_logger()

ORPHAN_CHECK_SECONDS = 120.0
"""Longer than the position of a reader is kept after a seek."""


class Loaded(Protocol):
    """The topics of a broker, as the timers see them."""

    @property
    def topics(self) -> Mapping[str, Topic]:
        """The topics in memory, by full name."""

    async def collect_idle(self, topic: Topic) -> bool:
        """Delete a topic that has been unused for long enough. Returns whether it is gone."""

    async def collect_partitioned(self, name: TopicName) -> None:
        """Delete the record of a partitioned topic of which no partition is left."""


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
        interval = services.config.brokerDeleteInactiveTopicsFrequencySeconds
        while True:
            await trio.sleep(interval)
            gone = await self._collect_now()
            if services.config.brokerDeleteInactivePartitionedTopicMetadataEnabled:
                for name in gone:
                    await self._loaded.collect_partitioned(name)

    async def _collect_now(self) -> dict[TopicName, None]:
        """Returns the partitioned topics that have lost a partition."""
        now = self._services.clock.now()
        gone: dict[TopicName, None] = {}
        for number, topic in enumerate(list(self._loaded.topics.values()), 1):
            if number % STEPS_PER_SLICE == 0:
                await trio.lowlevel.checkpoint()
            name = topic.name
            try:
                if is_unused(topic, now) and await self._loaded.collect_idle(topic):
                    gone |= {name.partitioned_base: None} if name.is_partition else {}
            except Exception as error:
                log.error("cannot collect idle topic", topic=name.full, **told(error))
        return gone


def is_unused(topic: Topic, now: float) -> bool:
    """Whether its policies say that it is deleted now."""
    policies = topic.policies.effective
    idle = policies.idle
    if not idle.deletes or topic.name.is_system or now - topic.active_at < idle.seconds:
        return False
    return topic.is_idle() and not _is_retained(topic, policies, now)


def _is_retained(topic: Topic, policies: EffectivePolicies, now: float) -> bool:
    """Whether the retention policy keeps messages although there is no subscription."""
    minutes, megabytes = policies.retention_minutes, policies.retention_megabytes
    if not topic.holds_messages() or minutes == 0 or megabytes == 0:
        return False
    return minutes < 0 or now - topic.active_at < minutes * 60
