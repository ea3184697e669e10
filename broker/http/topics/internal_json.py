"""The ledgers and cursors of a topic in Pulsar's JSON shapes: PersistentTopicInternalStats and
ManagedLedgerInfo, made row by row, so that many of them are answered in slices."""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final, NamedTuple, final

from broker.http.streaming import encoded, json_array, json_fields, json_map
from broker.topics.subscription.statistics import iso_time
from protocol.position import position_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from broker.managed_ledger.ledger_table import LedgerRow
    from broker.managed_ledger.statistics import CursorStatistics, ManagedLedgerStatistics
    from broker.topics.subscription.api import Subscription
    from broker.topics.topic.persistent import PersistentTopic
    from broker.topics.topic.topic_ledger import TopicLedger
    from protocol.position import Position

Json = dict[str, Any]

_NO_LEDGER: Final[Json] = {
    "ledgerId": -1,
    "entries": -1,
    "size": -1,
    "offloaded": False,
    "underReplicated": False,
}
_STATES: Final = {"Open": "LedgerOpened", "Rolling": "ClosingLedger"}
"""Pulsar's names of states that differ from Vela's."""


@final
class LedgerRecord(NamedTuple):
    """What the record of a ledger in the metadata store says."""

    text: str
    is_under_replicated: bool
    """One of its bookies is not registered."""


def internal_stats(
    topic: PersistentTopic, records: dict[int, LedgerRecord], schema_ledgers: Sequence[Json] = ()
) -> Iterator[str]:
    """PersistentTopicInternalStats as JSON. As in Pulsar, the newest ledger's own row has 0
    entries: its numbers are `currentLedgerEntries` and `currentLedgerSize`. `records` are those
    that were asked for."""
    statistics = topic.ledger.statistics()
    yield '{"ledgers":'
    yield from json_array(_ledger_rows(statistics, records))
    yield ',"cursors":'
    entries = LedgerEntries(statistics.ledgers)
    waiting = 0
    comma = "{"
    for each in topic.ledger.cursor_statistics():
        row = _cursor(topic, each, statistics, entries)
        waiting += row["waitingReadOp"]
        yield f"{comma}{encoded(each.name)}:{encoded(row)}"
        comma = ","
    fields: Json = {
        "entriesAddedCounter": statistics.entries_added,
        "numberOfEntries": statistics.entries,
        "totalSize": statistics.size_bytes,
        "currentLedgerEntries": statistics.current_ledger_entries,
        "currentLedgerSize": statistics.current_ledger_size_bytes,
        "lastLedgerCreatedTimestamp": iso_time(statistics.last_ledger_created_ms),
        "waitingCursorsCount": waiting,
        "pendingAddEntriesCount": statistics.pending_appends,
        "lastConfirmedEntry": position_text(statistics.last_confirmed),
        "state": _STATES.get(statistics.state, statistics.state),
        "schemaLedgers": list(schema_ledgers),
        "compactedLedger": _NO_LEDGER,
        "properties": dict(statistics.properties),
    }
    yield ("{}," if comma == "{" else "},") + json_fields(fields) + "}"


def _ledger_rows(
    statistics: ManagedLedgerStatistics, records: dict[int, LedgerRecord]
) -> Iterator[Json]:
    terminated = statistics.terminated_position is not None
    for row in statistics.ledgers:
        newest = row is statistics.ledgers[-1] and not terminated
        record = records.get(row.ledger_id)
        info: Json = {
            "ledgerId": row.ledger_id,
            "entries": 0 if newest else row.entries,
            "size": 0 if newest else row.size_bytes,
            "offloaded": row.is_offloaded,
            "underReplicated": record is not None and record.is_under_replicated,
        }
        if record is not None:
            info["metadata"] = record.text
        yield info


