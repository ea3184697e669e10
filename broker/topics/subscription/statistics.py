"""Snapshots of subscriptions and consumers, and their JSON form with Pulsar's field names.

Everything is computed on request, from the state that decides delivery, so the statistics cannot
disagree with the behaviour. A subscription may have very many consumers, so its statistics are a
generator whose steps are bounded work, and other tasks may run between two steps. Each row of a
consumer shows one instant, and the sums are those of the rows.

`whyNotDispatching` is Vela's own; every other name is Pulsar's.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar, final

from broker.limits.dispatch_budget import throttled_json
from broker.topics.subscription.sub_types import TYPE_NAMES

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence

    from broker.limits.dispatch_budget import Throttled

T = TypeVar("T")

Json = dict[str, Any]


@final
@dataclass(frozen=True, slots=True)
class DrainingHash:
    """A key slot that waits for its former consumer to acknowledge (PIP-379)."""

    key_hash: int
    unacked_messages: int
    blocked_attempts: int

    def as_json(self) -> Json:
        """Pulsar's DrainingHash."""
        return {
            "hash": self.key_hash,
            "unackMsgs": self.unacked_messages,
            "blockedAttempts": self.blocked_attempts,
        }


@final
@dataclass(frozen=True, slots=True)
class ConsumerStatistics:
    """One consumer."""

    consumer_name: str
    address: str
    client_version: str
    connected_since_ms: int
    app_id: str
    available_permits: int
    unacked_messages: int
    blocked_on_unacked: bool
    messages_out: int
    bytes_out: int
    messages_redelivered: int
    messages_acked: int
    entries_out: int
    flow_last_ms: int
    consumed_last_ms: int
    acked_last_ms: int
    message_rate_out: float = 0.0
    byte_rate_out: float = 0.0
    redeliver_rate: float = 0.0
    ack_rate: float = 0.0
    chunk_rate: float = 0.0
    drop_rate: float | None = None
    key_hash_ranges: tuple[tuple[int, int], ...] | None = None
    draining_hashes: tuple[DrainingHash, ...] = ()
    draining_hashes_cleared: int = 0
    metadata: Mapping[str, str] = field(default_factory=dict)

    def as_json(self) -> Json:
        """Pulsar's ConsumerStats."""
        average = round(self.messages_out / self.entries_out) if self.entries_out else 0
        ranges = self.key_hash_ranges
        result: Json = {
            "appId": self.app_id or None,
            "msgRateOut": self.message_rate_out,
            "msgThroughputOut": self.byte_rate_out,
            "bytesOutCounter": self.bytes_out,
            "msgOutCounter": self.messages_out,
            "msgRateRedeliver": self.redeliver_rate,
            "messageAckRate": self.ack_rate,
            "chunkedMessageRate": self.chunk_rate,
            "consumerName": self.consumer_name,
            "availablePermits": self.available_permits,
            "unackedMessages": self.unacked_messages,
            "avgMessagesPerEntry": average,
            "blockedConsumerOnUnackedMsgs": self.blocked_on_unacked,
            "drainingHashesCount": len(self.draining_hashes),
            "drainingHashesClearedTotal": self.draining_hashes_cleared,
            "drainingHashesUnackedMessages": sum(
                draining.unacked_messages for draining in self.draining_hashes
            ),
            "drainingHashes": [draining.as_json() for draining in self.draining_hashes],
            "address": self.address,
            "connectedSince": iso_time(self.connected_since_ms),
            "clientVersion": self.client_version,
            "lastAckedTimestamp": self.acked_last_ms,
            "lastConsumedTimestamp": self.consumed_last_ms,
            "lastConsumedFlowTimestamp": self.flow_last_ms,
            "metadata": dict(self.metadata),
            "lastAckedTime": iso_time(self.acked_last_ms),
            "lastConsumedTime": iso_time(self.consumed_last_ms),
        }
        if ranges is not None:
            result["keyHashRanges"] = [range_text(each) for each in ranges]
            result["keyHashRangeArrays"] = [[start, end] for start, end in ranges]
        if self.drop_rate is not None:
            result["msgDropRate"] = self.drop_rate
        return result


def range_text(key_range: tuple[int, int]) -> str:
    """A range of key slots as Pulsar writes it."""
    start, end = key_range
    return f"[{start}, {end}]"


@final
@dataclass(slots=True)
class ConsumerSums:
    """Sums over the consumers of a subscription, made while their rows are made."""

    consumers: int = 0
    message_rate_out: float = 0.0
    byte_rate_out: float = 0.0
    redeliver_rate: float = 0.0
    ack_rate: float = 0.0
    chunk_rate: float = 0.0
    draining_hashes: int = 0
    draining_hashes_cleared: int = 0
    draining_unacked_messages: int = 0
    consumed_last_ms: int = 0

    def add(self, row: ConsumerStatistics) -> None:
        """Count a consumer."""
        self.consumers += 1
        self.message_rate_out += row.message_rate_out
        self.byte_rate_out += row.byte_rate_out
        self.redeliver_rate += row.redeliver_rate
        self.ack_rate += row.ack_rate
        self.chunk_rate += row.chunk_rate
        self.draining_hashes += len(row.draining_hashes)
        self.draining_hashes_cleared += row.draining_hashes_cleared
        for draining in row.draining_hashes:
            self.draining_unacked_messages += draining.unacked_messages
        self.consumed_last_ms = max(self.consumed_last_ms, row.consumed_last_ms)


