"""Statistics of a broadcast subscription: sums, extremes, and a few of its consumers.

A list of 100,000 rows would not be readable. The consumers that need attention are listed (the
largest backlog first), up to `CONSUMERS_LISTED`; the others are only counted. Percentiles of the
six stages show the latency. Everything is derived on request. The time at which one consumer was
last sent something or last acknowledged is not kept, and reported as 0.
"""

from __future__ import annotations

from heapq import nsmallest
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

from broker.topics.broadcast.stages import BUCKETS_SECONDS
from broker.topics.subscription.series import Gauge, HistogramSeries
from broker.topics.subscription.statistics import (
    ConsumerStatistics,
    ConsumerSums,
    SubscriptionStatistics,
)
from protocol.position import position_text

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from broker.topics.broadcast.members import BroadcastMembers
    from broker.topics.broadcast.stages import Histogram
    from broker.topics.subscription.consumer import Consumer
    from broker.topics.subscription.series import Series

CONSUMERS_LISTED: Final = 20
CONSUMERS_PER_STEP: Final = 100
"""Consumers that are looked at in one step; 32 steps are a slice."""
PARTS_PER_STEP: Final = 1_000
"""Groups of consumers, and consumers outside of groups, that are counted in one step."""
LAGGARD_ENTRIES: Final = 1
"""A consumer is a laggard when more than this many of the newest entries were not sent to it."""
_GAUGES: Final = (
    ("vela_broadcast_virtual_cursors", "virtualCursors", "Consumer names with a position"),
    ("vela_broadcast_virtual_cursors_kept", "virtualCursorsKept", "Of consumers that have left"),
    ("vela_broadcast_slowest_backlog", "slowestBacklog", "Backlog of the slowest consumer"),
    ("vela_broadcast_laggards", "laggards", "Connected consumers not sent the newest entries"),
    ("vela_broadcast_without_permits", "withoutPermits", "Consumers that take nothing now"),
    ("vela_broadcast_connections_full", "connectionsFull", "Connections that take nothing now"),
)
_STAGE: Final = "vela_broadcast_stage_seconds"
_STAGE_HELP: Final = "Where the time of a broadcast message goes"


def consumer_statistics(members: BroadcastMembers, consumer: Consumer) -> ConsumerStatistics:
    """One attached consumer."""
    slot = members.attached[consumer]
    groups, session = members.groups, consumer.session
    return ConsumerStatistics(
        consumer_name=consumer.name,
        address=session.remote_address,
        client_version=session.client_version,
        connected_since_ms=consumer.connected_since_ms,
        app_id=consumer.role,
        available_permits=groups.permits[slot],
        unacked_messages=groups.unacked(slot),
        blocked_on_unacked=groups.is_blocked(slot),
        messages_out=groups.messages_out(slot),
        bytes_out=groups.bytes_out[slot],
        messages_redelivered=groups.redelivered.get(slot, 0),
        messages_acked=max(0, groups.messages_out(slot) - groups.unacked(slot)),
        entries_out=groups.messages_out(slot),
        flow_last_ms=groups.flow_ms[slot],
        consumed_last_ms=0,
        acked_last_ms=0,
        metadata=consumer.metadata,
    )


def slowest_connected(
    members: BroadcastMembers, count: int
) -> Generator[None, None, list[Consumer]]:
    """Connected consumers, the largest backlog first."""
    found: list[tuple[int, Consumer]] = []
    attached = members.attached
    consumers = list(attached)
    for start in range(0, len(consumers), CONSUMERS_PER_STEP):
        part = consumers[start : start + CONSUMERS_PER_STEP]
        acked = members.cursors.acked
        slots = [(each, slot) for each in part if (slot := attached.get(each)) is not None]
        if len(found) == count:
            worst = found[-1][0]
            slots = [row for row in slots if acked[row[1]] < worst]
        if slots:
            rows = [*found, *((acked[slot], each) for each, slot in slots)]
            found = nsmallest(count, rows, key=itemgetter(0))
        yield
    return [consumer for _, consumer in found]


