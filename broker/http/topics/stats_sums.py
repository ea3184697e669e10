"""The fields of statistics that are put together over the partitions of a topic. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from broker.limits.throttled import throttled_json

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


def with_oldest(total: Json, parts: Sequence[Json]) -> Json:
    """The same with the oldest message of all partitions, and whose it is."""
    oldest = max(parts, key=lambda fields: int(fields.get(_AGE, -1)), default={})
    others = {name: value for name, value in total.items() if name not in (_AGE, _WHOSE)}
    return others | {name: oldest[name] for name in (_AGE, _WHOSE) if name in oldest}
