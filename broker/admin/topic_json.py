"""Statistics of a topic in Pulsar's JSON shapes: TopicStats, PartitionedTopicStats,
PersistentTopicInternalStats, ManagedLedgerInfo.

Everything is computed from live state when asked for. Fields of features that do not exist here
(replication, transactions, offloading, compaction) are there with the value that says so, because
typed clients expect them. Subscriptions and consumers come from `broker.subscription.statistics`,
with one field of ours, `whyNotDispatching`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from broker.subscription.statistics import iso_time
from broker.topic.persistent import INTERNAL_CURSORS, PersistentTopic
from broker.topic.producer_request import ACCESS_MODE_NAMES
from protocol.position import position_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from broker.managed_ledger.ledger import ManagedLedger
    from broker.managed_ledger.statistics import CursorStatistics, ManagedLedgerStatistics
    from broker.topic.producer import Producer
    from broker.topic.topic import Topic
    from protocol.position import Position

Json = dict[str, Any]

_NO_COMPACTION: Final[Json] = {
    "lastCompactionRemovedEventCount": 0,
    "lastCompactionSucceedTimestamp": 0,
    "lastCompactionFailedTimestamp": 0,
    "lastCompactionDurationTimeInMills": 0,
}
_NO_LEDGER: Final[Json] = {
    "ledgerId": -1,
    "entries": -1,
    "size": -1,
    "offloaded": False,
    "underReplicated": False,
}
_STATES: Final = {"Open": "LedgerOpened", "Rolling": "ClosingLedger"}
"""Pulsar's names of the states that have other ones there."""
_ADDED_UP: Final = (
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
_ADDED_UP_OF_SUBSCRIPTIONS: Final = (
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
)


def topic_stats(
    topic: Topic, broker_id: str, *, publishers: bool = True, consumers: bool = True
) -> Json:
    """TopicStats of one topic or partition."""
    ledger = topic.ledger if isinstance(topic, PersistentTopic) else None
    rows = ledger.statistics() if ledger is not None else None
    subscriptions: Json = {}
    for name, subscription in topic.subscriptions.items():
        mark_delete = subscription.mark_delete_position()
        size = backlog_size(rows, mark_delete) if rows is not None and mark_delete else 0
        statistics = subscription.statistics()
        subscriptions[name] = _tidy(statistics.as_json(consumers=consumers, backlog_size=size))
    rate, throughput = topic.rate_messages_in, topic.rate_bytes_in
    stats: Json = {
        "msgRateIn": rate,
        "msgThroughputIn": throughput,
        "msgRateOut": sum((each["msgRateOut"] for each in subscriptions.values()), 0.0),
        "msgThroughputOut": sum((each["msgThroughputOut"] for each in subscriptions.values()), 0.0),
        "bytesInCounter": topic.bytes_in(),
        "msgInCounter": topic.messages_in(),
        "systemTopicBytesInCounter": 0,
        "bytesOutCounter": topic.bytes_out_before
        + sum(each["bytesOutCounter"] for each in subscriptions.values()),
        "msgOutCounter": topic.messages_out_before
        + sum(each["msgOutCounter"] for each in subscriptions.values()),
        "bytesOutInternalCounter": 0,
        "averageMsgSize": throughput / rate if rate else 0.0,
        "msgChunkPublished": False,
        "storageSize": rows.size_bytes if rows is not None else 0,
        "backlogSize": max((each["backlogSize"] for each in subscriptions.values()), default=0),
        "backlogQuotaLimitSize": -1,
        "backlogQuotaLimitTime": -1,
        "oldestBacklogMessageAgeSeconds": -1,
        "publishRateLimitedTimes": 0,
        "earliestMsgPublishTimeInBacklogs": 0,
        "offloadedStorageSize": 0,
        "lastOffloadLedgerId": 0,
        "lastOffloadSuccessTimeStamp": 0,
        "lastOffloadFailureTimeStamp": 0,
        "ongoingTxnCount": 0,
        "abortedTxnCount": 0,
        "committedTxnCount": 0,
        "publishers": _publishers(topic) if publishers else [],
        "waitingPublishers": len(topic.access.waiting),
        "subscriptions": subscriptions,
        "replication": {},
        "deduplicationStatus": _deduplication(topic),
        "nonContiguousDeletedMessagesRanges": sum(
            each["nonContiguousDeletedMessagesRanges"] for each in subscriptions.values()
        ),
        "nonContiguousDeletedMessagesRangesSerializedSize": 0,
        "delayedMessageIndexSizeInBytes": sum(
            each["delayedMessageIndexSizeInBytes"] for each in subscriptions.values()
        ),
        "compaction": _NO_COMPACTION,
        "ownerBroker": broker_id,
        "topicCreationTimeStamp": topic.created_ms,
        "lastPublishTimeStamp": topic.published_last_ms,
    }
    if topic.access.epoch is not None:
        stats["topicEpoch"] = topic.access.epoch
    return stats


def partitioned_stats(parts: Sequence[tuple[str, Json]], metadata: Json, per_part: bool) -> Json:
    """PartitionedTopicStats: the sum over the partitions, and them one by one."""
    total: Json = {name: sum(stats[name] for _, stats in parts) for name in _ADDED_UP}
    rate = total["msgRateIn"]
    subscriptions: Json = {}
    for _, stats in parts:
        for name, each in stats["subscriptions"].items():
            known = subscriptions.get(name)
            if known is None:
                subscriptions[name] = {**each, "consumers": list(each["consumers"])}
                continue
            for field in _ADDED_UP_OF_SUBSCRIPTIONS:
                known[field] += each[field]
            known["consumers"] += each["consumers"]
    first = parts[0][1] if parts else {}
    return {
        **{key: value for key, value in first.items() if key not in ("ownerBroker", "topicEpoch")},
        **total,
        "averageMsgSize": total["msgThroughputIn"] / rate if rate else 0.0,
        "publishers": [each for _, stats in parts for each in stats["publishers"]],
        "subscriptions": subscriptions,
        "metadata": metadata,
        "partitions": dict(parts) if per_part else {},
    }


def internal_stats(topic: PersistentTopic, ledger_metadata: dict[int, str]) -> Json:
    """PersistentTopicInternalStats. As in Pulsar the newest ledger's own row says 0 entries: its
    numbers are `currentLedgerEntries` and `currentLedgerSize`."""
    statistics = topic.ledger.statistics()
    terminated = statistics.terminated_position is not None
    rows = []
    for row in statistics.ledgers:
        newest = row is statistics.ledgers[-1] and not terminated
        info: Json = {
            "ledgerId": row.ledger_id,
            "entries": 0 if newest else row.entries,
            "size": 0 if newest else row.size_bytes,
            "offloaded": row.is_offloaded,
            "underReplicated": False,
        }
        if row.ledger_id in ledger_metadata:
            info["metadata"] = ledger_metadata[row.ledger_id]
        rows.append(info)
    return {
        "entriesAddedCounter": statistics.entries_added,
        "numberOfEntries": statistics.entries,
        "totalSize": statistics.size_bytes,
        "currentLedgerEntries": statistics.current_ledger_entries,
        "currentLedgerSize": statistics.current_ledger_size_bytes,
        "lastLedgerCreatedTimestamp": iso_time(statistics.last_ledger_created_ms),
        "waitingCursorsCount": sum(1 for each in statistics.cursors if not each.backlog_entries),
        "pendingAddEntriesCount": statistics.pending_appends,
        "lastConfirmedEntry": position_text(statistics.last_confirmed),
        "state": _STATES.get(statistics.state, statistics.state),
        "ledgers": rows,
        "cursors": {each.name: _cursor(topic, each) for each in statistics.cursors},
        "schemaLedgers": [],
        "compactedLedger": _NO_LEDGER,
        "properties": dict(statistics.properties),
    }


def managed_ledger_info(ledger: ManagedLedger, version: int, now_ms: int) -> Json:
    """ManagedLedgerInfo (`internal-info`): the open ledger comes without counts."""
    statistics = ledger.statistics()
    rows = []
    for row in statistics.ledgers:
        info: Json = {"ledgerId": row.ledger_id}
        if row is statistics.ledgers[-1] and statistics.terminated_position is None:
            info["timestamp"] = now_ms
        else:
            info |= {"entries": row.entries, "size": row.size_bytes}
            info["timestamp"] = row.timestamp_ms
        info["isOffloaded"] = row.is_offloaded
        rows.append(info)
    result: Json = {"version": version, "ledgers": rows}
    if statistics.terminated_position is not None:
        result["terminatedPosition"] = _position(statistics.terminated_position)
    if statistics.properties:
        result["properties"] = dict(statistics.properties)
    result["cursors"] = {
        each.name: {
            "cursorsLedgerId": each.cursor_ledger_id,
            "markDelete": _position(each.mark_delete),
        }
        for each in statistics.cursors
        if each.durable
    }
    return result


def backlog_size(statistics: ManagedLedgerStatistics, mark_delete: Position) -> int:
    """Bytes after a position; inside a ledger entries count with their mean size."""
    ledger_id, entry_id = mark_delete
    total = 0
    for row in statistics.ledgers:
        if row.ledger_id > ledger_id:
            total += row.size_bytes
        elif row.ledger_id == ledger_id and row.entries:
            left = max(0, row.entries - entry_id - 1)
            total += row.size_bytes * left // row.entries
    return total


def _cursor(topic: PersistentTopic, cursor: CursorStatistics) -> Json:
    subscription = topic.subscriptions.get(cursor.name)
    waiting = not cursor.backlog_entries
    return {
        "markDeletePosition": position_text(cursor.mark_delete),
        "readPosition": position_text(cursor.read_from),
        "waitingReadOp": waiting,
        "pendingReadOps": 0,
        "messagesConsumedCounter": 0,
        "cursorLedger": cursor.cursor_ledger_id,
        "cursorLedgerLastEntry": cursor.cursor_ledger_last_entry_id,
        "individuallyDeletedMessages": cursor.acked_ranges_text,
        "lastLedgerSwitchTimestamp": None,
        "state": "Open" if cursor.durable else "NoLedger",
        "active": subscription is not None and bool(subscription.consumers),
        "numberOfEntriesSinceFirstNotAckedMessage": cursor.backlog_entries
        + cursor.individually_acked_count
        + 1,
        "totalNonContiguousDeletedMessagesRange": cursor.acked_ranges_text.count("("),
        "subscriptionHavePendingRead": waiting and subscription is not None,
        "subscriptionHavePendingReplayRead": False,
        "properties": dict(cursor.position_properties),
        "internal": cursor.name in INTERNAL_CURSORS,
    }


def _publishers(topic: Topic) -> list[Json]:
    return [_publisher(each) for each in topic.access.producers.values()]


def _publisher(producer: Producer) -> Json:
    rate = producer.rate_messages_in
    return {
        "accessMode": ACCESS_MODE_NAMES[producer.request.access_mode],
        "msgRateIn": rate,
        "msgThroughputIn": producer.rate_bytes_in,
        "averageMsgSize": producer.rate_bytes_in / rate if rate else 0.0,
        "chunkedMessageRate": 0.0,
        "producerId": producer.producer_id,
        "supportsPartialProducer": (
            "supports_partial_producer" in producer.session.handshake.client_features
        ),
        "producerName": producer.name,
        "address": producer.session.remote_address,
        "connectedSince": iso_time(producer.connected_since_ms),
        "clientVersion": producer.session.client_version,
        "metadata": dict(producer.request.metadata),
    }


def _deduplication(topic: Topic) -> str:
    enabled = isinstance(topic, PersistentTopic) and topic.dedup is not None
    return "Enabled" if enabled else "Disabled"


def _tidy(subscription: Json) -> Json:
    """Pulsar leaves fields without a value out, and writes addresses with a slash before them."""
    for row in subscription["consumers"]:
        row["address"] = f"/{row['address'].lstrip('/')}"
    subscription["consumers"] = [_without_none(row) for row in subscription["consumers"]]
    return _without_none(subscription)


def _without_none(fields: Json) -> Json:
    return {key: value for key, value in fields.items() if value is not None}


def _position(position: Position) -> Json:
    return {"ledgerId": position[0], "entryId": position[1]}
