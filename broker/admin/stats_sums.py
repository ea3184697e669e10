"""The fields of statistics that are summed over the partitions of a topic. Pure."""

from __future__ import annotations

from typing import Final

from broker.subscription.throttled import throttled_json

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
    "nonContiguousDeletedMessagesRanges",
    *throttled_json({}),
)