def counts(members: BroadcastMembers) -> Generator[None, None, tuple[int, int]]:
    """Entries sent and not acknowledged over all connected consumers, and the laggards among these.

    Consumers in groups are counted by group, in one step. If there are many groups, or many
    consumers outside of them, each consumer is counted by itself.
    """
    cursors, fanout, groups = members.cursors, members.fanout, members.groups
    if not cursors.ragged_count and len(fanout.lanes) <= PARTS_PER_STEP:
        parts = groups.dry + groups.blocked + cursors.detached
        parts += sum([len(lane.groups) + len(lane.solos) for lane in fanout.lanes.values()])
        if parts <= PARTS_PER_STEP:
            sent = sent_counts(members)
            behind = members.ordinals.tail - LAGGARD_ENTRIES
            laggards = sum(count for ordinal, count in sent.items() if ordinal < behind)
            return total_unacked(members, sent), laggards
    unacked = laggards = 0
    attached = members.attached
    for number, consumer in enumerate(list(attached), 1):
        slot = attached.get(consumer)
        if slot is not None:
            unacked += groups.unacked(slot)
            laggards += groups.sent[slot] < members.ordinals.tail - LAGGARD_ENTRIES
        if number % CONSUMERS_PER_STEP == 0:
            yield
    return unacked, laggards


def sent_counts(members: BroadcastMembers) -> dict[int, int]:
    """Number of connected consumers by the ordinal sent to them last. Counted by group."""
    sent = members.groups.sent
    counts: dict[int, int] = {}
    for lane in members.fanout.lanes.values():
        for (ordinal, _), group in lane.groups.items():
            counts[ordinal] = counts.get(ordinal, 0) + len(group)
    for slot in alone(members):
        counts[sent[slot]] = counts.get(sent[slot], 0) + 1
    return counts


def alone(members: BroadcastMembers) -> list[int]:
    """Connected consumers that are in no group."""
    solos = [slot for lane in members.fanout.lanes.values() for slot in lane.solos]
    return [*solos, *members.groups.parked_slots()]


def total_unacked(members: BroadcastMembers, sent: Mapping[int, int]) -> int:
    """Entries sent and not acknowledged, over all connected consumers, none of which has
    acknowledged out of order. Members of groups have acknowledged nothing ahead of what they were
    sent, so sums suffice. `sent`: their `sent_counts`."""
    groups, cursors = members.groups, members.cursors
    apart = alone(members)
    acked = cursors.acked
    sent_total = sum(ordinal * count for ordinal, count in sent.items())
    in_groups = sent_total - sum([groups.sent[slot] for slot in apart])
    in_groups -= cursors.acked_total_of_attached() - sum([acked[slot] for slot in apart])
    return in_groups + sum(map(groups.unacked, apart))


def broadcast_statistics(
    members: BroadcastMembers,
) -> Generator[None, None, SubscriptionStatistics]:
    """The whole subscription."""
    slowest = yield from slowest_connected(members, CONSUMERS_LISTED)
    unacked, laggards = yield from counts(members)
    listed = [each for each in slowest if each in members.attached]
    groups, fanout = members.groups, members.fanout
    return SubscriptionStatistics(
        sub_type=members.sub_type,
        durable=members.durable,
        backlog_entries=members.backlog_entries,
        delayed_messages=0,
        replay_messages=groups.replaying,
        unacked_messages=unacked,
        blocked_on_unacked=False,
        messages_out=fanout.messages_out,
        bytes_out=fanout.bytes_out,
        consumers=[consumer_statistics(members, consumer) for consumer in listed],
        sums=ConsumerSums(len(members.attached), *members.rates[:2], ack_rate=members.rates[2]),
        why_not_dispatching=why_not_dispatching(members),
        acked_ranges_count=members.cursors.ragged_count,
        flow_last_ms=members.flow_last_ms,
        consumed_last_ms=fanout.sent_last_ms,
        acked_last_ms=members.acks.last_ms,
        mark_delete_last_ms=members.keeper.moved_last_ms,
        expired_messages=members.expirations.total,
        expired_last_ms=members.expirations.last_ms,
        expire_rate=members.expirations.rate,
        properties=members.properties,
        type_name="Broadcast",
        throttled=dict(fanout.gate.throttled),
        details={"broadcast": broadcast_details(members, laggards)},
    )


