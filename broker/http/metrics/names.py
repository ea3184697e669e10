"""Series of topics, subscriptions and consumers: name, type and help in one table.

Names are Pulsar's, from its metrics reference and the dashboards that read them. A value comes from
the field of `TopicStats`/`SubscriptionStats` in the last column, so `/metrics` and `topics stats`
cannot disagree.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Series(NamedTuple):
    """One series that is read from statistics."""

    name: str
    kind: str
    help_text: str
    field: str


TOPIC_SERIES: Final = (
    Series("pulsar_rate_in", "gauge", "Messages per second published", "msgRateIn"),
    Series("pulsar_rate_out", "gauge", "Messages per second delivered", "msgRateOut"),
    Series("pulsar_throughput_in", "gauge", "Bytes per second published", "msgThroughputIn"),
    Series("pulsar_throughput_out", "gauge", "Bytes per second delivered", "msgThroughputOut"),
    Series("pulsar_in_messages_total", "counter", "Messages published", "msgInCounter"),
    Series("pulsar_in_bytes_total", "counter", "Bytes published", "bytesInCounter"),
    Series("pulsar_average_msg_size", "gauge", "Mean size of a message", "averageMsgSize"),
    Series("pulsar_storage_size", "gauge", "Bytes stored, all copies", "storageSize"),
    Series("pulsar_storage_logical_size", "gauge", "Bytes stored, one copy", "storageSize"),
    Series("pulsar_storage_backlog_size", "gauge", "Bytes not acknowledged", "backlogSize"),
    Series("pulsar_storage_backlog_quota_limit", "gauge", "Backlog quota", "backlogQuotaLimitSize"),
    Series(
        "pulsar_storage_backlog_quota_limit_time",
        "gauge",
        "Backlog quota in seconds",
        "backlogQuotaLimitTime",
    ),
    Series(
        "pulsar_storage_backlog_age_seconds",
        "gauge",
        "Age of the oldest message not acknowledged, as of the last check",
        "oldestBacklogMessageAgeSeconds",
    ),
    Series(
        "pulsar_storage_offloaded_size",
        "gauge",
        "Bytes in long-term storage",
        "offloadedStorageSize",
    ),
    Series(
        "pulsar_delayed_message_index_size_bytes",
        "gauge",
        "Memory of the index of delayed messages",
        "delayedMessageIndexSizeInBytes",
    ),
)

SUBSCRIPTION_SERIES: Final = (
    Series("pulsar_subscription_back_log", "gauge", "Messages not acknowledged", "msgBacklog"),
    Series(
        "pulsar_subscription_back_log_no_delayed",
        "gauge",
        "Messages not acknowledged and due",
        "msgBacklogNoDelayed",
    ),
    Series(
        "pulsar_subscription_delayed", "gauge", "Messages whose time has not come", "msgDelayed"
    ),
    Series("pulsar_subscription_in_replay", "gauge", "Messages to be redelivered", "msgInReplay"),
    Series("pulsar_subscription_msg_rate_out", "gauge", "Messages per second", "msgRateOut"),
    Series(
        "pulsar_subscription_msg_throughput_out", "gauge", "Bytes per second", "msgThroughputOut"
    ),
    Series(
        "pulsar_subscription_msg_rate_redeliver",
        "gauge",
        "Redeliveries per second",
        "msgRateRedeliver",
    ),
    Series(
        "pulsar_subscription_msg_ack_rate", "gauge", "Acknowledgements per second", "messageAckRate"
    ),
    Series(
        "pulsar_subscription_unacked_messages",
        "gauge",
        "Messages delivered and not acknowledged",
        "unackedMessages",
    ),
    Series(
        "pulsar_subscription_blocked_on_unacked_messages",
        "gauge",
        "1 while delivery waits for acknowledgements",
        "blockedSubscriptionOnUnackedMsgs",
    ),
    Series(
        "pulsar_subscription_msg_rate_expired",
        "gauge",
        "Entries that expired per second",
        "msgRateExpired",
    ),
    Series(
        "pulsar_subscription_total_msg_expired",
        "gauge",
        "Entries that expired",
        "totalMsgExpired",
    ),
    Series(
        "pulsar_subscription_last_expire_timestamp",
        "gauge",
        "When expired messages were last looked for",
        "lastExpireTimestamp",
    ),
    Series("pulsar_out_messages_total", "counter", "Messages delivered", "msgOutCounter"),
    Series("pulsar_out_bytes_total", "counter", "Bytes delivered", "bytesOutCounter"),
)

THROTTLED_SERIES: Final = (
    Series(
        "pulsar_subscription_dispatch_throttled_msg_events",
        "gauge",
        "How often a rate of dispatch in messages held it",
        "",
    ),
    Series(
        "pulsar_subscription_dispatch_throttled_bytes_events",
        "gauge",
        "How often a rate of dispatch in bytes held it",
        "",
    ),
)
"""By the level of the rate, for subscriptions that rates have limited."""

CONSUMER_SERIES: Final = (
    Series("pulsar_consumer_msg_rate_out", "gauge", "Messages per second", "msgRateOut"),
    Series("pulsar_consumer_msg_throughput_out", "gauge", "Bytes per second", "msgThroughputOut"),
    Series(
        "pulsar_consumer_available_permits", "gauge", "Messages it can take", "availablePermits"
    ),
    Series("pulsar_consumer_unacked_messages", "gauge", "Not acknowledged", "unackedMessages"),
    Series(
        "pulsar_consumer_blocked_on_unacked_messages",
        "gauge",
        "1 while it must acknowledge first",
        "blockedConsumerOnUnackedMsgs",
    ),
    Series("pulsar_consumer_out_messages", "counter", "Messages delivered", "msgOutCounter"),
)

SUMMED: Final = frozenset(
    {series.name for series in TOPIC_SERIES}
    - {
        "pulsar_average_msg_size",
        "pulsar_storage_backlog_age_seconds",
        "pulsar_storage_backlog_quota_limit",
        "pulsar_storage_backlog_quota_limit_time",
    }
)
"""Topic series that can be summed for a namespace."""
