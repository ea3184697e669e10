"""Bounds the delayed messages that the subscriptions of a broker hold in memory. Pure.

Each takes about 330 bytes, in each subscription that has to wait for it. At the bound of its topic,
or of the broker, a subscription reads no further: what comes later waits in storage, in its order,
and nothing is lost. It reads on when entries have become due and the bound is left by a sixteenth,
so that it does not alternate quickly. `RESERVE` entries are free for each subscription, so that
none stops only because of the delayed messages of others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import structlog

if TYPE_CHECKING:
    from collections.abc import Callable

log: Final = structlog.get_logger()

RESERVE: Final = 1_000
_GAP_SHARE: Final = 16


@final
class DelayedBudget:
    """Invariant: `entries` is the sum over the topics."""

    __slots__ = (
        "_entries_max",
        "_is_exhausted",
        "_topic_entries_max",
        "_topics",
        "_waiting",
        "entries",
        "reserve",
    )

    def __init__(self, entries_max: int, topic_entries_max: int, reserve: int = RESERVE) -> None:
        self._entries_max = entries_max
        self._topic_entries_max = topic_entries_max
        self.reserve = reserve
        """Entries that a subscription may have whatever others have."""
        self.entries = 0
        self._topics: dict[str, int] = {}
        self._waiting: dict[str, dict[object, Callable[[], None]]] = {}
        self._is_exhausted = False
        """A subscription waits because the broker is at its bound."""

    def added(self, topic: str) -> None:
        """A subscription of the topic holds one more."""
        self.entries += 1
        self._topics[topic] = self._topics.get(topic, 0) + 1

    def removed(self, topic: str, count: int) -> None:
        """A subscription of the topic holds so many less. Those that can read on are called."""
        if not count:
            return
        self.entries -= count
        left = self._topics[topic] - count
        if left:
            self._topics[topic] = left
        else:
            del self._topics[topic]
        if self._waiting:
            self._call_waiting(topic)

    def _call_waiting(self, topic: str) -> None:
        topics = [topic]
        enough = self._topic_entries_max - self._topic_entries_max // _GAP_SHARE
        if self._is_exhausted:
            if self.entries > self._entries_max - self._entries_max // _GAP_SHARE:
                return
            self._is_exhausted = False
            topics = list(self._waiting)
            enough = self._topic_entries_max - 1  # They may have waited for the broker alone.
        for each in topics:
            if self._topics.get(each, 0) <= enough:
                for resume in self._waiting.pop(each, {}).values():
                    resume()

    def holds(self, topic: str, held: int) -> str:
        """The key of the bound at which a subscription of the topic is that holds so many; "": it
        may read on."""
        if held < self.reserve:
            return ""
        if self._topics.get(topic, 0) >= self._topic_entries_max:
            return "delayedDeliveryMaxEntriesPerTopic"
        return "delayedDeliveryMaxEntriesPerBroker" if self.entries >= self._entries_max else ""

    def blocks(self, topic: str, key: object, held: int, resume: Callable[[], None]) -> bool:
        """Whether the subscription `key` of the topic, which holds so many, must not read further.
        If so, `resume` is called once when it may again."""
        bound = self.holds(topic, held)
        if not bound:
            return False
        if self.entries >= self._entries_max:
            self._is_exhausted = True
        waiting = self._waiting.get(topic)
        if waiting is None:
            waiting = self._waiting[topic] = {}
            log.warning(
                "delayed messages have reached their bound: no later ones are read until some are"
                " due",
                topic=topic,
                bound=bound,
                entries=self._topics[topic],
                entries_of_broker=self.entries,
            )
        waiting[key] = resume
        return True

    def forget(self, topic: str, key: object) -> None:
        """The subscription is closed, and waits no longer."""
        waiting = self._waiting.get(topic)
        if waiting is not None:
            waiting.pop(key, None)
            if not waiting:
                del self._waiting[topic]
