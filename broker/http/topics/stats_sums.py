"""The fields of statistics that are put together over the partitions of a topic. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from broker.limits.dispatch_budget import throttled_json

if TYPE_CHECKING:
    from collections.abc import Sequence


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
    "msgBacklog",
    "backlogSize",
    "msgBacklogNoDelayed",
    "msgDelayed",
    "msgInReplay",
    "unackedMessages",
    "msgRateExpired",
    "totalMsgExpired",
    "nonContiguousDeletedMessagesRanges",
    *throttled_json({}),
)
_AGE: Final = "oldestBacklogMessageAgeSeconds"
_WHOSE: Final = "oldestBacklogMessageSubscriptionName"
EARLIEST: Final = "earliestMsgPublishTimeInBacklog"
_EARLIEST_OF_TOPIC: Final = "earliestMsgPublishTimeInBacklogs"
_CHUNKS: Final = "msgChunkPublished"
NO_BACKLOG_MS: Final = -1


def earliest(times_ms: Sequence[int]) -> int:
    """The earliest publish time of several backlogs; NO_BACKLOG_MS or 0 (not asked for) are
    none."""
    known = [time_ms for time_ms in times_ms if time_ms > 0]
    return min(known) if known else min(times_ms, default=0)


def with_oldest(total: Json, parts: Sequence[Json]) -> Json:
    """The same with the oldest message of all partitions, whose it is, the earliest publish time,
    and whether any of them has chunks."""
    oldest = max(parts, key=lambda fields: int(fields.get(_AGE, -1)), default={})
    others = {name: value for name, value in total.items() if name not in (_AGE, _WHOSE)}
    if _CHUNKS in total:
        others[_CHUNKS] = any(fields[_CHUNKS] for fields in parts)
        others[_EARLIEST_OF_TOPIC] = earliest([fields[_EARLIEST_OF_TOPIC] for fields in parts])
    return others | {name: oldest[name] for name in (_AGE, _WHOSE) if name in oldest}
