"""Statistics of a topic in Pulsar's JSON shapes: TopicStats and PartitionedTopicStats. The ledgers
and cursors below it are in `internal_json`.

Everything is computed from live state on request, and row by row, so that a topic with very many
subscriptions is answered in slices (see `streaming`). Fields of features that do not exist here
(replication, transactions, offloading, compaction) are present with the value for "none", because
typed clients expect them. Subscriptions and consumers come from
`broker.topics.subscription.statistics`, with one field of Vela's own, `whyNotDispatching`.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import replace
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final, NamedTuple, final

from broker.http.streaming import encoded, json_array, json_fields, json_map
from broker.http.topics.stats_sums import (
    ADDED_UP,
    NO_BACKLOG_MS,
    add_subscription,
    with_oldest,
)
from broker.topics.subscription.statistics import iso_time, range_text
from broker.topics.topic.dedup_part import DEDUPLICATION
from broker.topics.topic.producer_request import ACCESS_MODE_NAMES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from broker.http.topics.earliest_times import EarliestTimes
    from broker.managed_ledger.ledger_table import LedgerRow
    from broker.topics.subscription.api import Subscription
    from broker.topics.subscription.statistics import ConsumerStatistics, SubscriptionStatistics
    from broker.topics.topic.producer import Producer
    from broker.topics.topic.topic import Topic
    from protocol.position import Position

Json = dict[str, Any]

_NO_COMPACTION: Final[Json] = {
    "lastCompactionRemovedEventCount": 0,
    "lastCompactionSucceedTimestamp": 0,
    "lastCompactionFailedTimestamp": 0,
    "lastCompactionDurationTimeInMills": 0,
}
CONSUMERS_IN_ROW_MAX: Final = 4
RANGES_IN_ROW_MAX: Final = 64
"""A sticky Key_Shared consumer may have thousands of ranges: more than these are rows as well."""
_SUMS_OF_TOPIC: Final = (
    "msgRateOut",
    "msgThroughputOut",
    "bytesOutCounter",
    "msgOutCounter",
    "nonContiguousDeletedMessagesRanges",
    "delayedMessageIndexSizeInBytes",
)
"""Fields of subscriptions that are summed for their topic."""


class SubscriptionRow(NamedTuple):
    """SubscriptionStats: `fields` without `consumers`, whose rows may be very many."""

    name: str
    subscription: Subscription
    statistics: SubscriptionStatistics
    fields: Json
    consumers: Sequence[ConsumerStatistics]

    def pieces(self) -> Iterator[str]:
        """It as JSON. Its consumers are rows as well, unless they are few."""
        return row_pieces(self.fields, self.consumers)


@final
class TopicStats:
    """TopicStats of one topic or partition, one row at a time: `subscriptions` to its end, then
    `fields`, which sums the rows that were made. `pieces` is the whole as JSON."""

    def __init__(
        self,
        topic: Topic,
        broker_id: str,
        *,
        publishers: bool = True,
        consumers: bool = True,
        earliest: EarliestTimes | None = None,
    ) -> None:
        """`earliest`: None: it was not asked for."""
        self._earliest = earliest
        self._topic = topic
        self._broker_id = broker_id
        self._with_publishers = publishers
        self._with_consumers = consumers
        self._ledger = topic.ledger_statistics()
        self._sizes = LedgerSizes(self._ledger.ledgers) if self._ledger is not None else None
        self._sums: Json = dict.fromkeys(_SUMS_OF_TOPIC, 0)
        self._sums |= {"msgRateOut": 0.0, "msgThroughputOut": 0.0}
        self._backlog_size = 0

    def publishers(self) -> Iterator[Json]:
        """Each producer."""
        if self._with_publishers:
            yield from map(_publisher, list(self._topic.access.producers.values()))

    def subscriptions(self) -> Iterator[SubscriptionRow | None]:
        """Each subscription that exists when its turn comes. It is counted in `fields`. None is a
        step of work for one that has many consumers."""
        sums = self._sums
        for name, subscription in list(self._topic.subscriptions.items()):
            statistics = yield from subscription.statistics_in_steps()
            mark_delete = subscription.mark_delete_position()
            sizes = self._sizes
            size = sizes.behind(mark_delete) if sizes is not None and mark_delete else 0
            fields = _without_none(statistics.as_json(consumers=False, backlog_size=size))
            del fields["consumers"]
            if self._earliest is not None:
                earliest_ms = self._earliest.of_subscriptions.get(name, NO_BACKLOG_MS)
                fields["earliestMsgPublishTimeInBacklog"] = earliest_ms
            for field in _SUMS_OF_TOPIC:
                sums[field] += fields[field]
            self._backlog_size = max(self._backlog_size, size)
            consumers = statistics.consumers if self._with_consumers else ()
            yield SubscriptionRow(name, subscription, statistics, fields, consumers)

    def fields(self) -> Json:
        """All other fields."""
        topic, sums, ledger = self._topic, self._sums, self._ledger
        published = topic.published
        rate, throughput = published.messages_per_second, published.bytes_per_second
        quotas = topic.policies.effective.backlog_quotas
        fields: Json = {
            "msgRateIn": rate,
            "msgThroughputIn": throughput,
            "msgRateOut": sums["msgRateOut"],
            "msgThroughputOut": sums["msgThroughputOut"],
            "bytesInCounter": published.size_bytes(),
            "msgInCounter": published.messages(),
            "systemTopicBytesInCounter": 0,
            "bytesOutCounter": topic.bytes_out_before + sums["bytesOutCounter"],
            "msgOutCounter": topic.messages_out_before + sums["msgOutCounter"],
            "bytesOutInternalCounter": 0,
            "averageMsgSize": throughput / rate if rate else 0.0,
            "msgChunkPublished": published.has_chunks(),
            "storageSize": ledger.size_bytes if ledger is not None else 0,
            "backlogSize": self._backlog_size,
            "backlogQuotaLimitSize": quotas.size.limit_bytes,
            "backlogQuotaLimitTime": quotas.age.limit_seconds,
            "oldestBacklogMessageAgeSeconds": -1,
            "publishRateLimitedTimes": topic.publish_limits.times_held,
            "earliestMsgPublishTimeInBacklogs": (
                0 if self._earliest is None else self._earliest.of_topic
            ),
            "offloadedStorageSize": 0,
            "lastOffloadLedgerId": 0,
            "lastOffloadSuccessTimeStamp": 0,
            "lastOffloadFailureTimeStamp": 0,
            "ongoingTxnCount": 0,
            "abortedTxnCount": 0,
            "committedTxnCount": 0,
            "waitingPublishers": len(topic.access.waiting),
            "replication": {},
            "deduplicationStatus": _deduplication(topic),
            "nonContiguousDeletedMessagesRanges": sums["nonContiguousDeletedMessagesRanges"],
            "nonContiguousDeletedMessagesRangesSerializedSize": 0,
            "delayedMessageIndexSizeInBytes": sums["delayedMessageIndexSizeInBytes"],
            "compaction": _NO_COMPACTION,
            "ownerBroker": self._broker_id,
            "topicCreationTimeStamp": topic.created_ms,
            "lastPublishTimeStamp": topic.published_last_ms,
        }
        oldest = topic.oldest_in_backlog
        if oldest is not None:
            age_ms = topic.services.clock.wall_ms() - oldest.time_ms
            fields["oldestBacklogMessageAgeSeconds"] = age_ms // 1000
            fields["oldestBacklogMessageSubscriptionName"] = oldest.subscription_name
        if topic.access.epoch is not None:
            fields["topicEpoch"] = topic.access.epoch
        return fields

    def pieces(self) -> Iterator[str]:
        """TopicStats as JSON."""
        yield '{"publishers":'
        yield from json_array(self.publishers())
        yield ',"subscriptions":'
        yield from json_map(row and (row.name, row.pieces()) for row in self.subscriptions())
        yield "," + json_fields(self.fields()) + "}"


@final
class PartitionedStats:
    """PartitionedTopicStats: the sum over the partitions and, with `per_part`, each of them."""

    def __init__(
        self, parts: Sequence[tuple[str, TopicStats]], metadata: Json, per_part: bool
    ) -> None:
        self._parts = parts
        self._metadata = metadata
        self._per_part = per_part
        self._subscriptions: dict[str, tuple[Json, list[ConsumerStatistics]]] = {}
        self._fields: list[Json] = []

    def pieces(self) -> Iterator[str]:
        """PartitionedTopicStats as JSON. The sums come last, after all rows have been made."""
        yield '{"publishers":'
        yield from json_array(row for _, part in self._parts for row in part.publishers())
        yield ',"partitions":'
        parts = ((name, self._part(part)) for name, part in self._parts)
        if self._per_part:
            yield from json_map(parts)
        else:
            yield "{}"
            for _, pieces in parts:
                yield from ("" for _ in pieces)  # steps of work without text
        yield ',"subscriptions":'
        yield from json_map(
            (name, row_pieces(fields, consumers))
            for name, (fields, consumers) in self._subscriptions.items()
        )
        yield "," + json_fields(self._sums()) + "}"

    def _part(self, part: TopicStats) -> Iterator[str]:
        yield '{"publishers":'
        yield from json_array(part.publishers() if self._per_part else ())
        yield ',"subscriptions":'
        yield from json_map(self._counted(part))
        fields = part.fields()
        self._fields.append(fields)
        yield "," + json_fields(fields) + "}"

    def _counted(self, part: TopicStats) -> Iterator[tuple[str, Iterator[str]] | None]:
        for row in part.subscriptions():
            if row is None:
                yield None
                continue
            known = self._subscriptions.get(row.name)
            if known is None:
                self._subscriptions[row.name] = (dict(row.fields), list(row.consumers))
            else:
                fields, consumers = known
                add_subscription(fields, row.fields)
                consumers += row.consumers
            yield row.name, row.pieces() if self._per_part else iter(("",))

    def _sums(self) -> Json:
        first = self._fields[0] if self._fields else {}
        kept = {key: first[key] for key in first if key not in ("ownerBroker", "topicEpoch")}
        total = {name: sum(fields[name] for fields in self._fields) for name in ADDED_UP}
        rate = total["msgRateIn"]
        average = total["msgThroughputIn"] / rate if rate else 0.0
        whole = with_oldest({**kept, **total}, self._fields)
        return {**whole, "averageMsgSize": average, "metadata": self._metadata}


def row_pieces(fields: Json, consumers: Sequence[ConsumerStatistics]) -> Iterator[str]:
    """A subscription as JSON. Its consumers are rows as well, unless they are few."""
    if len(consumers) <= CONSUMERS_IN_ROW_MAX and not any(map(_has_many_ranges, consumers)):
        yield encoded({**fields, "consumers": [consumer_json(each) for each in consumers]})
        return
    yield "{" + json_fields(fields)
    before = ',"consumers":['
    for each in consumers:
        for piece in _consumer_pieces(each):
            yield before + piece
            before = ""
        before = ","
    yield "]}"


def consumer_json(consumer: ConsumerStatistics) -> Json:
    """ConsumerStats, without its key ranges if they are more than a row bears. Pulsar omits fields
    without a value, and writes addresses with a slash before them."""
    if _has_many_ranges(consumer):
        consumer = replace(consumer, key_hash_ranges=None)
    row = _without_none(consumer.as_json())
    row["address"] = f"/{row['address'].lstrip('/')}"
    return row


def _has_many_ranges(consumer: ConsumerStatistics) -> bool:
    ranges = consumer.key_hash_ranges
    return ranges is not None and len(ranges) > RANGES_IN_ROW_MAX


def _consumer_pieces(consumer: ConsumerStatistics) -> Iterator[str]:
    if not _has_many_ranges(consumer):
        yield encoded(consumer_json(consumer))
        return
    yield "{" + json_fields(consumer_json(consumer))
    ranges = consumer.key_hash_ranges or ()
    for field, shown in (("keyHashRanges", range_text), ("keyHashRangeArrays", list)):
        before = f',"{field}":['
        for start in range(0, len(ranges), RANGES_IN_ROW_MAX):
            portion = ranges[start : start + RANGES_IN_ROW_MAX]
            yield before + encoded([shown(each) for each in portion])[1:-1]
            before = ","
        yield "]"
    yield "}"


@final
class LedgerSizes:
    """Bytes after positions of one topic, by binary search."""

    def __init__(self, rows: Sequence[LedgerRow]) -> None:
        self._rows = rows
        self._ids = [row.ledger_id for row in self._rows]
        sizes = [0, *accumulate(row.size_bytes for row in reversed(self._rows))]
        self._after = sizes[::-1]
        """By index: bytes of the ledger and all later ones."""

    def behind(self, position: Position) -> int:
        """Bytes after a position. Inside a ledger entries count with their mean size."""
        ledger_id, entry_id = position
        index = bisect_left(self._ids, ledger_id)
        if index == len(self._ids) or self._ids[index] != ledger_id:
            return self._after[index]
        row = self._rows[index]
        left = max(0, row.entries - entry_id - 1)
        inside = row.size_bytes * left // row.entries if row.entries else 0
        return self._after[index + 1] + inside


def _publisher(producer: Producer) -> Json:
    rate = producer.rate_messages_in
    return {
        "accessMode": ACCESS_MODE_NAMES[producer.request.access_mode],
        "msgRateIn": rate,
        "msgThroughputIn": producer.rate_bytes_in,
        "averageMsgSize": producer.rate_bytes_in / rate if rate else 0.0,
        "chunkedMessageRate": producer.rate_chunks_in,
        "producerId": producer.producer_id,
        "supportsPartialProducer": ("supports_partial_producer" in producer.session.features),
        "producerName": producer.name,
        "address": producer.session.remote_address,
        "connectedSince": iso_time(producer.connected_since_ms),
        "clientVersion": producer.session.client_version,
        "metadata": dict(producer.request.metadata),
    }


def _deduplication(topic: Topic) -> str:
    return "Enabled" if topic.has_part(DEDUPLICATION) else "Disabled"


def _without_none(fields: Json) -> Json:
    return {key: value for key, value in fields.items() if value is not None}
