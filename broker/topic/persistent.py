"""A persistent topic: publishes go to its managed ledger; receipts are sent once they are durable.

Hot path: `publish` takes messages. `append_published` appends those of a turn together when the
turn ends (`broker.turn`). The ledger answers by `on_appended`, once per finished journal group and
topic, in order. All receipts of a group are queued first and all subscriptions are notified once,
so that one flush per connection carries everything.

A failed append is never skipped: its producers get SEND_ERROR and are then disconnected. Messages
they sent after it are dropped, so that they send them again in order through a new producer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, final

import structlog
import trio

from broker.entry import Entry, entries_of
from broker.histograms import EntrySizes, PublishTimes
from broker.subscription.request import SubscriptionRequest
from broker.topic.admission import host_of
from broker.topic.backlog_keeper import BacklogKeeper
from broker.topic.dedup import Verdict
from broker.topic.dedup_store import DEDUP_CURSOR, DedupStore
from broker.topic.entry_index import message_index_of
from broker.topic.failures import told
from broker.topic.ledger_policies import ledger_policies_of
from broker.topic.log_compaction import COMPACTION_CURSOR, LogCompaction
from broker.topic.message_expiry import expire_backlogs
from broker.topic.newest_message import NewestOfTopic, newest_position
from broker.topic.producer import Producer, Publish, PublishRun
from broker.topic.publish_answers import answer_with_copies, refuse_parked, send_receipts
from broker.topic.storage import StoredCounts
from broker.topic.subscribe_rates import SubscribeRates, SubscribingConsumer
from broker.topic.topic import Topic
from protocol import commands
from protocol.errors import BrokerError, NotAllowed, ServerError
from protocol.metadata import count_messages
from runtime.rare_lock import RareLock

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from broker.managed_ledger.ledger import ManagedLedger
    from broker.managed_ledger.statistics import ManagedLedgerStatistics
    from broker.policies.scopes import TopicPolicies
    from broker.subscription.api import PublishObserver, Subscription
    from broker.subscription.ports import LedgerPort
    from broker.topic.backlog_keeper import OldestMessage
    from broker.topic.services import TopicServices
    from protocol.position import Position
    from protocol.send_fields import Send
    from protocol.send_runs import SendRun
    from protocol.topic_name import TopicName

log = structlog.get_logger()

INTERNAL_CURSORS: Final = frozenset({DEDUP_CURSOR, COMPACTION_CURSOR})
"""Cursors that do not belong to subscriptions."""
TOPIC_EPOCH_PROPERTY: Final = "pulsar.topic.epoch"
FINISH_SECONDS_MAX: Final = 10.0
"""How long an unload waits for publishes in progress."""

_NO_SUBSCRIPTIONS: Final[frozenset[Subscription]] = frozenset()
_NEW: Final = Verdict.NEW
_DUPLICATE: Final = Verdict.DUPLICATE


@final
class PersistentTopic(Topic):
    """One stored topic. Invariant: `_taken - _answered` messages are on their way to storage."""

    __slots__ = (
        "_after_publishes",
        "_answered",
        "_applying",
        "_arrived",
        "_arrived_contexts",
        "_dropping",
        "_failed_subscriptions",
        "_failing",
        "_newest",
        "_observers",
        "_refused_by_end",
        "_subscribes",
        "_taken",
        "_ttl_seconds",
        "backlog",
        "compaction",
        "dedup",
        "entry_sizes",
        "ledger",
        "message_index",
        "publish_times",
    )
    persistent = True
    internal_cursors = INTERNAL_CURSORS

    def __init__(
        self,
        services: TopicServices,
        name: TopicName,
        policies: TopicPolicies,
        ledger: ManagedLedger,
    ) -> None:
        super().__init__(services, name, policies)
        self.ledger = ledger
        self.publish_times = PublishTimes()
        self.entry_sizes = EntrySizes()
        self._observers: tuple[PublishObserver, ...] = ()
        """For subscriptions that measure the stages of delivery."""
        self.dedup: DedupStore[Publish] | None = None
        self.message_index = -1
        """Index of the newest message; kept only with an entry interceptor."""
        self._dropping = False
        """After a failed append, until its producers have been sent away."""
        self._failing = False
        """Appends fail, the failure has been logged, and none has succeeded since."""
        self._failed_subscriptions = _NO_SUBSCRIPTIONS
        """Subscriptions that are being closed and opened again."""
        self._refused_by_end: list[tuple[Any, BrokerError]] | None = None
        """While the topic is being terminated: messages that arrived too late."""
        self._arrived: list[Entry] = []
        """Taken in this turn; appended together at its end."""
        self._arrived_contexts: list[object] = []
        self._applying = RareLock()
        self.backlog = BacklogKeeper(self, ledger, services.config, services.clock)
        self._ttl_seconds = 0
        self.compaction = LogCompaction(name, ledger) if name.is_policy_log else None
        """Of a log of policies. Other topics are not compacted."""
        self._subscribes: SubscribeRates | None = None
        """Made with the first request while there is such a rate."""
        self._newest: NewestOfTopic | None = None
        """Made with the first question for the newest message."""
        self._taken = 0
        self._answered = 0
        self._after_publishes: list[tuple[int, Callable[[], None]]] | None = None
        ledger.listener = self

    async def rest(self) -> None:
        """See Topic. What the ledger reads with, and the open ledgers of cursors, go too."""
        await super().rest()
        self._newest = None
        self._after_publishes = self._after_publishes or None
        await self.ledger.rest()

    @property
    def needs_rest(self) -> bool:
        """See Topic. Expiry moves cursors, and a cursor that is stored gets a ledger."""
        return self.ledger.needs_rest

    def check_subscribe_rate(self, address: str, name: str, consumer_id: int) -> None:
        """Raises: BrokerError NotAllowedError, as in Pulsar: it subscribes too often."""
        rate = self.policies.effective.delivery.subscribe
        if not rate:
            self._subscribes = None
            return
        if self._subscribes is None:
            self._subscribes = SubscribeRates()
        consumer = SubscribingConsumer(host_of(address), name, consumer_id)
        if not self._subscribes.admits(consumer, rate, self.services.clock.now()):
            raise NotAllowed("Subscribe limited by subscribe rate limit per consumer.")

    def subscription_ledger(self, *, compacted: bool) -> LedgerPort:
        """The ledger that its subscriptions read."""
        compaction = self.compaction
        return self.ledger if compaction is None or not compacted else compaction.log

    async def recover(self) -> None:
        """Restore the state that the cursors of the ledger hold: subscriptions and
        deduplication."""
        epoch = self.ledger.properties.get(TOPIC_EPOCH_PROPERTY)
        self.access.epoch = None if epoch is None else int(epoch)
        for name in list(self.ledger.cursors):
            if name not in INTERNAL_CURSORS:
                # There may be more than their limit, which is for new ones.
                await self.open_kept_subscription(name)
        if self.compaction is not None:
            await self.compaction.load()
            self.services.log_compactions.watch(self.compaction, self.name)
        await self.apply_policies()
        if self.services.entry_interceptor is not None:
            self.message_index = message_index_of(await self.newest_entry())

    async def apply_policies(self) -> None:
        """Apply the policies in force now. Cheap when nothing has changed."""
        async with self._applying:
            self.apply_limits(self.policies.effective)
            if not self.name.is_system:
                self.backlog.apply(self.policies.effective.backlog_quotas)
                self._apply_time_to_live()
            self._apply_ledger_policies()
            await self._apply_deduplication()

    def _apply_time_to_live(self) -> None:
        before, self._ttl_seconds = self._ttl_seconds, self.policies.effective.message_ttl_seconds
        if self._ttl_seconds == 0:
            self.services.message_expiry.forget(self)
        elif self._ttl_seconds != before and not self.closing:
            self.services.message_expiry.watch(self)

    async def expire_messages(self) -> int:
        """Acknowledge what is older than the time to live (ExpiringTopic)."""
        return await expire_backlogs(
            self.ledger, self.subscriptions, self._ttl_seconds, self.services.clock
        )

    def _apply_ledger_policies(self) -> None:
        policies = ledger_policies_of(self.policies.effective)
        if policies != self.ledger.policies:
            self.ledger.policies = policies
            self.ledger.request_trim()

    async def _apply_deduplication(self) -> None:
        wanted = self.policies.effective.deduplication
        if wanted and self.dedup is None:
            self.dedup = await DedupStore.open(
                self.ledger, self.services.config, self.services.clock
            )
        elif not wanted:
            if self.dedup is not None:
                dedup, self.dedup = self.dedup, None
                refuse_parked(
                    dedup.drop_parked(),
                    BrokerError(
                        ServerError.ServiceNotReady, "deduplication was switched off: send it again"
                    ),
                )
            if DEDUP_CURSOR in self.ledger.cursors:  # also of when the topic was last open
                await self.ledger.delete_cursor(DEDUP_CURSOR)

    # --- publishing ---------------------------------------------------------------------

    def check_publishable(self) -> None:
        """Raises: BrokerError TopicTerminatedError, or NotAllowedError for a shadow."""
        self.ledger.check_appendable()

    def publish(self, producer: Producer, send: Send) -> None:
        """Take a message. Its receipt or refusal is sent when the outcome is known."""
        if self.closing or self._dropping:
            return  # the producer is being sent away, and its client sends this again
        payload = send.payload
        size = len(payload)
        context = Publish(producer, send, size)
        verdict = _NEW if self.dedup is None else self.dedup.admit(context, payload)
        if verdict is _DUPLICATE:
            return
        session, services = producer.session, self.services
        session.publishes.taken(size)
        if verdict is not _NEW:
            return  # a copy of a message in flight: both get the same answer
        message_count = count_messages(payload)
        claimed = message_count or 1
        producer.messages_in += claimed
        producer.bytes_in += size
        interceptor = services.entry_interceptor
        if interceptor is not None:
            payload = interceptor(self, payload, claimed)
        entry = Entry(
            payload, message_count, is_intact=send.is_verified and payload is send.payload
        )
        self._taken += 1
        if not self._arrived:
            services.turns.published_to(self)
        self._arrived.append(entry)
        self._arrived_contexts.append(context)
        if self._observers:
            self._observe(entry, session.keep_alive.received_at)

    def publish_run(self, producer: Producer, run: SendRun) -> None:
        """See Topic. Where each message is looked at, by deduplication for example, or may be
        changed, one by one."""
        services = self.services
        if (
            self.dedup is not None
            or self._observers
            or self.closing
            or self._dropping
            or services.entry_interceptor is not None
        ):
            super().publish_run(producer, run)
            return
        count = len(run.payloads)
        producer.session.publishes.run_taken(count, run.size_bytes)
        producer.run_published(run)
        self._taken += count
        if not self._arrived:
            services.turns.published_to(self)
        self._arrived += entries_of(run.payloads, run.counts)
        self._arrived_contexts += [PublishRun(producer, run)] * count

    def _observe(self, entry: Entry, arrived: float) -> None:
        clock = self.services.clock
        now, wall_ms = clock.now(), clock.wall_ms()
        for observer in self._observers:
            observer.published(entry.metadata.publish_time, wall_ms, arrived, now)

    def watch_publishes(self, observer: PublishObserver, *, begin: bool) -> None:
        """A subscription starts or stops to be notified of publishes."""
        others = tuple(each for each in self._observers if each is not observer)
        self._observers = (*others, observer) if begin else others

    def append_published(self) -> None:
        """End of a turn: append the messages it brought."""
        if self._arrived:
            entries, contexts = self._arrived, self._arrived_contexts
            self._arrived, self._arrived_contexts = [], []
            self.ledger.append_run(entries, contexts)
            if self.backlog.counts_turns:
                self.backlog.turn_ended()

    def arrived_bytes(self) -> int:
        """Size of the messages of this turn that are not appended yet (BacklogOwner)."""
        return sum(len(entry.data) for entry in self._arrived)

    def hand_to_storage(self) -> None:
        """The appended messages may be written now."""
        self.publish_times.sent(self._taken, self.services.clock.now())
        self.ledger.kick()

    def on_appended(self, entries: list[Entry], contexts: list[Any]) -> None:
        """A group is durable: queue the receipts, then let the subscriptions deliver."""
        if self.dedup is None:
            send_receipts(entries, contexts, self.entry_sizes)
        else:
            each = [context.take() for context in contexts]
            answer_with_copies(self.dedup, entries, each, self.entry_sizes)
        self._failing = False
        self.published_last_ms = self.services.clock.wall_ms()
        self._answer_up_to(self._answered + len(entries))
        for subscription in tuple(self.subscriptions.values()):
            try:
                subscription.tail_moved()
            except Exception as error:
                self._subscription_failed(subscription, error)
        if self.backlog.evicts:
            self.backlog.appended()

    def _subscription_failed(self, subscription: Subscription, error: Exception) -> None:
        """A subscription cannot deliver. This does not affect publishers or other subscriptions,
        but its state in memory can no longer be trusted."""
        if subscription in self._failed_subscriptions:
            return  # more entries arrived before it was closed
        self._failed_subscriptions |= {subscription}
        log.error(
            "subscription failed: sending its consumers away and opening it again",
            topic=self.name.full,
            subscription=subscription.name,
            **told(error),
        )
        self.operations.begin(subscription.name, lambda: self._open_again(subscription))

    async def _open_again(self, subscription: Subscription) -> None:
        """Close a failed subscription and start it again from its cursor. If that fails, the topic
        is unloaded."""
        name = subscription.name
        try:
            if self.subscriptions.get(name) is not subscription or self.closing:
                return
            self._count_leaving(subscription)
            await subscription.close()
            self.subscriptions.pop(name, None)
            if subscription.durable:
                await self.open_kept_subscription(name)
            else:
                await self.delete_cursor(name)
        except Exception as error:
            log.error(
                "cannot open a failed subscription again, unloading its topic",
                topic=self.name.full,
                subscription=name,
                **told(error),
            )
            await self._unload_failed()
        finally:
            self._failed_subscriptions = (
                self._failed_subscriptions - {subscription} or _NO_SUBSCRIPTIONS
            )

    def on_append_failed(self, context: Any, error: BrokerError) -> None:  # noqa: ANN401 - a Publish
        """A message was not stored, and no message of this topic after it is stored either."""
        if (
            self._refused_by_end is not None
            and error.server_error == ServerError.TopicTerminatedError
        ):
            self._refused_by_end.append((context.take(), error))
            return
        publish: Publish = context.take()
        producer, send = publish.producer, publish.send
        session = producer.session
        session.publish_done(1, publish.size)
        for observer in self._observers:
            observer.lost()
        session.send(
            commands.send_error(
                producer.producer_id, send.sequence_id, error.server_error, error.message
            )
        )
        if self.dedup is not None:
            refuse_parked(self.dedup.failed(publish), error)
        self._answer_up_to(self._answered + 1)
        if error.server_error != ServerError.TopicTerminatedError and not self._dropping:
            if not self._failing:
                log.error("publish failed", topic=self.name.full, error=str(error))
            self._failing = True
            self._begin_to_send_producers_away()

    # --- what is shown and looked after -------------------------------------------------

    @property
    def deduplicates(self) -> bool:
        """See TopicStorage, as for the following."""
        return self.dedup is not None

    @property
    def oldest_in_backlog(self) -> OldestMessage | None:
        """As of the last look."""
        return self.backlog.oldest

    def ledger_statistics(self) -> ManagedLedgerStatistics | None:
        """A snapshot."""
        return self.ledger.statistics()

    def stored_counts(self) -> StoredCounts | None:
        """Since it was loaded."""
        times, sizes, backlog = self.publish_times, self.entry_sizes, self.backlog
        return StoredCounts(
            latencies=times.counts(),
            latency_seconds=times.sum_seconds,
            sizes=sizes.counts(),
            size_bytes=sizes.size_bytes,
            entries=self.ledger.appender.entries_added,
            evictions_by_size=backlog.size_evictions,
            evictions_by_age=backlog.age_evictions,
        )

    async def check_quotas(self) -> None:
        """Those of the backlog."""
        if not self.name.is_system:
            await self.backlog.check()

    def request_trim(self) -> None:
        """Of its ledger."""
        self.ledger.request_trim()

    async def keep_deduplication(self, *, by_age: bool) -> None:
        """By entries, or by age."""
        dedup = self.dedup
        if dedup is None:
            return
        seconds = self.policies.effective.deduplication_snapshot_seconds if by_age else 0
        dedup.forget_inactive(set(self.access.producers))
        if (dedup.wants_snapshot or dedup.is_snapshot_due(seconds)) and not self.closing:
            await dedup.snapshot()

    async def check_backlog(self) -> None:
        """Raises: BrokerError: no producer may come, because the backlog is over its quota."""
        await self.backlog.check_producer()

    def backlog_gate_changed(self) -> None:
        """The quota of the backlog is near now, or no longer (BacklogOwner)."""
        self.publish_limits.use_backlog_gate(self.backlog.gate, self.access.producers.values())

    @property
    def is_sending_producers_away(self) -> bool:
        """Whether it drops messages until they are gone."""
        return self._dropping or bool(self.closing)

    def send_producers_away(self) -> None:
        """They return, and are refused as long as the backlog is over its quota (BacklogOwner)."""
        if not self.is_sending_producers_away and self.access.producers:
            self._begin_to_send_producers_away()

    def on_fenced(self) -> None:
        """Consumers would get messages whose acknowledgements cannot be stored."""
        if not self.closing and not self._dropping:
            self._begin_to_send_producers_away()

    def _begin_to_send_producers_away(self) -> None:
        self._dropping = True
        self.services.nursery.start_soon(self._send_producers_away)

    async def _send_producers_away(self) -> None:
        """After a failed append, or with a fenced ledger: no producer continues after a missing
        message. If that cannot be ensured, or the topic is lost, the topic is unloaded."""
        try:
            await self.finish_publishes()
            self.disconnect_producers()
            self._dropping = False
            if not self.ledger.fenced:
                return
        except Exception as error:
            log.error("cannot send producers away", topic=self.name.full, **told(error))
        await self._unload_failed()

    async def _unload_failed(self) -> None:
        try:
            await self.services.unload(self.name)
        except Exception as error:
            log.error("cannot unload failed topic", topic=self.name.full, **told(error))

    def _answer_up_to(self, answered: int) -> None:
        self._answered = answered
        self.publish_times.answered(answered, self.services.clock.now())
        while self._after_publishes and self._after_publishes[0][0] <= answered:
            self._after_publishes.pop(0)[1]()

    def call_after_publishes(self, callback: Callable[[], None]) -> None:
        """Call once every message taken so far is answered."""
        if self._taken == self._answered:
            callback()
        else:
            self._after_publishes = self._after_publishes or []
            self._after_publishes.append((self._taken, callback))

    async def finish_publishes(self) -> None:
        """Wait until every message taken so far is answered, within `FINISH_SECONDS_MAX`. The rest
        fail when the ledger is closed."""
        if self._taken != self._answered:
            self.append_published()
            self.hand_to_storage()
            finished = trio.Event()
            self.call_after_publishes(finished.set)
            with trio.move_on_after(FINISH_SECONDS_MAX):
                await finished.wait()

    def last_sequence_id(self, producer_name: str) -> int:
        """The sequence id after which a new producer of this name continues; -1 without
        deduplication."""
        return -1 if self.dedup is None else self.dedup.last_sequence_id(producer_name)

    async def store_epoch(self, epoch: int) -> None:
        """Make the topic epoch durable before its producer is told."""
        await self.ledger.change_properties(lambda old: {**old, TOPIC_EPOCH_PROPERTY: str(epoch)})

    # --- positions ----------------------------------------------------------------------

    def last_position(self) -> Position:
        """The newest entry; (-1, -1) when there is none, or none is left."""
        return newest_position(self.ledger)

    @property
    def _end(self) -> NewestOfTopic:
        self._newest = self._newest or NewestOfTopic(self.ledger)
        return self._newest

    def newest_entry(self) -> Coroutine[Any, Any, Entry | None]:
        """See `Topic.newest_entry`."""
        return self._end.entry()

    def newest_message(self) -> Coroutine[Any, Any, Entry | None]:
        """See `Topic.newest_message`."""
        newest = self._end.message()
        return newest if self.compaction is None else self._newest_of(self.compaction, newest)

    @staticmethod
    async def _newest_of(
        compaction: LogCompaction, newest: Coroutine[Any, Any, Entry | None]
    ) -> Entry | None:
        return compaction.log.newest(await newest)

    async def terminate(self) -> Position:
        """Accept no more messages. Consumers are told once they have drained the topic.

        A producer is sent CLOSE_PRODUCER before its late messages are refused, as in Pulsar. In the
        other order the Go client waits for its timeout.
        """
        await self.finish_publishes()
        if self._refused_by_end is None:
            self._refused_by_end = []
        try:
            last = await self.ledger.terminate()
            self.disconnect_producers()
        finally:
            self._answer_refused_by_end()
        for subscription in self.subscriptions.values():
            subscription.topic_terminated()
        return last

    def _answer_refused_by_end(self) -> None:
        """A termination that ran beside this one may have done so."""
        refused, self._refused_by_end = self._refused_by_end, None
        for context, error in refused or []:
            self.on_append_failed(context, error)

    # --- life ---------------------------------------------------------------------------

    async def delete_cursor(self, name: str) -> None:
        """Delete the position of a subscription."""
        await self.ledger.delete_cursor(name)

    async def open_kept_subscription(self, name: str) -> None:
        """Open the subscription of an existing cursor, as when the topic was loaded."""
        request = SubscriptionRequest(
            name=name, properties=dict(self.ledger.cursors[name].properties)
        )
        kinds = self.services.subscription_kinds
        self.subscriptions[name] = await kinds.open(request, self.context())

    async def close_storage(self) -> None:
        """Release the ledger. All messages taken are answered first."""
        try:
            if self.dedup is not None:
                await self.dedup.snapshot()
        finally:
            await self.services.factory.close(self.ledger.name)
            self._disconnect()

    async def delete_storage(self) -> None:
        """Delete the ledger with its cursors and all other data under the topic's name."""
        await self.services.factory.delete(self.ledger.name)
        if self.compaction is not None:
            await self.compaction.delete()
        self._disconnect()

    def _disconnect(self) -> None:
        """Nobody refers to it any more."""
        self.services.message_expiry.forget(self)
        if self.compaction is not None:
            self.services.log_compactions.forget(self.compaction)
        self.backlog.disconnect()
        self.ledger.disconnect()
