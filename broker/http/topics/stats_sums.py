"""The fields of statistics that are put together over the partitions of a topic. Pure.

Pulsar leaves out of its sums the members of a subscription for which it has no rule, so that they
are 0 or false there. Here times are the latest, and flags hold if they do on any partition.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from broker.limits.dispatch_budget import throttled_json

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Json = dict[str, Any]


ADDED_UP: Final = (
    "msgRateIn",
    "msgThroughputIn",
    "msgRateOut",
    "msgThroughputOut",
    "bytesInCounter",
    "msgInCounter",
    "bytesOutCounter",
    "msgOutCounter",
    "storageSize",
    "backlogSize",
    "waitingPublishers",
    "publishRateLimitedTimes",
    "nonContiguousDeletedMessagesRanges",
    "delayedMessageIndexSizeInBytes",
)
ADDED_UP_OF_SUBSCRIPTIONS: Final = (
    "msgRateOut",
    "msgThroughputOut",
    "bytesOutCounter",
    "msgOutCounter",
    "msgRateRedeliver",
    "messageAckRate",
    "chunkedMessageRate",
    "msgBacklog",
    "backlogSize",
    "msgBacklogNoDelayed",
    "msgDelayed",
    "msgInReplay",
    "unackedMessages",
    "msgRateExpired",
    "totalMsgExpired",
    "consumersCount",
    "drainingHashesCount",
    "drainingHashesClearedTotal",
    "drainingHashesUnackedMessages",
    "nonContiguousDeletedMessagesRanges",
    "delayedMessageIndexSizeInBytes",
    "msgDropRate",
    "messagesDropped",
    *throttled_json({}),
)
_LATEST_OF_SUBSCRIPTIONS: Final = (
    "lastExpireTimestamp",
    "lastConsumedFlowTimestamp",
    "lastConsumedTimestamp",
    "lastAckedTimestamp",
    "lastMarkDeleteAdvancedTimestamp",
)
_ANY_OF_SUBSCRIPTIONS: Final = (
    "blockedSubscriptionOnUnackedMsgs",
    "allowOutOfOrderDelivery",
    "isDurable",
    "isReplicated",
    "durable",
    "replicated",
)
_ACTIVE: Final = "activeConsumerName"
_AGE: Final = "oldestBacklogMessageAgeSeconds"
_WHOSE: Final = "oldestBacklogMessageSubscriptionName"
EARLIEST: Final = "earliestMsgPublishTimeInBacklog"
_EARLIEST_OF_TOPIC: Final = "earliestMsgPublishTimeInBacklogs"
_CHUNKS: Final = "msgChunkPublished"
_PUBLISHED_LAST: Final = "lastPublishTimeStamp"
NO_BACKLOG_MS: Final = -1


def earliest(times_ms: Sequence[int]) -> int:
    """The earliest publish time of several backlogs; NO_BACKLOG_MS or 0 (not asked for) are
    none."""
    known = [time_ms for time_ms in times_ms if time_ms > 0]
    return min(known) if known else min(times_ms, default=0)


_RULES: Final[tuple[tuple[Sequence[str], Callable[[tuple[Any, Any]], Any]], ...]] = (
    (ADDED_UP_OF_SUBSCRIPTIONS, sum),
    (_LATEST_OF_SUBSCRIPTIONS, max),
    (_ANY_OF_SUBSCRIPTIONS, any),
    ((EARLIEST,), earliest),
)


def add_subscription(known: Json, row: Json) -> None:
    """Count the subscription of one more partition, without its consumers, in `known`. The active
    consumer is left out unless it is the same on all partitions."""
    for names, put_together in _RULES:
        for name in names:
            if name in known and name in row:
                known[name] = put_together((known[name], row[name]))
    if known.get(_ACTIVE) != row.get(_ACTIVE):
        known.pop(_ACTIVE, None)


def with_oldest(total: Json, parts: Sequence[Json]) -> Json:
    """The same with the oldest message of all partitions, whose it is, the earliest publish time,
    the time of the last publish, and whether any of them has chunks."""
    oldest = max(parts, key=lambda fields: int(fields.get(_AGE, -1)), default={})
    others = {name: value for name, value in total.items() if name not in (_AGE, _WHOSE)}
    if _CHUNKS in total:
        others[_CHUNKS] = any(fields[_CHUNKS] for fields in parts)
        others[_EARLIEST_OF_TOPIC] = earliest([fields[_EARLIEST_OF_TOPIC] for fields in parts])
    if _PUBLISHED_LAST in total:
        others[_PUBLISHED_LAST] = max(fields[_PUBLISHED_LAST] for fields in parts)
    return others | {name: oldest[name] for name in (_AGE, _WHOSE) if name in oldest}