def managed_ledger_info(ledger: TopicLedger, version: int, now_ms: int) -> Iterator[str]:
    """ManagedLedgerInfo (`internal-info`) as JSON. The open ledger has no counts."""
    statistics = ledger.statistics()
    fields: Json = {"version": version}
    if statistics.terminated_position is not None:
        fields["terminatedPosition"] = _position(statistics.terminated_position)
    if statistics.properties:
        fields["properties"] = dict(statistics.properties)
    yield "{" + json_fields(fields) + ',"ledgers":'
    yield from json_array(_info_rows(statistics, now_ms))
    yield ',"cursors":'
    yield from json_map(
        (each.name, iter((encoded(_cursor_info(each)),)))
        for each in ledger.cursor_statistics()
        if each.durable
    )
    yield "}"


def _info_rows(statistics: ManagedLedgerStatistics, now_ms: int) -> Iterator[Json]:
    for row in statistics.ledgers:
        info: Json = {"ledgerId": row.ledger_id}
        if row is statistics.ledgers[-1] and statistics.terminated_position is None:
            info["timestamp"] = now_ms
        else:
            info |= {"entries": row.entries, "size": row.size_bytes}
            info["timestamp"] = row.timestamp_ms
        info["isOffloaded"] = row.is_offloaded
        yield info


def _cursor_info(cursor: CursorStatistics) -> Json:
    return {
        "cursorsLedgerId": cursor.cursor_ledger_id,
        "markDelete": _position(cursor.mark_delete),
    }


@final
class LedgerEntries:
    """Counts entries between positions of one topic, by binary search."""

    def __init__(self, rows: Sequence[LedgerRow]) -> None:
        self._ids = [row.ledger_id for row in rows]
        self._before = [0, *accumulate(row.entries for row in rows)]
        """By index: entries of all earlier ledgers."""

    def between(self, after: Position, until: Position) -> int:
        """Entries after a position up to and with another, which need not exist itself, as Pulsar
        counts them."""
        if after >= until:
            return 0
        if after[0] == until[0]:
            return until[1] - after[1]
        start = bisect_left(self._ids, after[0])
        is_there = start < len(self._ids) and self._ids[start] == after[0]
        before = self._before[start] + (after[1] + 1 if is_there else 0)
        return self._before[bisect_left(self._ids, until[0])] + until[1] + 1 - before


def _cursor(
    topic: PersistentTopic,
    cursor: CursorStatistics,
    ledger: ManagedLedgerStatistics,
    entries: LedgerEntries,
) -> Json:
    subscription = topic.subscriptions.get(cursor.name)
    read = None if subscription is None else subscription.read_position()
    read = cursor.read_from if read is None else max(cursor.read_from, read)
    waiting = subscription is not None and _waits(subscription, read > ledger.last_confirmed)
    return {
        "markDeletePosition": position_text(cursor.mark_delete),
        "readPosition": position_text(read),
        "waitingReadOp": waiting,
        "pendingReadOps": 0,
        "messagesConsumedCounter": ledger.entries_added - cursor.backlog_entries,
        "cursorLedger": cursor.cursor_ledger_id,
        "cursorLedgerLastEntry": cursor.cursor_ledger_last_entry_id,
        "individuallyDeletedMessages": cursor.acked_ranges_text,
        "lastLedgerSwitchTimestamp": None,
        "state": "NoLedger" if cursor.cursor_ledger_id < 0 else "Open",
        "active": subscription is not None and bool(subscription.consumers),
        "numberOfEntriesSinceFirstNotAckedMessage": entries.between(cursor.mark_delete, read),
        "totalNonContiguousDeletedMessagesRange": cursor.acked_ranges_text.count("("),
        "subscriptionHavePendingRead": waiting,
        "subscriptionHavePendingReplayRead": (
            subscription is not None and subscription.is_reading_replays
        ),
        "properties": dict(cursor.position_properties),
        "internal": topic.is_internal_cursor(cursor.name),
    }


def _waits(subscription: Subscription, has_read_all: bool) -> bool:
    """Whether it would send a message that is published now."""
    if subscription.read_position() is None:
        return bool(subscription.consumers) and not subscription.backlog_entries
    return has_read_all and any(each.permits.available > 0 for each in subscription.consumers)


def _position(position: Position) -> Json:
    return {"ledgerId": position[0], "entryId": position[1]}
