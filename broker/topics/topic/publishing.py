"""The way of a message through a persistent topic, from its producer to its answer. Hot path.

`publish` takes messages. `append_published` appends those of a turn together when the turn ends
(`broker.ground.turn`). The ledger answers by `on_appended`, once per finished journal group and
topic, in order. All messages of a group are answered first and all subscriptions are notified once,
so that one flush per connection carries everything.

A failed append is never skipped: its messages are refused, and their producers then disconnected.
Messages they sent after it are dropped, so that they send them again in order through a new
producer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import structlog
import trio

from broker.ground.entry import Entry, entries_of
from broker.ground.histograms import EntrySizes, PublishTimes
from broker.topics.topic.backlog_keeper import BacklogKeeper
from broker.topics.topic.errors import told
from broker.topics.topic.producer import Producer, Publish, PublishRun
from broker.topics.topic.publish_answers import answer_stored, answer_with_copies
from broker.topics.topic.topic import Topic
from protocol.errors import BrokerError, ServerError
from protocol.metadata import count_messages

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.tenancy.policies.scopes import TopicPolicies
    from broker.topics.subscription.api import PublishObserver
    from broker.topics.topic.parts import TopicPart
    from broker.topics.topic.services import TopicServices
    from broker.topics.topic.topic_ledger import TopicLedger
    from protocol.new_messages import NewMessage, NewMessages
    from protocol.position import Position
    from protocol.topic_name import TopicName

log = structlog.get_logger()

FINISH_SECONDS_MAX: Final = 10.0
"""How long an unload waits for publishes in progress."""


class PublishingTopic(Topic):
    """A persistent topic, as far as its messages are concerned.

    Invariant: `_taken - _answered` messages are on their way to storage.
    """

    __slots__ = (
        "_after_publishes",
        "_answered",
        "_arrived",
        "_arrived_contexts",
        "_dropping",
        "_examiners",
        "_failing",
        "_observers",
        "_refused_by_end",
        "_taken",
        "_watchers",
        "backlog",
        "entry_sizes",
        "ledger",
        "message_index",
        "parts",
        "publish_times",
    )

    def __init__(
        self,
        services: TopicServices,
        name: TopicName,
        policies: TopicPolicies,
        ledger: TopicLedger,
    ) -> None:
        super().__init__(services, name, policies)
        self.ledger = ledger
        self.publish_times = PublishTimes()
        self.entry_sizes = EntrySizes()
        self._observers: tuple[PublishObserver, ...] = ()
        """For subscriptions that measure the stages of delivery."""
        self.parts: tuple[TopicPart, ...] = ()
        """In the order of their kinds, also those that are not loaded."""
        self._examiners: tuple[TopicPart, ...] = ()
        """The parts that decide which messages are stored."""
        self._watchers: tuple[TopicPart, ...] = ()
        """The parts that are loaded."""
        self.message_index = -1
        """Index of the newest message; kept only with an entry interceptor."""
        self._dropping = False
        """After a failed append, until its producers have been sent away."""
        self._failing = False
        """Appends fail, the failure has been logged, and none has succeeded since."""
        self._refused_by_end: list[tuple[Any, BrokerError]] | None = None
        """While the topic is being terminated: messages that arrived too late."""
        self._arrived: list[Entry] = []
        """Taken in this turn; appended together at its end."""
        self._arrived_contexts: list[object] = []
        self.backlog = BacklogKeeper(self, ledger, services.config, services.clock)
        self._taken = 0
        self._answered = 0
        self._after_publishes: list[tuple[int, Callable[[], None]]] | None = None
        ledger.listener = self

    def check_publishable(self) -> None:
        """Raises: BrokerError TopicTerminatedError, or NotAllowedError for a shadow."""
        self.ledger.check_appendable()

    def publish(self, producer: Producer, send: NewMessage) -> None:
        """Take a message. It is answered when the outcome is known."""
        if self.closing or self._dropping:
            return  # the producer is being sent away, and its client sends this again
        publish = Publish(producer, send, len(send.payload))
        for part in self._examiners:
            if not part.admit(publish):
                return  # the part answers it
        self._take(publish)

    def _take(self, publish: Publish) -> None:
        producer, send, size = publish.producer, publish.send, publish.size
        session, services = producer.session, self.services
        session.taken(1, size)
        payload = send.payload
        message_count = count_messages(payload)
        claimed = message_count or 1
        producer.messages_in += claimed
        if send.is_chunk:
            producer.chunks_in += 1
            self.chunks_seen.any = True
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
        self._arrived_contexts.append(publish)
        if self._observers:
            self._observe(entry, session.received_at)

    def publish_run(self, producer: Producer, run: NewMessages) -> None:
        """See Topic. Where each message is looked at, by deduplication for example, or may be
        changed, one by one."""
        if self.closing or self._dropping:
            return  # see `publish`
        services = self.services
        if self._examiners or self._observers or services.entry_interceptor is not None:
            publishes = [Publish(producer, send, len(send.payload)) for send in run.messages()]
            for publish in self._admitted(publishes):
                self._take(publish)
            return
        count = len(run.payloads)
        producer.session.taken(count, run.size_bytes)
        producer.run_published(run)
        self._taken += count
        if not self._arrived:
            services.turns.published_to(self)
        self._arrived += entries_of(run.payloads, run.counts)
        self._arrived_contexts += [PublishRun(producer, run)] * count

    def _admitted(self, publishes: list[Publish]) -> list[Publish]:
        """Those to store. The parts that examine them answer the others."""
        for part in self._examiners:
            publishes = part.admit_run(publishes)
        return publishes

    def use_parts(self, parts: tuple[TopicPart, ...]) -> None:
        """From now on it has these parts. Called again when one is loaded."""
        self.parts = parts
        self._examiners = tuple([part for part in parts if part.examines])
        self._watchers = tuple([part for part in parts if part.is_loaded])

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
            self.publish_times.sent(self._taken, self.services.clock.now())
            if self.backlog.counts_turns:
                self.backlog.turn_ended()

    def arrived_bytes(self) -> int:
        """Size of the messages of this turn that are not appended yet (BacklogOwner)."""
        return sum(len(entry.data) for entry in self._arrived)

    def storage_failed(self, error: Exception) -> None:
        """See `broker.ground.turn.PublishedTo`: the messages without an outcome are refused."""
        self.ledger.storage_failed(error)

    def on_appended(self, entries: list[Entry], contexts: list[Any]) -> None:
        """A group is durable: queue the receipts, then let the subscriptions deliver."""
        if self._watchers:
            self._answer_with_parts(entries, contexts)
        else:
            answer_stored(entries, contexts, self.entry_sizes)
        self._failing = False
        self.published_last_ms = self.services.clock.wall_ms()
        self._answer_up_to(self._answered + len(entries))
        for subscription in tuple(self.subscriptions.values()):
            try:
                subscription.tail_moved()
            except Exception as error:
                self.subscription_failed(subscription, error)
        if self.backlog.evicts:
            self.backlog.appended()

    def _answer_with_parts(self, entries: list[Entry], contexts: list[Any]) -> None:
        publishes: list[Publish] = [each.take() for each in contexts] if self._examiners else []
        waiting: list[tuple[int, list[Publish]]] = []
        for part in self._watchers:
            waiting += part.stored(entries, publishes)
        if len(self._watchers) > 1:
            waiting.sort(key=_answered_before)
        answer_with_copies(waiting, entries, publishes or contexts, self.entry_sizes)

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
        producer.session.answered(1, publish.size)
        for observer in self._observers:
            observer.lost()
        self.refuse_message(producer, send, error)
        for part in self._examiners:
            part.failed(publish, error)
        self._answer_up_to(self._answered + 1)
        if error.server_error != ServerError.TopicTerminatedError and not self._dropping:
            if not self._failing:
                log.error("publish failed", topic=self.name.full, error=str(error))
            self._failing = True
            self._begin_to_send_producers_away()

    # --- producers are sent away ---------------------------------------------------------

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

    def on_terminated(self) -> None:
        """Consumers are told once they have drained the topic."""
        for subscription in list(self.subscriptions.values()):
            subscription.topic_terminated()

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

    # --- what waits for answers ----------------------------------------------------------

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
            finished = trio.Event()
            self.call_after_publishes(finished.set)
            with trio.move_on_after(FINISH_SECONDS_MAX):
                await finished.wait()

    def last_sequence_id(self, producer_name: str) -> int:
        """The sequence id after which a new producer of this name continues; -1 without
        deduplication."""
        return max([-1, *[part.last_sequence_id(producer_name) for part in self.parts]])

    async def terminate(self) -> Position:
        """Accept no more messages. Consumers are notified once they have drained the topic. A
        producer is sent CLOSE_PRODUCER before its late messages are refused, as in Pulsar. In the
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
        self.on_terminated()
        return last

    def _answer_refused_by_end(self) -> None:
        """A termination that ran beside this one may have done so."""
        refused, self._refused_by_end = self._refused_by_end, None
        for context, error in refused or []:
            self.on_append_failed(context, error)


def _answered_before(waiting: tuple[int, list[Publish]]) -> int:
    return waiting[0]