@final
@dataclass(frozen=True, slots=True)
class SubscriptionStatistics:
    """One subscription."""

    sub_type: int | None
    durable: bool
    backlog_entries: int
    delayed_messages: int
    replay_messages: int
    unacked_messages: int
    blocked_on_unacked: bool
    messages_out: int
    bytes_out: int
    consumers: Sequence[ConsumerStatistics]
    sums: ConsumerSums
    why_not_dispatching: str
    active_consumer_name: str | None = None
    out_of_order_allowed: bool = False
    key_shared_mode: str | None = None
    acked_ranges_count: int = 0
    flow_last_ms: int = 0
    consumed_last_ms: int = 0
    acked_last_ms: int = 0
    mark_delete_last_ms: int = 0
    replicated: bool = False
    """Other clusters are to know its position."""
    expired_messages: int = 0
    expired_last_ms: int = 0
    expire_rate: float = 0.0
    messages_dropped: int | None = None
    drop_rate: float = 0.0
    properties: Mapping[str, str] = field(default_factory=dict)
    type_name: str | None = None
    """Overrides the name of `sub_type` (kinds that are not stock)."""
    details: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the JSON form that a kind adds, or overrides from the rows of `consumers`."""
    throttled: Mapping[str, Throttled] = field(default_factory=dict)
    """By the level of the rate of dispatch."""

    def as_json(self, *, consumers: bool = True, backlog_size: int = 0) -> Json:
        """Pulsar's SubscriptionStats. The topic supplies `backlog_size`."""
        by_number = TYPE_NAMES.get(self.sub_type, "None") if self.sub_type is not None else "None"
        sums = self.sums
        result: Json = {
            "msgRateOut": sums.message_rate_out,
            "msgThroughputOut": sums.byte_rate_out,
            "bytesOutCounter": self.bytes_out,
            "msgOutCounter": self.messages_out,
            "msgRateRedeliver": sums.redeliver_rate,
            "messageAckRate": sums.ack_rate,
            "chunkedMessageRate": int(sums.chunk_rate),
            "msgBacklog": self.backlog_entries,
            "backlogSize": backlog_size,
            "earliestMsgPublishTimeInBacklog": 0,
            "msgBacklogNoDelayed": max(0, self.backlog_entries - self.delayed_messages),
            "blockedSubscriptionOnUnackedMsgs": self.blocked_on_unacked,
            "msgDelayed": self.delayed_messages,
            "msgInReplay": self.replay_messages,
            "unackedMessages": self.unacked_messages,
            "type": self.type_name or by_number,
            "activeConsumerName": self.active_consumer_name,
            "msgRateExpired": self.expire_rate,
            "totalMsgExpired": self.expired_messages,
            "lastExpireTimestamp": self.expired_last_ms,
            "lastConsumedFlowTimestamp": self.flow_last_ms,
            "lastConsumedTimestamp": self.consumed_last_ms,
            "lastAckedTimestamp": self.acked_last_ms,
            "lastMarkDeleteAdvancedTimestamp": self.mark_delete_last_ms,
            "consumers": [row.as_json() for row in self.consumers] if consumers else [],
            "consumersCount": sums.consumers,
            "isDurable": self.durable,
            "isReplicated": self.replicated,
            "allowOutOfOrderDelivery": self.out_of_order_allowed,
            "consumersAfterMarkDeletePosition": {},
            "drainingHashesCount": sums.draining_hashes,
            "drainingHashesClearedTotal": sums.draining_hashes_cleared,
            "drainingHashesUnackedMessages": sums.draining_unacked_messages,
            "nonContiguousDeletedMessagesRanges": self.acked_ranges_count,
            "nonContiguousDeletedMessagesRangesSerializedSize": 0,
            "delayedMessageIndexSizeInBytes": self.delayed_messages * 16,
            "bucketDelayedIndexStats": {},
            "subscriptionProperties": dict(self.properties),
            "filterProcessedMsgCount": 0,
            "filterAcceptedMsgCount": 0,
            "filterRejectedMsgCount": 0,
            "filterRescheduledMsgCount": 0,
            **throttled_json(self.throttled),
            "durable": self.durable,
            "replicated": self.replicated,
            "whyNotDispatching": self.why_not_dispatching,
        }
        if self.key_shared_mode is not None:
            result["keySharedMode"] = self.key_shared_mode
        if self.messages_dropped is not None:
            result["msgDropRate"] = self.drop_rate
            result["messagesDropped"] = self.messages_dropped
        result.update(self.details)
        return result


def at_once(steps: Generator[None, None, T]) -> T:
    """The result of all steps without a pause."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result


def iso_time(wall_ms: int) -> str | None:
    """Pulsar's text form of a time; None when it never happened."""
    if not wall_ms:
        return None

    moment = datetime.fromtimestamp(wall_ms / 1000, tz=UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
