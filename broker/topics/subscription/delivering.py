"""Delivery from a cursor to consumers: the part of a stock subscription that sends and is acked.

It owns the consumers and the dispatcher of a type, and the rules common to all types: which
consumers may attach, the effect of an ack on the cursor, the steps of delivery and their rates, the
end of the topic. The dispatcher is replaced when consumers of another type arrive after all others
have left.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import structlog

from broker.topics.subscription.acknowledgements import Acknowledgements
from broker.topics.subscription.compatibility import (
    check_compatible,
    check_reads_compacted,
    in_the_way,
)
from broker.topics.subscription.config import SLICE_BYTES_MAX
from broker.topics.subscription.dispatch_gate import Allowance, DispatchGate
from broker.topics.subscription.dispatch_key_shared import KeySharedDispatcher
from broker.topics.subscription.dispatch_shared import SharedDispatcher
from broker.topics.subscription.dispatch_single import SingleDispatcher
from broker.topics.subscription.pump import Pump, Step
from broker.topics.subscription.rates import Expirations, Rates
from broker.topics.subscription.sub_types import EXCLUSIVE, FAILOVER, KEY_SHARED, SHARED
from protocol.errors import BrokerError, ServerError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import trio

    from broker.topics.subscription.api import AckId
    from broker.topics.subscription.config import SubscriptionConfig
    from broker.topics.subscription.consumer import Consumer
    from broker.topics.subscription.dispatcher import Dispatcher
    from broker.topics.subscription.factory import TopicContext
    from broker.topics.subscription.ports import CursorPort, LedgerPort
    from broker.topics.subscription.request import SubscriptionRequest
    from protocol.position import Position

_log = structlog.get_logger()


@lru_cache(maxsize=4)
def slice_of(config: SubscriptionConfig) -> Allowance:
    """The slice that one step of a subscription may send."""
    return Allowance(
        config.dispatcher_max_read_batch_size,
        min(config.dispatcher_max_read_size_bytes, SLICE_BYTES_MAX),
    )


class DeliveringSubscription:
    """Exclusive, Failover, Shared or Key_Shared over one cursor, as far as its consumers are
    concerned. While `_seeking` the cursor is being moved: nothing is sent, and acks are ignored."""

    def __init__(self, context: TopicContext, cursor: CursorPort, *, durable: bool) -> None:
        if context.ledger is None:
            raise ValueError("a persistent subscription needs a ledger")
        self.name = cursor.name
        self.durable = durable
        self.context = context
        self.cursor = cursor
        self.sub_type: int | None = None
        self.consumers: dict[Consumer, None] = {}
        self.dispatcher: Dispatcher | None = None
        self.rates: dict[Consumer, Rates] = {}
        self.active_at = context.clock.now()
        self.expirations = Expirations(self.active_at)
        self.messages_out_before = 0
        """Messages sent by dispatchers that were replaced."""
        self.bytes_out_before = 0
        self.flow_last_ms = 0
        self.consumed_last_ms = 0
        self._ledger: LedgerPort = context.ledger
        self._clock = context.clock
        self._config = context.config
        self._acks = Acknowledgements(cursor, context.ledger, context.config, context.clock)
        self._seeking = False
        self._closed = False
        self._has_ignored_ack = False
        self._joined = 0
        self._linger: trio.CancelScope | None = None
        self._slice = slice_of(self._config)
        self._pump: Pump | None = None
        self._gate: DispatchGate | None = None

    # Parts that only consumers need

    @property
    def pump(self) -> Pump:
        """The pump that runs the steps of the dispatcher."""
        return self._pump or self._equip()

    @property
    def gate(self) -> DispatchGate:
        """Its rates of dispatch."""
        if self._gate is None:
            self._equip()
        assert self._gate is not None
        return self._gate

    def _equip(self) -> Pump:
        """Make both. Most subscriptions have no consumer most of the time."""
        context = self.context
        pump = self._pump = Pump(
            context.topic_name, self.name, context.nursery, context.clock, self._step, self._fill
        )
        self._gate = DispatchGate(self.name, context, pump.run)
        self._use_rates()
        if self._closed:
            self._close_equipment()
        return pump

    def _close_equipment(self) -> None:
        if self._pump is not None and self._gate is not None:
            self._pump.close()
            self._gate.close()

    def rest(self) -> None:
        """No consumer has come for a while: give up what only consumers need. The first one that
        comes gets a new dispatcher, which begins after the mark-delete position as an old one
        would. Nothing is given up that is under way, or that statistics show."""
        pump, gate, dispatcher = self._pump, self._gate, self.dispatcher
        if self.consumers or self._seeking or self._closed or self._linger is not None:
            return
        self.consumers, self.rates = {}, {}  # An emptied dictionary stays as large as it was.
        if dispatcher is not None:
            if self.sub_type == KEY_SHARED:
                return  # its mode is shown
            self.messages_out_before += dispatcher.messages_out
            self.bytes_out_before += dispatcher.bytes_out
            self._forget_unacked()
            self.dispatcher = None
        if pump is not None and gate is not None and not pump.is_busy and not gate.throttled:
            self._close_equipment()
            self._pump = self._gate = None

    # Consumers

    @property
    def properties(self) -> Mapping[str, str]:
        """Stored with its cursor."""
        return self.cursor.properties

    def admits(self, durable: bool) -> bool:
        """It admits only consumers of its own durability."""
        return durable == self.durable

    async def locate(self, request: SubscriptionRequest) -> SubscriptionRequest:
        """All consumers start at the cursor."""
        return request

    def attach(self, consumer: Consumer) -> None:
        """Add the consumer. Raises: BrokerError: why it is refused; nothing has changed."""
        self._check_open()
        if consumer.read_compacted:
            check_reads_compacted(consumer.sub_type, persistent=True)
        check_compatible(self.consumers, consumer)
        consumers_max = self.context.limits.max_consumers_per_subscription
        if consumer.sub_type != EXCLUSIVE and 0 < consumers_max <= len(self.consumers):
            raise BrokerError(ServerError.ConsumerBusy, "Subscription reached max consumers limit")
        consumer.equip()
        dispatcher = self.dispatcher if self.consumers else self._dispatcher_for(consumer)
        assert dispatcher is not None
        dispatcher.add(consumer)
        self.dispatcher = dispatcher
        self.sub_type = consumer.sub_type
        self._joined += 1
        consumer.joined = self._joined
        self.consumers[consumer] = None
        self.active_at = self._clock.now()
        self.rates[consumer] = Rates(self.active_at)
        if self._linger is not None:
            self._linger.cancel()
        self.pump.run()

    def in_the_way_of(self, consumer: Consumer) -> Consumer | None:
        """See the function."""
        return in_the_way(self.consumers, consumer)

    def _dispatcher_for(self, consumer: Consumer) -> Dispatcher:
        """The current dispatcher, if it has the type and holds no old state; else a new one."""
        former = self.dispatcher
        if former is not None:
            if former.sub_type == consumer.sub_type and former.sub_type != KEY_SHARED:
                former.rewind()
                return former
            former.close()
            self.messages_out_before += former.messages_out
            self.bytes_out_before += former.bytes_out
        return new_dispatcher(consumer, self.context, self._ledger, self.cursor, self.pump)

    def _check_open(self) -> None:
        if self._closed or self._seeking:
            raise BrokerError(ServerError.ServiceNotReady, "Subscription is fenced")

    def announce_active(self, consumer: Consumer) -> None:
        """The consumer was answered: send it its notifications."""
        if consumer in self.rates and self.dispatcher is not None:
            self.dispatcher.announce(consumer)
            self._tell_end()

    def remove_consumer(self, consumer: Consumer) -> None:
        """Detach. Its unacked entries go to others at once."""
        if consumer not in self.rates or self.dispatcher is None:
            return
        self.active_at = self._clock.now()
        del self.consumers[consumer]
        del self.rates[consumer]
        self.dispatcher.remove(consumer)
        self.consumed_last_ms = max(self.consumed_last_ms, consumer.counters.consumed_last_ms)
        if self.consumers:
            self.pump.run()
        elif not self.durable and not self._closed and not self._seeking and self._linger is None:
            self._abandon()

    def _abandon(self) -> None:
        """The last consumer of a subscription that is not durable has left."""
        raise NotImplementedError

    def _forget_unacked(self) -> None:
        dispatcher, limit = self.dispatcher, self.context.broker_unacked
        if dispatcher is not None:
            dispatcher.close()
            if limit is not None:
                limit.forget(dispatcher)

    def flow(self, consumer: Consumer, permits: int) -> None:
        """More permits."""
        if consumer not in self.rates or self.dispatcher is None:
            return
        consumer.permits.grant(permits)
        consumer.counters.flow_last_ms = self.flow_last_ms = self._clock.wall_ms()
        self.dispatcher.ready(consumer)
        self.pump.run()

    def on_writable(self, consumer: Consumer) -> None:
        """The outbox of its connection has room again. All subscriptions of the connection are
        notified at once."""
        if consumer in self.rates and self.dispatcher is not None:
            self.dispatcher.ready(consumer)
            self.pump.run_in_turn()

    # Acks and redelivery

    def ack(self, consumer: Consumer, ids: Sequence[AckId], *, cumulative: bool) -> None:
        """Acknowledge. A cumulative ack on Shared and Key_Shared, or one with several ids, is
        ignored, as in Pulsar. The first one is logged: a client can send any number of them."""
        if self._seeking or self._closed or consumer not in self.rates:
            return
        dispatcher = self.dispatcher
        if dispatcher is None:
            return
        before = self.cursor.mark_delete
        if not cumulative:
            self._acks.each(consumer, dispatcher, ids)
        elif self.sub_type in (SHARED, KEY_SHARED) or len(ids) != 1:
            if not self._has_ignored_ack:
                self._has_ignored_ack = True
                _log.warning(
                    "ignored a cumulative ack; others are not logged",
                    topic=self.context.topic_name,
                    subscription=self.name,
                    consumer=consumer.name,
                    ids=len(ids),
                )
            return
        else:
            self._acks.up_to(ids[0])
        self._acked(self._acks.settle(consumer, dispatcher, before))

    def ack_entries(self, consumer: Consumer, ledger_id: int, entry_ids: list[int]) -> None:
        """Acknowledge whole entries of one ledger, as `ack`."""
        dispatcher = self.dispatcher
        if self._seeking or self._closed or consumer not in self.rates or dispatcher is None:
            return
        self._acked(self._acks.of_entries(consumer, dispatcher, ledger_id, entry_ids))

    def _acked(self, may_send: bool) -> None:
        if may_send:
            self.pump.run()
        if self._ledger.terminated:
            self._tell_end()

    @property
    def acked_last_ms(self) -> int:
        """When a consumer acknowledged something, in wall ms."""
        return self._acks.last_ms

    @property
    def mark_delete_last_ms(self) -> int:
        """When its mark-delete position moved, in wall ms."""
        return self._acks.mark_delete_last_ms

    def redeliver(
        self, consumer: Consumer, positions: Sequence[Position] | None, epoch: int
    ) -> None:
        """Deliver again."""
        if consumer in self.rates and self.dispatcher is not None:
            self.dispatcher.redeliver(consumer, positions, epoch)
            self.pump.run()

    # Dispatch

    def tail_moved(self) -> None:
        """New entries."""
        if self.consumers:
            self.pump.run()

    def _step(self) -> Step:
        if self._seeking or self.dispatcher is None:
            return Step.IDLE
        most = self._slice
        return self.dispatcher.step(most.entries, most.size_bytes)

    def _step_within_rates(self) -> Step:
        """The same, if any rate of dispatch holds for it."""
        if self._seeking or self.dispatcher is None:
            return Step.IDLE
        return self.gate.step(self.dispatcher, self.cursor.backlog_entries, self._slice)

    def _use_rates(self) -> None:
        """Take up those in force. Without any, a step costs nothing for them."""
        self.pump.use_step(self._step_within_rates if self.gate.renew() else self._step)

    async def _fill(self) -> None:
        if self.dispatcher is not None:
            await self.dispatcher.fill()

    def limits_changed(self) -> None:
        """Consumers that the former limits held may go on, and others stop."""
        if self._pump is not None:
            self._use_rates()
        if self.dispatcher is not None:
            self.dispatcher.limits_changed()
            self.pump.run()

    def topic_terminated(self) -> None:
        """No more entries will be added."""
        self._tell_end()

    def _tell_end(self) -> None:
        if not self._ledger.terminated or self.cursor.backlog_entries:
            return
        for consumer in self.consumers:
            if not consumer.end_of_topic_sent:
                consumer.end_of_topic_sent = True
                consumer.session.ended(consumer)

    def disconnect_consumers(self) -> None:
        """Remove all consumers, then notify their sessions."""
        for consumer in list(self.consumers):
            self.remove_consumer(consumer)
            consumer.session.closed(consumer)


def new_dispatcher(
    first: Consumer,
    context: TopicContext,
    ledger: LedgerPort,
    cursor: CursorPort,
    pump: Pump,
) -> Dispatcher:
    """One of the type that its first consumer asks for. Raises: BrokerError: there is none."""
    if first.sub_type == SHARED:
        return SharedDispatcher(context, ledger, cursor, pump)
    if first.sub_type == KEY_SHARED:
        return KeySharedDispatcher(context, ledger, cursor, pump, first)
    if first.sub_type in (EXCLUSIVE, FAILOVER):
        return SingleDispatcher(first.sub_type, context, ledger, cursor, pump)
    raise BrokerError(ServerError.NotAllowedError, f"unknown subscription type {first.sub_type}")
