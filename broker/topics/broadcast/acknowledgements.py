"""Applies an ACK: to a virtual cursor, to pending deliveries, to the main cursor.

Acks are applied one by one as the parser returns them, or as a run of many consumers that
acknowledge the same entry (`protocol.ack_runs`). Acks of entries that do not exist, are already
acknowledged, or lie before a position are no-ops. A consumer may acknowledge an entry that was not
sent to it in this connection, since it may have got it in an earlier one. The entry is then not
sent again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from protocol.ack_set import from_words

if TYPE_CHECKING:
    from array import array
    from collections.abc import Callable, Mapping, Sequence

    from broker.topics.broadcast.cursor_keeper import CursorKeeper
    from broker.topics.broadcast.entry_window import EntryWindow
    from broker.topics.broadcast.fanout import Fanout
    from broker.topics.broadcast.fanout_groups import FanoutGroups
    from broker.topics.broadcast.ordinals import Ordinals
    from broker.topics.broadcast.virtual_cursors import VirtualCursors
    from broker.topics.subscription.api import AckId
    from broker.topics.subscription.consumer import Consumer
    from broker.topics.subscription.ports import LedgerPort
    from protocol.position import Position
    from runtime.clock import Clock


@final
class Acknowledgements:
    """See the module docstring."""

    def __init__(
        self,
        ledger: LedgerPort,
        clock: Clock,
        attached: Mapping[Consumer, int],
        cursors: VirtualCursors,
        groups: FanoutGroups,
        ordinals: Ordinals,
        window: EntryWindow,
        *,
        batch_index: bool,
    ) -> None:
        self._ledger = ledger
        self._clock = clock
        self._attached = attached
        self._cursors = cursors
        self._groups = groups
        self._ordinals = ordinals
        self._window = window
        self._batch_index = batch_index
        self.count = 0
        """Acknowledged ids that referred to an entry."""
        self.last_ms = 0
        self.closed = False
        self._is_connected = False

    def connect(
        self, fanout: Fanout, keeper: CursorKeeper, tell_end: Callable[[Consumer, int], None]
    ) -> None:
        """Sets the objects to notify. Called once, before the first acknowledgement."""
        self._is_connected = True
        self._fanout = fanout
        self._keeper = keeper
        self._tell_end = tell_end

    def disconnect(self) -> None:
        """Forget everything: the subscription has ended, and a connection may still refer to its
        acknowledgements. They have no effect from now on. May be called again."""
        self.closed = True
        if not self._is_connected:
            return
        self._is_connected = False
        del self._fanout, self._keeper, self._tell_end
        del self._attached, self._cursors, self._groups, self._ledger, self._ordinals, self._window

    def ack_run(self, slots: array[int], position: Position) -> None:
        """All of the slots have acknowledged the whole entry."""
        if self.closed:
            return
        ordinal = self._window.ordinal_of.get(position)
        if ordinal is None:
            ordinal = self._ordinals.exact(position)
        if ordinal is None:
            return
        cursors, groups = self._cursors, self._groups
        one_by_one = groups.blocked or groups.counted or self._ledger.terminated
        rest: Sequence[int]
        if one_by_one:
            rest = slots
        else:
            rest = cursors.ack_next_of(slots, ordinal, groups.sent)
            self.count += len(slots) - len(rest)
            self.last_ms = self._clock.wall_ms()
        for slot in rest:
            consumer = self._fanout.consumers[slot]
            if consumer is not None:
                self._one(slot, position, (), cumulative=False)
                self._settle(consumer, slot)
        if cursors.minimum != self._keeper.marked:
            self._keeper.advance()

    def ack_entries(self, consumer: Consumer, ledger_id: int, entry_ids: list[int]) -> None:
        """Acknowledge whole entries of one ledger for this consumer alone."""
        slot = None if self.closed else self._attached.get(consumer)
        if slot is not None:
            for entry_id in entry_ids:
                self._one(slot, (ledger_id, entry_id), (), cumulative=False)
            self._settle(consumer, slot)

    def ack(self, consumer: Consumer, ids: Sequence[AckId], *, cumulative: bool) -> None:
        """Acknowledge for this consumer alone."""
        slot = None if self.closed else self._attached.get(consumer)
        if slot is not None:
            for position, words in ids:
                self._one(slot, position, words, cumulative=cumulative)
            self._settle(consumer, slot)

    def _one(
        self, slot: int, position: Position, words: tuple[int, ...], *, cumulative: bool
    ) -> None:
        cursors, groups = self._cursors, self._groups
        ordinal = self._window.ordinal_of.get(position)
        if ordinal is None:
            if cumulative:
                ordinal = self._cumulative_ordinal(position)
            else:
                ordinal = self._ordinals.exact(position)
            if ordinal is None:
                return
        if words:
            if not self._batch_index or ordinal <= cursors.acked[slot]:
                return
            if cumulative:
                cursors.ack_cumulative(slot, ordinal - 1)
            cursors.ack_batch(slot, ordinal, from_words(words))
        elif cumulative:
            cursors.ack_cumulative(slot, ordinal)
        else:
            cursors.ack(slot, ordinal)
        if ordinal > groups.sent[slot]:
            groups.overtaken(slot)
        if groups.counted:
            if cumulative:
                groups.forget_counts(slot)
            else:
                groups.forget_count(slot, ordinal)
        self.count += 1

    def _settle(self, consumer: Consumer, slot: int) -> None:
        self.last_ms = self._clock.wall_ms()
        if self._groups.blocked:
            self._fanout.wake(self._groups.acked(slot))
        if self._cursors.minimum != self._keeper.marked:
            self._keeper.advance()
        if self._ledger.terminated:
            self._tell_end(consumer, slot)

    def _cumulative_ordinal(self, position: Position) -> int | None:
        """Entry -1 of a ledger means all entries before it. Unpublished entries are not acked."""
        if position > self._ledger.last_confirmed:
            return None
        return self._ordinals.of(position)
