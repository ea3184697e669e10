"""The effect of acks on a cursor and on what is in flight.

Acks of whole entries come as runs. Others come by message id: those that name entries of several
ledgers, parts of batches, or the end of what is acknowledged.

A client may claim any number of messages for an entry. The excess is taken off when the number is
known: at once, if the entry is in flight at a consumer, else when it is delivered (`left_of`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from broker.topics.subscription.outgoing import ack_bits
from protocol.ack_set import all_unacked

if TYPE_CHECKING:
    from collections.abc import Sequence

    from broker.ground.entry import Entry
    from broker.topics.subscription.api import AckId
    from broker.topics.subscription.config import SubscriptionConfig
    from broker.topics.subscription.consumer import Consumer
    from broker.topics.subscription.dispatcher import Dispatcher
    from broker.topics.subscription.ports import CursorPort, LedgerPort
    from protocol.position import Position
    from runtime.clock import Clock


def left_of(cursor: CursorPort, entry: Entry) -> int | None:
    """Bits of the messages left of an entry that is to be delivered; 0: none is left, None: nothing
    of it is acked."""
    position = entry.position
    left = cursor.batch_remaining(position)
    if left is None or left.bit_length() <= entry.messages():
        return left
    if cursor.ack_batch_index(position, all_unacked(entry.messages())):
        return 0
    return cursor.batch_remaining(position)


@final
class Acknowledgements:
    """The acknowledgements of one subscription."""

    __slots__ = ("_clock", "_config", "_cursor", "_ledger", "last_ms", "mark_delete_last_ms")

    def __init__(
        self, cursor: CursorPort, ledger: LedgerPort, config: SubscriptionConfig, clock: Clock
    ) -> None:
        self._cursor = cursor
        self._ledger = ledger
        self._config = config
        self._clock = clock
        self.last_ms = 0
        """The time of the last ack of any consumer, in wall ms."""
        self.mark_delete_last_ms = 0
        """When the mark-delete position moved."""

    def of_entries(
        self, consumer: Consumer, dispatcher: Dispatcher, ledger_id: int, entry_ids: list[int]
    ) -> bool:
        """The consumer acknowledged whole entries of one ledger. Returns whether more can be sent
        now."""
        cursor = self._cursor
        before = cursor.mark_delete
        cursor.ack_entries(ledger_id, entry_ids)
        consumer.counters.messages_acked += dispatcher.acked_entries(ledger_id, entry_ids)
        return self.settle(consumer, dispatcher, before)

    def settle(self, consumer: Consumer, dispatcher: Dispatcher, before: Position) -> bool:
        """After acks of the consumer, before which `before` was the mark-delete position. Returns
        whether more can be sent now."""
        consumer.counters.acked_last_ms = self.last_ms = now_ms = self._clock.wall_ms()
        if self._cursor.mark_delete != before:
            self.mark_delete_last_ms = now_ms
        return dispatcher.settle()

    def each(self, consumer: Consumer, dispatcher: Dispatcher, ids: Sequence[AckId]) -> None:
        """The consumer acknowledged each of the ids."""
        for position, ack_set in ids:
            self._one(consumer, dispatcher, position, ack_set)

    def _one(
        self,
        consumer: Consumer,
        dispatcher: Dispatcher,
        position: Position,
        ack_set: tuple[int, ...],
    ) -> None:
        counters = consumer.counters
        if not ack_set:
            self._cursor.ack_individual(position)
            counters.messages_acked += dispatcher.acked(consumer, position) or 1
        elif self._config.acknowledgment_at_batch_index_level_enabled:
            left = ack_bits(ack_set)
            held = dispatcher.messages_of(position)
            if 0 < held < left.bit_length() and self._cursor.batch_remaining(position) is None:
                left &= all_unacked(held)
            if self._cursor.ack_batch_index(position, left):
                counters.messages_acked += dispatcher.acked(consumer, position)
            else:
                remaining = self._cursor.batch_remaining(position)
                if remaining is not None:
                    counters.messages_acked += dispatcher.part_acked(
                        consumer, position, remaining.bit_count()
                    )

    def up_to(self, ack_id: AckId) -> None:
        """Everything up to the id was acknowledged. Unpublished entries are not acknowledged, nor
        what is before them: such an id is of another topic, or of an earlier one of this name."""
        position, ack_set = ack_id
        if position > self._ledger.last_confirmed:
            return
        if not ack_set:
            self._cursor.ack_cumulative(position)
            return
        if position[1] >= 0 and position > self._cursor.mark_delete:
            self._cursor.ack_cumulative(self._ledger.previous_position(position))
            if self._config.acknowledgment_at_batch_index_level_enabled:
                self._cursor.ack_batch_index(position, ack_bits(ack_set))
