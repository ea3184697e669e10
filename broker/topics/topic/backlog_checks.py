"""The periodic check of all backlogs against their quotas.

A topic over its size is noticed when messages are published (`backlog_keeper`); the check finds
those whose age matters, or whose positions moved back. A failure for one topic is logged with its
name, and the topic is checked again in the next round.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import structlog
import trio

from broker.ground.slices import for_each
from broker.topics.topic.errors import told
from runtime.durations import Durations

if TYPE_CHECKING:
    from broker.topics.topic.housekeeping import Loaded
    from broker.topics.topic.services import TopicServices
    from broker.topics.topic.topic import Topic

log = structlog.get_logger()

CHECKED_AT_ONCE: Final = 8
"""Topics whose oldest message may be read from storage at the same time."""
_DURATIONS_S: Final = (5.0, 10.0, 30.0, 60.0, 300.0)
"""Bounds of Pulsar's histogram."""


@final
class BacklogChecks:
    """See the module docstring."""

    def __init__(self, loaded: Loaded, services: TopicServices) -> None:
        self._loaded = loaded
        self._services = services
        self.durations = Durations(_DURATIONS_S)

    async def run(self) -> None:
        """Check until cancelled."""
        config = self._services.config
        while config.backlogQuotaCheckEnabled:
            await trio.sleep(config.backlogQuotaCheckIntervalInSeconds)
            await self.check()

    async def check(self) -> None:
        """Check all loaded topics once."""
        clock = self._services.clock
        start = clock.now()
        await for_each(list(self._loaded.topics.values()), self._check_topic, CHECKED_AT_ONCE)
        self.durations.add(clock.now() - start)

    async def _check_topic(self, topic: Topic) -> None:
        if topic.closing:
            return
        try:
            await topic.check_quotas()
        except Exception as error:
            if not topic.closing:
                log.warning("cannot check the backlog", topic=topic.name.full, **told(error))