def broadcast_details(members: BroadcastMembers, laggards: int) -> dict[str, Any]:
    """Fields that only a broadcast has."""
    cursors, groups, ordinals = members.cursors, members.groups, members.ordinals
    tail = ordinals.tail
    slowest, fastest = cursors.minimum, cursors.maximum
    return {
        "consumersConnected": len(members.attached),
        "virtualCursors": len(cursors),
        "virtualCursorsKept": cursors.detached,
        "slowestPosition": _text(members, slowest),
        "slowestBacklog": 0 if slowest is None else tail - slowest,
        "fastestPosition": _text(members, fastest),
        "fastestBacklog": 0 if fastest is None else max(0, tail - fastest),
        "laggards": laggards,
        "withoutPermits": groups.dry,
        "blockedOnUnacked": groups.blocked,
        "connections": len(members.fanout.lanes),
        "connectionsFull": members.fanout.full_lanes,
        "acknowledgedOutOfOrder": cursors.ragged_count,
        "snapshots": members.keeper.snapshots,
        "snapshotFailure": members.keeper.failure,
        "stages": {
            name: stage_json(histogram) for name, histogram in members.stages.histograms.items()
        },
    }


def broadcast_series(members: BroadcastMembers, statistics: SubscriptionStatistics) -> list[Series]:
    """For metrics: no series per consumer."""
    details = statistics.details["broadcast"]
    series: list[Series] = [
        Gauge(name, help_text, details[field]) for name, field, help_text in _GAUGES
    ]
    for stage, histogram in members.stages.histograms.items():
        labels = (("stage", stage),)
        buckets = (BUCKETS_SECONDS, histogram.counts)
        series.append(HistogramSeries(_STAGE, _STAGE_HELP, labels, *buckets, histogram.total))
    return series


def stage_json(histogram: Histogram) -> dict[str, float]:
    """Count and percentiles in ms."""
    return {
        "count": histogram.count,
        "p50Ms": round(1000 * histogram.percentile(0.50), 3),
        "p99Ms": round(1000 * histogram.percentile(0.99), 3),
        "maxMs": round(1000 * histogram.maximum, 3),
    }


def _text(members: BroadcastMembers, ordinal: int | None) -> str | None:
    return None if ordinal is None else position_text(members.ordinals.position(ordinal))


def why_not_dispatching(members: BroadcastMembers) -> str:
    """The reason that blocks delivery to the slowest consumer; empty if none does."""
    cursors, groups, fanout = members.cursors, members.groups, members.fanout
    if members.seeking:
        return "a seek is under way"
    if not members.backlog_entries:
        return ""
    if not members.attached:
        return f"no consumer ({cursors.detached} are kept for consumers that may come back)"
    reasons = []
    if fanout.failure:
        reasons.append(f"waiting for storage: {fanout.failure}")
    if held := fanout.gate.why():
        reasons.append(held)
    if blocked := groups.blocked:
        reasons.append(f"{blocked} consumers blocked on unacked messages")
    if dry := groups.dry:
        reasons.append(f"{dry} consumers without permits")
    if full := fanout.full_lanes:
        reasons.append(f"{full} connections are full")
    if cursors.detached:
        reasons.append(f"{cursors.detached} consumers are not connected")
    return "; ".join(reasons)
