"""Takes the statistics of a persistent subscription from the state that decides delivery."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from broker.topics.subscription.api import Subscription
from broker.topics.subscription.dispatch_key_shared import KeySharedDispatcher
from broker.topics.subscription.statistics import (
    ConsumerStatistics,
    ConsumerSums,
    SubscriptionStatistics,
)
from broker.topics.subscription.sub_types import KEY_SHARED

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Mapping, Sequence

    from broker.topics.subscription.consumer import Consumer
    from broker.topics.subscription.dispatch_gate import DispatchGate
    from broker.topics.subscription.dispatcher import Dispatcher
    from broker.topics.subscription.ports import CursorPort
    from broker.topics.subscription.pump import Pump
    from broker.topics.subscription.rates import Rates


RANGES_PER_STEP: Final = 64
KeyRanges = dict["Consumer", list[tuple[int, int]]]


def consumer_statistics(
    consumer: Consumer,
    rates: Rates,
    dispatcher: Dispatcher | None,
    ranges: Sequence[tuple[int, int]] | None = None,
) -> ConsumerStatistics:
    """One consumer; without a dispatcher that of a non-persistent topic. `ranges`: its key ranges,
    where those of all consumers have been read."""
    if ranges is None and dispatcher is not None:
        ranges = dispatcher.ranges_of(consumer)
    counters, session = consumer.counters, consumer.session
    return ConsumerStatistics(
        consumer_name=consumer.name,
        address=session.remote_address,
        client_version=session.client_version,
        connected_since_ms=consumer.connected_since_ms,
        app_id=consumer.role,
        available_permits=consumer.permits.available,
        unacked_messages=consumer.pending.messages,
        blocked_on_unacked=consumer.blocked_on_unacked,
        messages_out=counters.messages_out,
        bytes_out=counters.bytes_out,
        messages_redelivered=counters.messages_redelivered,
        messages_acked=counters.messages_acked,
        entries_out=counters.entries_out,
        flow_last_ms=counters.flow_last_ms,
        consumed_last_ms=counters.consumed_last_ms,
        acked_last_ms=counters.acked_last_ms,
        message_rate_out=rates.messages_out,
        byte_rate_out=rates.bytes_out,
        redeliver_rate=rates.redelivered,
        ack_rate=rates.acks,
        chunk_rate=rates.chunks,
        drop_rate=rates.dropped if dispatcher is None else None,
        key_hash_ranges=None if ranges is None else tuple(ranges),
        draining_hashes=() if dispatcher is None else dispatcher.draining_of(consumer),
        draining_hashes_cleared=counters.draining_hashes_cleared,
        metadata=consumer.metadata,
    )


class Shown(Subscription, Protocol):
    """The state of a persistent subscription that its statistics show."""

    @property
    def cursor(self) -> CursorPort:
        """Its position."""

    @property
    def dispatcher(self) -> Dispatcher | None:
        """None before the first consumer."""

    @property
    def gate(self) -> DispatchGate:
        """Its rates of dispatch."""

    @property
    def pump(self) -> Pump:
        """The pump that runs the steps of the dispatcher."""

    @property
    def rates(self) -> Mapping[Consumer, Rates]:
        """The rates of each connected consumer."""

    @property
    def flow_last_ms(self) -> int:
        """Time of the last FLOW of a consumer, wall ms; 0: none. So are the next three."""

    @property
    def consumed_last_ms(self) -> int:
        """The time of the last message sent to a consumer that has left."""

    @property
    def acked_last_ms(self) -> int:
        """The time of the last ack."""

    @property
    def mark_delete_last_ms(self) -> int:
        """The time of the last move of the mark-delete position."""


def why_not_dispatching(subscription: Shown) -> str:
    """Empty when there is nothing to deliver or nothing blocks it."""
    if not subscription.backlog_entries:
        return ""
    dispatcher = subscription.dispatcher
    if dispatcher is None or not subscription.consumers:
        return "no consumer"
    pump = subscription.pump
    if pump.failure:
        return f"waiting for storage: {pump.failure}"
    if reason := dispatcher.why():
        return reason
    if reason := subscription.gate.why():
        return reason
    return "waiting for storage" if pump.waiting else ""


def ranges_by_consumer(
    dispatcher: Dispatcher | None,
) -> Generator[None, None, KeyRanges | None]:
    """The key ranges of all consumers, a few per step: one of 10,000 consumers has its own among
    those of all others."""
    given = None if dispatcher is None else dispatcher.key_ranges()
    if given is None:
        return None
    found: KeyRanges = {}
    for number, (start, end, consumer) in enumerate(given, 1):
        found.setdefault(consumer, []).append((start, end))
        if number % RANGES_PER_STEP == 0:
            yield
    return found


def consumer_rows(
    consumers: Iterable[Consumer],
    rates: Mapping[Consumer, Rates],
    dispatcher: Dispatcher | None,
    sums: ConsumerSums,
) -> Generator[None, None, list[ConsumerStatistics]]:
    """The rows of consumers that are connected when their turn comes, one per step."""
    ranges = yield from ranges_by_consumer(dispatcher)
    rows: list[ConsumerStatistics] = []
    for consumer in list(consumers):
        rates_of_it = rates.get(consumer)
        if rates_of_it is not None:
            own = None if ranges is None else ranges.get(consumer, ())
            row = consumer_statistics(consumer, rates_of_it, dispatcher, own)
            sums.add(row)
            rows.append(row)
        yield
    return rows


def subscription_statistics(
    subscription: Shown,
) -> Generator[None, None, SubscriptionStatistics]:
    """The whole subscription."""
    sums = ConsumerSums()
    consumers = yield from consumer_rows(
        subscription.consumers, subscription.rates, subscription.dispatcher, sums
    )
    dispatcher, cursor = subscription.dispatcher, subscription.cursor
    active = None if dispatcher is None else dispatcher.active
    mode = None
    out_of_order = False
    if isinstance(dispatcher, KeySharedDispatcher) and subscription.sub_type == KEY_SHARED:
        mode = "STICKY" if dispatcher.sticky else "AUTO_SPLIT"
        out_of_order = dispatcher.out_of_order_allowed
    messages_out, bytes_out = subscription.delivered()
    return SubscriptionStatistics(
        sub_type=subscription.sub_type,
        durable=subscription.durable,
        backlog_entries=cursor.backlog_entries,
        delayed_messages=0 if dispatcher is None else dispatcher.delayed_messages,
        replay_messages=0 if dispatcher is None else dispatcher.replay_messages,
        unacked_messages=0 if dispatcher is None else dispatcher.unacked_messages,
        blocked_on_unacked=dispatcher is not None and dispatcher.blocked_on_unacked,
        messages_out=messages_out,
        bytes_out=bytes_out,
        consumers=consumers,
        sums=sums,
        why_not_dispatching=subscription.why_not_dispatching(),
        active_consumer_name=None if active is None else active.name,
        out_of_order_allowed=out_of_order,
        key_shared_mode=mode,
        acked_ranges_count=cursor.individually_acked_count,
        flow_last_ms=subscription.flow_last_ms,
        consumed_last_ms=max(subscription.consumed_last_ms, sums.consumed_last_ms),
        acked_last_ms=subscription.acked_last_ms,
        mark_delete_last_ms=subscription.mark_delete_last_ms,
        expired_messages=subscription.expirations.total,
        expired_last_ms=subscription.expirations.last_ms,
        expire_rate=subscription.expirations.rate,
        properties=cursor.properties,
        replicated=cursor.is_replicated,
        throttled=dict(subscription.gate.throttled),
    )
