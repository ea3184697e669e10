"""Statistics of topics in Pulsar's JSON form: `stats` and `internalStats`.

Nothing is counted for the sake of statistics that could be derived: every number comes from the
state that decides, at the moment it is asked for. Sizes of backlogs are estimates, as in Pulsar:
whole ledgers exactly, the ledger of the position by its mean entry size.
Field names: TopicStats, PublisherStats, PersistentTopicInternalStats of Pulsar 4.0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker.subscription.statistics import iso_time
from broker.topic.persistent import PersistentTopic
from broker.topic.producer import ACCESS_MODE_NAMES
from protocol.position import position_text

if TYPE_CHECKING:
    from broker.managed_ledger.statistics import CursorStatistics, ManagedLedgerStatistics
    from broker.topic.producer import Producer
    from broker.topic.topic import Topic
    from protocol.position import Position

Json = dict[str, Any]


def topic_statistics(topic: Topic, *, publishers: bool = True, consumers: bool = True) -> Json:
    """`GET .../stats` of one topic or partition."""
    ledger = topic.ledger.statistics() if isinstance(topic, PersistentTopic) else None
    subscriptions: Json = {}
    rate_out = throughput_out = 0.0
    messages_out, bytes_out = topic.messages_out_before, topic.bytes_out_before
    for name, subscription in sorted(topic.subscriptions.items()):
        statistics = subscription.statistics()
        size = _backlog_size(ledger, subscription.mark_delete_position())
        row = statistics.as_json(consumers=consumers, backlog_size=size)
        subscriptions[name] = row
        rate_out += row["msgRateOut"]
        throughput_out += row["msgThroughputOut"]
        messages_out += statistics.messages_out
        bytes_out += statistics.bytes_out
    messages_in, bytes_in = topic.messages_in(), topic.bytes_in()
    slowest = max((row["backlogSize"] for row in subscriptions.values()), default=0)
    live = sorted(topic.access.producers.values(), key=lambda each: each.name)
    delayed = sum(row["delayedMessageIndexSizeInBytes"] for row in subscriptions.values())
    return {
        "msgRateIn": topic.rate_messages_in,
        "msgThroughputIn": topic.rate_bytes_in,
        "msgRateOut": rate_out,
        "msgThroughputOut": throughput_out,
        "bytesInCounter": bytes_in,
        "msgInCounter": messages_in,
        "systemTopicBytesInCounter": 0,
        "bytesOutCounter": bytes_out,
        "msgOutCounter": messages_out,
        "bytesOutInternalCounter": 0,
        "averageMsgSize": _average(topic.rate_bytes_in, topic.rate_messages_in),
        "msgChunkPublished": False,
        "storageSize": ledger.size_bytes if ledger is not None else 0,
        "backlogSize": slowest,
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
        "publishers": [publisher_statistics(each) for each in live] if publishers else [],
        "waitingPublishers": len(topic.access.waiting),
        "subscriptions": subscriptions,
        "replication": {},
        "deduplicationStatus": _deduplication_status(topic),
        "nonContiguousDeletedMessagesRanges": sum(
            row["nonContiguousDeletedMessagesRanges"] for row in subscriptions.values()
        ),
        "nonContiguousDeletedMessagesRangesSerializedSize": 0,
        "delayedMessageIndexSizeInBytes": delayed,
        "compaction": {
            "lastCompactionRemovedEventCount": 0,
            "lastCompactionSucceedTimestamp": 0,
            "lastCompactionFailedTimestamp": 0,
            "lastCompactionDurationTimeInMills": 0,
        },
        "ownerBroker": topic.service.broker_service_url.partition("://")[2],
        "topicCreationTimeStamp": topic.created_ms,
        "lastPublishTimeStamp": topic.published_last_ms,
        "lastPublishTimestamp": topic.published_last_ms,
    }


def publisher_statistics(producer: Producer) -> Json:
    """One producer."""
    return {
        "accessMode": ACCESS_MODE_NAMES[producer.request.access_mode],
        "msgRateIn": producer.rate_messages_in,
        "msgThroughputIn": producer.rate_bytes_in,
        "averageMsgSize": _average(producer.rate_bytes_in, producer.rate_messages_in),
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


def internal_statistics(topic: PersistentTopic) -> Json:
    """`GET .../internalStats`."""
    ledger = topic.ledger.statistics()
    rows = [
        {
            "ledgerId": row.ledger_id,
            # The newest ledger carries no counts in its record; what it holds is given beside.
            "entries": 0 if row is ledger.ledgers[-1] else row.entries,
            "size": 0 if row is ledger.ledgers[-1] else row.size_bytes,
            "offloaded": row.is_offloaded,
            "underReplicated": False,
        }
        for row in ledger.ledgers
    ]
    return {
        "entriesAddedCounter": ledger.entries_added,
        "numberOfEntries": ledger.entries,
        "totalSize": ledger.size_bytes,
        "currentLedgerEntries": ledger.current_ledger_entries,
        "currentLedgerSize": ledger.current_ledger_size_bytes,
        "lastLedgerCreatedTimestamp": iso_time(ledger.last_ledger_created_ms),
        "waitingCursorsCount": sum(
            1 for cursor in ledger.cursors if cursor.read_from > ledger.last_confirmed
        ),
        "pendingAddEntriesCount": ledger.pending_appends,
        "lastConfirmedEntry": position_text(ledger.last_confirmed),
        "state": "Terminated" if ledger.terminated_position else "LedgerOpened",
        "ledgers": rows,
        "cursors": {cursor.name: _cursor(ledger, cursor) for cursor in ledger.cursors},
        "schemaLedgers": [],
        "compactedLedger": {
            "ledgerId": -1,
            "entries": -1,
            "size": -1,
            "offloaded": False,
            "underReplicated": False,
        },
        "properties": dict(ledger.properties),
    }


def _cursor(ledger: ManagedLedgerStatistics, cursor: CursorStatistics) -> Json:
    return {
        "markDeletePosition": position_text(cursor.mark_delete),
        "readPosition": position_text(cursor.read_from),
        "waitingReadOp": cursor.read_from > ledger.last_confirmed,
        "pendingReadOps": 0,
        "messagesConsumedCounter": ledger.entries_added - cursor.backlog_entries,
        "cursorLedger": cursor.cursor_ledger_id,
        "cursorLedgerLastEntry": cursor.cursor_ledger_last_entry_id,
        "individuallyDeletedMessages": cursor.acked_ranges_text,
        "lastLedgerSwitchTimestamp": iso_time(ledger.last_ledger_created_ms),
        "state": "Open" if cursor.durable else "NonDurable",
        "active": True,
        "numberOfEntriesSinceFirstNotAckedMessage": (
            cursor.backlog_entries + cursor.individually_acked_count
        ),
        "totalNonContiguousDeletedMessagesRange": cursor.acked_ranges_text.count("("),
        "subscriptionHavePendingRead": cursor.read_from > ledger.last_confirmed,
        "subscriptionHavePendingReplayRead": False,
        "properties": dict(cursor.position_properties),
    }


def _backlog_size(ledger: ManagedLedgerStatistics | None, mark_delete: Position | None) -> int:
    """Bytes behind a position, about."""
    if ledger is None or mark_delete is None:
        return 0
    size = 0
    for row in ledger.ledgers:
        if row.ledger_id > mark_delete[0]:
            size += row.size_bytes
        elif row.ledger_id == mark_delete[0] and row.entries:
            size += row.size_bytes * max(0, row.entries - 1 - mark_delete[1]) // row.entries
    return size


def _average(bytes_rate: float, messages_rate: float) -> float:
    return bytes_rate / messages_rate if messages_rate else 0.0


def _deduplication_status(topic: Topic) -> str:
    enabled = isinstance(topic, PersistentTopic) and topic.dedup is not None
    return "Enabled" if enabled else "Disabled"
