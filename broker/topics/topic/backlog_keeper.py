"""Keeps the backlog of one topic within its quotas.

The backlog of a topic is that of its slowest durable subscription. Its size is estimated within a
ledger by the mean size of the ledger's entries, as in Pulsar and as `backlogSize` shows it.

- `producer_request_hold` and `producer_exception`: new producers are refused. The bytes that are
  published are compared with the room that was left when the backlog was last looked at, once per
  turn; close to the quota by a gate that counts each message. A message without room is dropped and
  its producers are sent away. The periodic check sends away producers that publish nothing.
- `consumer_backlog_eviction`: once a group of entries is durable, the oldest ones are acknowledged
  for everybody until the backlog is at 90 % of the quota.

The age of the oldest message is checked periodically and when a producer comes. It counts from the
time at which the message's ledger was closed; with `preciseTimeBasedBacklogQuotaCheck` it counts
from the publish time in the message.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, final

from broker.limits.backlog_rules import (
    LEFT_SHARE,
    BacklogGate,
    bytes_until_gate,
    is_over_age,
    is_over_size,
    refused,
    step_bytes,
)
from broker.tenancy.policies.backlog_quotas import EVICT, BacklogQuota, BacklogQuotas

if TYPE_CHECKING:
    from collections.abc import Mapping

    from broker.ground.config import BrokerConfig
    from broker.topics.subscription.api import Subscription
    from broker.topics.topic.topic_ledger import TopicLedger
    from protocol.position import Position
    from runtime.clock import Clock

_NONE: Final = BacklogQuota(-1, -1, EVICT)
NO_QUOTAS: Final = BacklogQuotas(_NONE, _NONE)


class BacklogOwner(Protocol):
    """The topic."""

    @property
    def subscriptions(self) -> Mapping[str, Subscription]:
        """By name."""

    @property
    def is_sending_producers_away(self) -> bool:
        """Whether it takes no messages until they are gone."""

    def arrived_bytes(self) -> int:
        """Size of the messages of this turn that are not appended yet."""

    def send_producers_away(self) -> None:
        """Drop what arrives from now on, and disconnect all producers once what came before is
        answered. Their clients return."""

    def backlog_gate_changed(self) -> None:
        """`BacklogKeeper.gate` is another now."""


@final
class _Nobody:
    """In the place of a topic that has ended."""

    subscriptions: Mapping[str, Subscription] = MappingProxyType({})
    is_sending_producers_away = True

    def arrived_bytes(self) -> int:
        return 0

    def send_producers_away(self) -> None:
        pass

    def backlog_gate_changed(self) -> None:
        pass


_NOBODY: Final[BacklogOwner] = _Nobody()


class OldestMessage(NamedTuple):
    """In the backlog of a topic, as of the last look."""

    subscription_name: str
    position: Position
    """The mark-delete position before it."""
    time_ms: int


@final
class BacklogKeeper:
    """See the module docstring."""

    __slots__ = (
        "_added_next",
        "_clock",
        "_config",
        "_ledger",
        "_owner",
        "_sent_next",
        "age_evictions",
        "counts_turns",
        "evicts",
        "gate",
        "oldest",
        "quotas",
        "size_evictions",
    )

    def __init__(
        self, owner: BacklogOwner, ledger: TopicLedger, config: BrokerConfig, clock: Clock
    ) -> None:
        self._owner = owner
        self._ledger = ledger
        self._config = config
        self._clock = clock
        self._sent_next = 0
        """`size_sent_bytes` of the ledger at which to look again."""
        self._added_next = 0
        """`size_added_bytes` at which to evict, or to look again."""
        self.quotas = NO_QUOTAS
        self.counts_turns = False
        """Whether `turn_ended` has to be called."""
        self.evicts = False
        """Whether `appended` has to be called."""
        self.gate: BacklogGate | None = None
        self.oldest: OldestMessage | None = None
        self.size_evictions = 0
        self.age_evictions = 0

    def apply(self, quotas: BacklogQuotas) -> None:
        """These are in force from now on. Cheap when they are the same as before."""
        if quotas == self.quotas:
            return
        self.quotas = quotas
        self.evicts = quotas.limits_size and quotas.size.action == EVICT
        self.counts_turns = quotas.limits_size and not self.evicts
        self._added_next = 0
        self._look()

    def disconnect(self) -> None:
        """Forget the topic, which has ended, so that it is freed without a garbage collection."""
        self._owner = _NOBODY
        self.quotas = NO_QUOTAS
        self.counts_turns = self.evicts = False
        self.gate = None

    # --- size ---------------------------------------------------------------------------

    def _slowest(self) -> tuple[str, Position] | None:
        """The subscription that holds the topic's backlog, and its mark-delete position."""
        subscriptions = self._owner.subscriptions
        durable = (
            (name, cursor.mark_delete)
            for name, cursor in self._ledger.cursors.items()
            if cursor.durable and name in subscriptions
        )
        return min(durable, key=lambda each: each[1], default=None)

    def backlog_bytes(self) -> int:
        """Size of the backlog, with what is not durable yet."""
        slowest = self._slowest()
        if slowest is None:
            return 0
        return self._ledger.backlog_bytes(slowest[1]) + self._owner.arrived_bytes()

    def _room_bytes(self) -> int:
        return self.quotas.size.limit_bytes - self.backlog_bytes()

    def turn_ended(self) -> None:
        """Messages were appended."""
        if self._ledger.size_sent_bytes >= self._sent_next:
            self._look()

    def _look(self) -> None:
        """Decide whether each message must be counted, and when to look again."""
        gate = self.gate
        if not self.counts_turns:
            self.gate = None
        else:
            quota, sent = self.quotas.size, self._ledger.size_sent_bytes
            room = self._room_bytes()
            far = bytes_until_gate(room, self._config.maxMessageSize)
            self._sent_next = sent + step_bytes(quota)
            if far > 0:
                self._sent_next = min(self._sent_next, sent + far)
                self.gate = None
            else:
                self.gate = gate or BacklogGate(self._room_at_gate)
                self.gate.room_bytes = room
        if self.gate is not gate:
            self._owner.backlog_gate_changed()

    def _room_at_gate(self) -> int:
        """The room that was known is used up: some may have been acknowledged meanwhile."""
        if self._owner.is_sending_producers_away:
            return 0
        room = self._room_bytes()
        if room <= 0:
            self._owner.send_producers_away()
        return room

    def appended(self) -> None:
        """A group of entries is durable."""
        added = self._ledger.size_added_bytes
        if added >= self._added_next:
            quota = self.quotas.size
            if is_over_size(quota, self._durable_backlog_bytes()):
                self._evict_size(quota)
            room = quota.limit_bytes - self._durable_backlog_bytes()
            self._added_next = added + min(step_bytes(quota), max(1, room))

    def _durable_backlog_bytes(self) -> int:
        slowest = self._slowest()
        return 0 if slowest is None else self._ledger.bytes_after(slowest[1])

    def _evict_size(self, quota: BacklogQuota) -> None:
        left = int(quota.limit_bytes * LEFT_SHARE)
        self._evict(self._ledger.position_with_bytes_after(left))
        self.size_evictions += 1

    def _evict(self, position: Position) -> None:
        for subscription in list(self._owner.subscriptions.values()):
            if subscription.durable:
                subscription.skip_past(position)

    # --- age ----------------------------------------------------------------------------

    async def find_oldest(self) -> OldestMessage | None:
        """The oldest message of the backlog, if its age is known; a position that was looked at
        before is not read again.

        Raises: BrokerError PersistenceError: storage cannot give it now.
        """
        slowest = self._slowest()
        if slowest is None or slowest[1] >= self._ledger.last_confirmed:
            self.oldest = None
            return None
        name, position = slowest
        known = self.oldest
        if not self._config.preciseTimeBasedBacklogQuotaCheck:
            row = self._ledger.closed_ledger_of(position)
            self.oldest = row and OldestMessage(name, position, row.timestamp_ms)
        elif known is None or known.position != position:
            first = self._ledger.next_position(position)
            entries = await self._ledger.read(first, 1, 1)
            time_ms = entries[0].metadata.publish_time if entries else 0
            time_ms = self._ledger.written_by_ms(first, time_ms)
            self.oldest = OldestMessage(name, position, time_ms) if time_ms else None
        return self.oldest

    async def _is_over_age(self) -> bool:
        oldest = await self.find_oldest()
        time_ms = None if oldest is None else oldest.time_ms
        return is_over_age(self.quotas.age, time_ms, self._clock.wall_ms())

    async def _evict_age(self, quota: BacklogQuota) -> None:
        self.age_evictions += 1
        now_ms = self._clock.wall_ms()
        if not self._config.preciseTimeBasedBacklogQuotaCheck:
            closed_before_ms = now_ms - quota.limit_seconds * 1000
            position = self._ledger.last_closed_before(closed_before_ms)
            if position is not None:
                self._evict(position)
            return
        left_seconds = int(quota.limit_seconds * LEFT_SHARE)
        for subscription in list(self._owner.subscriptions.values()):
            await subscription.expire(now_ms - left_seconds * 1000)

    # --- both ---------------------------------------------------------------------------

    async def check_producer(self) -> None:
        """Whether a producer may come.

        Raises: BrokerError ProducerBlockedQuotaExceededError, or ..Exception.
        """
        quotas = self.quotas
        if quotas.limits_size and is_over_size(quotas.size, self.backlog_bytes()):
            error = refused(quotas.size)
            if error is not None:
                raise error
        if quotas.limits_age and quotas.age.action != EVICT and await self._is_over_age():
            error = refused(quotas.age)
            if error is not None:
                raise error

    async def check(self) -> None:
        """The periodic check.

        Raises: BrokerError PersistenceError: storage cannot be read now.
        """
        self._look()
        quotas = self.quotas
        if quotas.limits_size and is_over_size(quotas.size, self.backlog_bytes()):
            if quotas.size.action == EVICT:
                self._evict_size(quotas.size)
            else:
                self._owner.send_producers_away()
        elif await self._is_over_age():
            if quotas.age.action == EVICT:
                await self._evict_age(quotas.age)
            else:
                self._owner.send_producers_away()
        await self.find_oldest()
