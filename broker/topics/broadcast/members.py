"""The consumers of a broadcast: their connections, their positions, and their deliveries.

One object connects decisions and actions: `VirtualCursors` (the acks of each consumer name),
`FanoutGroups` (the next entries for each consumer), `Fanout` (sends them in slices) and
`CursorKeeper` (main cursor, storage, retention). The rules:

- A consumer name has one virtual cursor. A new name starts at the current tail, at the first entry
  the main cursor holds (Earliest), or at its start message id. A known name resumes. A second
  consumer with a connected name is refused, because both would share one position.
- Exclusive, Failover and Shared consumers are all admitted, also together. The type decides only
  how redelivery works: Shared gets single entries with redelivery counts, the others get everything
  from their position on, in order. Key_Shared has no meaning here and is refused.
- The virtual cursor of a non-durable consumer ends with its connection. Others are kept for the
  retention time and then dropped, so that no absent consumer holds storage for ever.

Acks of entries that do not exist are no-ops, and so are backward cumulative acks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.managed_ledger.cursor_record import INTERNAL_PREFIX
from broker.topics.broadcast.acknowledgements import Acknowledgements
from broker.topics.broadcast.admission import Admission
from broker.topics.broadcast.consumer_sequence import ConsumerSequence
from broker.topics.broadcast.cursor_keeper import CursorKeeper
from broker.topics.broadcast.entry_window import EntryWindow
from broker.topics.broadcast.fanout import Fanout
from broker.topics.broadcast.fanout_groups import FanoutGroups
from broker.topics.broadcast.ordinals import Ordinals
from broker.topics.broadcast.stages import Stages
from broker.topics.broadcast.virtual_cursors import NEVER, VirtualCursors
from broker.topics.subscription.rates import Expirations
from broker.topics.subscription.sub_types import SHARED
from protocol.errors import ServiceNotReady

if TYPE_CHECKING:
    from collections.abc import Sequence

    from broker.topics.broadcast.snapshot_store import SnapshotStore
    from broker.topics.broadcast.window_memory import WindowMemory
    from broker.topics.subscription.consumer import Consumer
    from broker.topics.subscription.factory import TopicContext
    from broker.topics.subscription.ports import CursorPort
    from protocol.position import Position


class BroadcastMembers:
    """See the module docstring."""

    def __init__(
        self,
        context: TopicContext,
        cursor: CursorPort,
        store: SnapshotStore | None,
        memory: WindowMemory,
        *,
        durable: bool,
    ) -> None:
        ledger = context.ledger
        if ledger is None:
            raise ValueError("a broadcast subscription needs a ledger")
        config = context.config
        self.name = cursor.name
        self.durable = durable
        self.context = context
        self.cursor = cursor
        self.sub_type: int | None = None
        self.cursors = VirtualCursors()
        self.groups = FanoutGroups(self.cursors, context.limits.max_unacked_messages_per_consumer)
        self.ordinals = Ordinals(ledger)
        bounds = (config.dispatcher_max_read_batch_size, config.dispatcher_max_read_size_bytes)
        self.window = EntryWindow(ledger, self.ordinals, context.partition, *bounds, memory)
        self.stages = Stages()
        self.attached: dict[Consumer, int] = {}
        self.active_at = context.clock.now()
        self.expirations = Expirations(self.active_at)
        """Connected consumers in order of arrival, with their slots."""
        self.batch_index = config.acknowledgment_at_batch_index_level_enabled
        self.acks = Acknowledgements(
            ledger,
            context.clock,
            self.attached,
            self.cursors,
            self.groups,
            self.ordinals,
            self.window,
            batch_index=self.batch_index,
        )
        self.fanout = Fanout(
            self.name,
            context,
            self.cursors,
            self.groups,
            self.ordinals,
            self.window,
            self.stages,
            self.acks,
        )
        self.retention_seconds = 60.0 * config.broadcast_virtual_cursor_retention_minutes
        self.keeper = self._new_keeper(store)
        self.admission = Admission(
            context, ledger, self.attached, self.cursors, self.ordinals, self.fanout, self.keeper
        )
        self.acks.connect(self.fanout, self.keeper, self._tell_end)
        self.flow_last_ms = 0
        self.rates = (0.0, 0.0, 0.0)
        """Messages, bytes and acks per second in the last window."""
        self._window_start = (context.clock.now(), 0, 0, 0)
        self.moving: set[str] = set()
        """Names whose seek or unsubscribe is not stored yet."""
        self.ledger = ledger
        self.clock = context.clock
        self.seeking = False
        self._closed = False
        self._tail = self.ordinals.tail

    def _new_keeper(self, store: SnapshotStore | None) -> CursorKeeper:
        return CursorKeeper(
            self.cursor,
            self.cursors,
            self.ordinals,
            store,
            self.context.clock,
            self.retention_seconds,
            self.context.config.broadcast_snapshot_interval_millis / 1000,
            self._dropped,
            self.window.drop_up_to,
            self.attached,
        )

    @property
    def consumers(self) -> Sequence[Consumer]:
        """Connected consumers in order of arrival."""
        return ConsumerSequence(self.attached)

    @property
    def properties(self) -> dict[str, str]:
        """Stored with its cursor."""
        return {
            key: value
            for key, value in self.cursor.properties.items()
            if not key.startswith(INTERNAL_PREFIX)
        }

    async def commit(self) -> None:
        """Return when consumers that have joined, left or moved are stored in their current state.

        Raises: BrokerError.
        """
        await self.keeper.commit()

    def check_open(self) -> None:
        """Raises: BrokerError ServiceNotReady: it is being moved or closed."""
        if self._closed or self.seeking:
            raise ServiceNotReady("Subscription is fenced")

    @property
    def is_open(self) -> bool:
        """Whether it is neither being moved nor closed."""
        return not (self._closed or self.seeking)

    def announce(self, consumer: Consumer) -> None:
        """All consumers are active. Tells it if the topic has ended."""
        slot = self.attached.get(consumer)
        if slot is not None and self.ledger.terminated:
            self._tell_end(consumer, slot)

    def remove_consumer(self, consumer: Consumer, *, comes_back: bool = False) -> None:
        """Detach. Its virtual cursor is kept for the retention time. That of a non-durable consumer
        is kept only if it `comes_back` after a seek, and then only briefly."""
        slot = self._detach(consumer)
        if slot is None:
            return
        durable = bool(self.cursors.durable[slot])
        if durable or comes_back:
            self.cursors.detach(slot, self.deadline(durable=durable))
            self._abandon_if_empty()
        else:
            self._drop(slot)

    def drop_consumer(self, consumer: Consumer) -> None:
        """Detach, and end its virtual cursor."""
        slot = self._detach(consumer)
        if slot is not None:
            self._drop(slot)

    def _detach(self, consumer: Consumer) -> int | None:
        slot = self.attached.pop(consumer, None)
        if slot is not None:
            self.fanout.detach(slot, consumer)
            if not self.attached:
                self.window.release()
        return slot

    def _drop(self, slot: int) -> None:
        self.cursors.drop(slot)
        self.keeper.changed()
        self.keeper.advance()
        self._abandon_if_empty()

    def deadline(self, *, durable: bool = True) -> float:
        """Deadline of the virtual cursor of a consumer that leaves now, or seeks."""
        if not durable:
            return self.clock.now() + self.context.config.non_durable_linger_seconds
        seconds = self.retention_seconds
        return self.clock.now() + seconds if seconds > 0 else NEVER

    def _dropped(self, slots: list[int]) -> None:
        """Virtual cursors of consumers that did not return have been dropped."""
        self.keeper.changed()
        self._abandon_if_empty()

    def _abandon_if_empty(self) -> None:
        if not self.durable and not len(self.cursors) and not self._closed:
            self._abandon()

    def _abandon(self) -> None:
        """The last consumer of a non-durable broadcast has left."""

    def flow(self, consumer: Consumer, permits: int) -> None:
        """More permits."""
        slot = self.attached.get(consumer)
        if slot is None:
            return
        self.flow_last_ms = self.groups.flow_ms[slot] = self.clock.wall_ms()
        lane = self.groups.grant(slot, permits)
        if lane is not None and (lane.solos or self.groups.sent[slot] < self.ordinals.tail):
            self.fanout.wake(lane)

    def on_writable(self, consumer: Consumer) -> None:
        """The connection of the consumer has room again."""
        lane = self.fanout.lanes.get(consumer.session)
        if lane is not None and lane.full:
            self.fanout.on_writable(lane)

    def redeliver(
        self, consumer: Consumer, positions: Sequence[Position] | None, epoch: int
    ) -> None:
        """Redeliver: to Shared the requested entries, to the others everything, in order."""
        slot = self.attached.get(consumer)
        if slot is None:
            return
        if consumer.sub_type == SHARED and positions is not None:
            ordinals = [self.ordinals.exact(position) for position in positions]
            wanted = [ordinal for ordinal in ordinals if ordinal is not None]
            self.fanout.wake(self.groups.replay(slot, wanted))
            return
        if epoch > consumer.epoch:
            consumer.epoch = epoch
            self.groups.set_epoch(slot, epoch)
        self.fanout.wake(self.groups.rewind(slot, count=consumer.sub_type == SHARED))

    def disconnect_consumers(self) -> None:
        """Remove all consumers, then notify their sessions."""
        for consumer in list(self.attached):
            self.remove_consumer(consumer)
            consumer.session.closed(consumer)

    # --- questions ----------------------------------------------------------------------

    @property
    def backlog_entries(self) -> int:
        """The position of the slowest consumer, after which storage must keep everything."""
        return max(0, self.ordinals.tail - self.keeper.marked)

    def mark_delete_of(self, consumer: Consumer) -> Position:
        """The position of one consumer, as GET_LAST_MESSAGE_ID reports it."""
        slot = self.attached.get(consumer)
        if slot is None:
            return self.cursor.mark_delete
        return self.ordinals.position(self.cursors.acked[slot])

    def _tell_end(self, consumer: Consumer, slot: int) -> None:
        if not consumer.end_of_topic_sent and self.cursors.acked[slot] >= self.ordinals.tail:
            consumer.end_of_topic_sent = True
            consumer.session.ended(consumer)
