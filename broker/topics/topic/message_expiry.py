"""Time to live: messages that are older are acknowledged for all subscriptions of their topic.

Every messageExpiryCheckIntervalInMinutes the topics that are due are looked at, in the order in
which their oldest messages expire; the others are not touched, and no topic is loaded for it. A
topic that was looked at is due again when its oldest message expires, or LOOK_AGAIN_SECONDS later
if that is sooner, because a subscription may have moved back to older messages, and the wall clock
may have been set. What is due is counted by the monotonic clock.

AT_ONCE topics are looked at at a time, with a pause after each subscription, so that 10,000 topics
that expire together do not hold up other work. Their cursors are then stored, each in a new ledger,
which makes many objects that live: the garbage is collected in between (`collect_young`).

As in Pulsar an entry expires by its publish time, or by the time at which its ledger was closed if
that is earlier: the clock of a producer may be ahead. It expires for durable subscriptions, with
every virtual cursor of a broadcast. What expired is not delivered any more, also if a consumer has
been sent it and does not acknowledge it. As in Pulsar 5.0.1 nothing expires for a subscription that
is not durable: its position is the place at which a reader reads, it keeps no message in storage,
and a reader whose place moved would miss messages without an error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol, final

import structlog
import trio

from broker.ground.slices import for_each
from broker.topics.topic.due_order import DueOrder
from broker.topics.topic.errors import told
from runtime.tuning import collect_young

if TYPE_CHECKING:
    from collections.abc import Mapping

    from broker.ground.config import BrokerConfig
    from broker.topics.subscription.api import Subscription
    from broker.topics.topic.topic_ledger import TopicLedger
    from protocol.position import Position
    from protocol.topic_name import TopicName
    from runtime.clock import Clock

log = structlog.get_logger()

AT_ONCE: Final = 8
LOOK_AGAIN_SECONDS: Final = 600
COLLECTED_EVERY: Final = 50
"""Topics: about 10,000 objects that live, 2 ms."""
_NOW: Final = 0.0
_NOT_IN_THIS_CHECK_MS: Final = 1


class ExpiringTopic(Protocol):
    """A topic with a time to live."""

    @property
    def name(self) -> TopicName:
        """Its name, for error reports."""

    @property
    def closing(self) -> str:
        """Why it is being closed; empty: it is not."""

    async def expire_messages(self) -> int:
        """Acknowledge what has expired. In how many ms the next message does."""


@final
class MessageExpiry:
    """The topics of a broker that have a time to live, in the order in which they are due."""

    def __init__(self, config: BrokerConfig, clock: Clock) -> None:
        self._config = config
        self._clock = clock
        self._order: DueOrder[ExpiringTopic] = DueOrder()
        self._looked_at = 0
        self._looking: dict[ExpiringTopic, bool] = {}
        """The topics that are being looked at, and whether they have to be looked at again at
        once."""

    def watch(self, topic: ExpiringTopic) -> None:
        """It has another time to live now: look at it with the next check."""
        if topic in self._looking:
            self._looking[topic] = True
        else:
            self._order.plan(topic, _NOW)

    def forget(self, topic: ExpiringTopic) -> None:
        """It has none any more, or is closed."""
        self._order.forget(topic)
        self._looking.pop(topic, None)

    async def run(self) -> None:
        """Check until cancelled."""
        while True:
            await trio.sleep(self._config.messageExpiryCheckIntervalInMinutes * 60)
            await self.check()

    async def check(self) -> None:
        """Look at the topics that are due."""
        await for_each(self._order.take_due(self._clock.now()), self._expire, AT_ONCE)

    async def _expire(self, topic: ExpiringTopic | None) -> None:
        if topic is None or topic.closing:
            return
        self._looked_at += 1
        if self._looked_at % COLLECTED_EVERY == 0:
            collect_young()
        self._looking[topic] = False
        left_ms = 0
        try:
            left_ms = await topic.expire_messages()
        except Exception as error:
            if not topic.closing:
                log.warning("cannot expire messages", topic=topic.name.full, **told(error))
        again = self._looking.pop(topic, None)
        if again:
            self._order.plan(topic, _NOW)
        elif again is not None:
            seconds = min(max(left_ms, _NOT_IN_THIS_CHECK_MS) / 1000, LOOK_AGAIN_SECONDS)
            self._order.plan(topic, self._clock.now() + seconds)


async def expire_backlogs(
    ledger: TopicLedger,
    subscriptions: Mapping[str, Subscription],
    ttl_seconds: int,
    clock: Clock,
) -> int:
    """Acknowledge the messages of a topic that are older, for its durable subscriptions. In how
    many ms the next one expires; without a backlog, one that is published now.

    Raises: BrokerError PersistenceError: storage cannot give an entry now.
    """
    now_ms, ttl_ms = clock.wall_ms(), ttl_seconds * 1000
    times: dict[Position, int | None] = {}
    """Times of the oldest entries: subscriptions that keep pace share theirs."""
    expired_up_to: Position | None = None
    due_ms = now_ms + ttl_ms

    async def oldest_ms(subscription: Subscription) -> int | None:
        """The publish time of the first entry of its backlog, or the time at which its ledger was
        closed if that is earlier; None: it has no backlog."""
        mark_delete = subscription.mark_delete_position()
        if mark_delete is None or mark_delete >= ledger.last_confirmed:
            return None
        position = ledger.next_position(mark_delete)
        if position not in times:
            entries = await ledger.read(position, 1, 1)
            times[position] = (
                ledger.written_by_ms(position, entries[0].metadata.publish_time)
                if entries
                else None
            )
        return times[position]

    for subscription in list(subscriptions.values()):
        if not subscription.durable:
            continue
        await trio.lowlevel.checkpoint()
        time_ms = await oldest_ms(subscription)
        if time_ms is not None and time_ms + ttl_ms < now_ms:
            if expired_up_to is None:
                expired_up_to = await ledger.find_expired(now_ms - ttl_ms)
            count = subscription.skip_past(expired_up_to)
            subscription.expirations.add(count, now_ms)
            time_ms = await oldest_ms(subscription)
        if time_ms is not None:
            due_ms = min(due_ms, time_ms + ttl_ms)
    return due_ms - now_ms
