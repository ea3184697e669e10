"""When the first message of each backlog of a topic was published, which is read from storage."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import trio

from broker.http.topics.stats_sums import NO_BACKLOG_MS

if TYPE_CHECKING:
    from broker.topics.topic.topic import Topic
    from protocol.position import Position


class EarliestTimes(NamedTuple):
    """Publish times, ms since 1970; NO_BACKLOG_MS where there is no backlog."""

    of_subscriptions: dict[str, int]
    """By name."""
    of_topic: int
    """The time of the slowest subscription; 0: the topic has no backlog."""


async def earliest_times(topic: Topic) -> EarliestTimes:
    """One small read for each position at which a backlog begins.

    Raises: BrokerError PersistenceError: storage cannot give an entry now.
    """
    of_subscriptions: dict[str, int] = {}
    times: dict[Position, int] = {}
    for name, subscription in list(topic.subscriptions.items()):
        await trio.lowlevel.checkpoint()
        of_subscriptions[name] = NO_BACKLOG_MS
        mark_delete = subscription.mark_delete_position()
        if mark_delete is None or subscription.backlog_entries <= 0:
            continue
        if mark_delete not in times:
            found = await topic.publish_time_after(mark_delete)
            times[mark_delete] = NO_BACKLOG_MS if found is None else found
        of_subscriptions[name] = times[mark_delete]
    return EarliestTimes(of_subscriptions, times[min(times)] if times else 0)
