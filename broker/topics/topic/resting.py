"""Puts topics to rest that were not used for a while.

A topic at rest is loaded, owned and known as before: it takes requests at once, its policies apply,
its statistics say the same, and nothing of it is read again. It has only given up what the next use
makes again within microseconds: dispatchers, readers, caches, and the open ledgers of its cursors,
whose positions go to the metadata store as when the topic is closed.

There is one timer for all topics. It only compares times, in slices; the topics due are put to rest
a few at a time, since each may write a record per cursor.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import structlog
import trio

from broker.ground.slices import for_each, in_slices
from broker.topics.topic.errors import told

if TYPE_CHECKING:
    from collections.abc import Iterator

    from broker.topics.topic.housekeeping import Loaded
    from broker.topics.topic.services import TopicServices
    from broker.topics.topic.topic import Topic

log = structlog.get_logger()

LOOKS: Final = 4
"""In the time after which a topic is put to rest: it comes up to a quarter of it later."""
LOOK_SECONDS_MIN: Final = 1.0
AT_ONCE: Final = 8


@final
class Resting:
    """The timer of all topics."""

    def __init__(self, loaded: Loaded, services: TopicServices) -> None:
        self._loaded = loaded
        self._services = services

    async def run(self) -> None:
        """Look until cancelled. Returns if topics are never put to rest."""
        while seconds := self._services.config.topicRestAfterSeconds:
            await trio.sleep(max(LOOK_SECONDS_MIN, seconds / LOOKS))
            await self.look()

    async def look(self) -> None:
        """Put to rest those that are due."""
        due: list[Topic] = []
        await in_slices(self._find_due(due))
        await for_each(due, self._put_to_rest, AT_ONCE)

    def _find_due(self, due: list[Topic]) -> Iterator[None]:
        now, seconds = self._services.clock.now(), self._services.config.topicRestAfterSeconds
        for topic in list(self._loaded.topics.values()):
            if topic.rest_is_due(now, seconds):
                due.append(topic)
            yield

    async def _put_to_rest(self, topic: Topic) -> None:
        seconds = self._services.config.topicRestAfterSeconds
        if not topic.rest_is_due(self._services.clock.now(), seconds):
            return  # a client has come meanwhile
        try:
            await topic.rest()
        except Exception as error:
            if not topic.closing:
                log.warning("cannot put a topic to rest", topic=topic.name.full, **told(error))
