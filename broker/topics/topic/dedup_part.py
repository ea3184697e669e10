"""Deduplication as a part of a topic, and the timer of its snapshots.

The rules and what they store are in `dedup_store`. While the part is not loaded, it refuses only
messages that name another producer: a later replay would count them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import structlog
import trio

from broker.ground.slices import STEPS_PER_SLICE
from broker.topics.topic.dedup import Verdict
from broker.topics.topic.dedup_store import DEDUP_CURSOR, DedupStore
from broker.topics.topic.parts import PartKind, TopicPart
from broker.topics.topic.publish_answers import answer_duplicate, refuse_parked
from protocol.dedup_ids import FOREIGN, last_sequence_id_in
from protocol.errors import BrokerError, NotAllowed, ServerError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from broker.ground.config import BrokerConfig
    from broker.ground.entry import Entry
    from broker.topics.topic.parts import PartOwner
    from broker.topics.topic.producer import Publish
    from runtime.clock import Clock

log = structlog.get_logger()

DEDUPLICATION: Final = "deduplication"
SNAPSHOT_CHECK_SECONDS: Final = 10.0


@final
class DeduplicationPart(TopicPart):
    """The deduplication of one topic."""

    name = DEDUPLICATION
    examines = True

    def __init__(self, topic: PartOwner) -> None:
        super().__init__()
        self._topic = topic
        self.store: DedupStore[Publish] | None = None
        """None until it is loaded."""

    async def load(self) -> None:
        """See TopicPart."""
        topic = self._topic
        self.store = await DedupStore.open(
            topic.ledger, topic.services.config, topic.services.clock, topic.access.producers
        )

    def end(self) -> None:
        """See TopicPart."""
        store, self.store = self.store, None
        if store is not None:
            text = "deduplication was switched off: send it again"
            refuse_parked(store.drop_parked(), BrokerError(ServerError.ServiceNotReady, text))

    async def close(self) -> None:
        """See TopicPart."""
        if self.store is not None:
            await self.store.snapshot()

    def admit(self, publish: Publish) -> bool:
        """See TopicPart."""
        store, payload = self.store, publish.send.payload
        if store is not None:
            verdict = store.admit(publish, payload)
        elif last_sequence_id_in(payload, publish.producer.name.encode()) == FOREIGN:
            verdict = Verdict.FOREIGN
        else:
            verdict = Verdict.NEW
        if verdict is Verdict.NEW:
            return True
        if verdict is Verdict.IN_FLIGHT:  # a copy of a message in flight: both get the same answer
            publish.producer.session.taken(1, publish.size)
        elif verdict is Verdict.DUPLICATE:
            answer_duplicate(publish, 0, 0)
        elif verdict is Verdict.FOREIGN:
            producer = publish.producer
            reason = (
                "with deduplication, the metadata of a message have to name its producer,"
                f" {producer.name!r:.200}, and a sequence id that is not below that of its SEND"
            )
            producer.topic.refuse_message(producer, publish.send, NotAllowed(reason))
        return False

    def stored(
        self, entries: list[Entry], publishes: list[Publish]
    ) -> Sequence[tuple[int, list[Publish]]]:
        """See TopicPart."""
        store = self.store
        if store is None:
            return ()
        waiting: list[tuple[int, list[Publish]]] = []
        for end, publish in enumerate(publishes, 1):
            copies = store.persisted(publish, entries[end - 1])
            if copies:
                waiting.append((end, copies))
        return waiting

    def failed(self, publish: Publish, error: BrokerError) -> None:
        """See TopicPart."""
        if self.store is not None:
            refuse_parked(self.store.failed(publish), error)

    def last_sequence_id(self, producer_name: str) -> int:
        """See TopicPart."""
        return -1 if self.store is None else self.store.last_sequence_id(producer_name)

    async def keep(self, *, by_age: bool) -> None:
        """Store a snapshot, if one is due by the number of entries or (`by_age`) the time since the
        last. Raises: BrokerError."""
        store, topic = self.store, self._topic
        if store is None:
            return
        seconds = topic.policies.effective.deduplication_snapshot_seconds if by_age else 0
        store.forget_inactive()
        if (store.wants_snapshot or store.is_snapshot_due(seconds)) and not topic.closing:
            await store.snapshot()


@final
class DeduplicationKind(PartKind[DeduplicationPart]):
    """The kind of the part, for one broker."""

    name = DEDUPLICATION
    cursors = frozenset({DEDUP_CURSOR})

    def __init__(self, config: BrokerConfig, clock: Clock) -> None:
        super().__init__()
        self._frequency_seconds = config.brokerDeduplicationSnapshotFrequencyInSeconds
        self._clock = clock

    def wants(self, topic: PartOwner) -> bool:
        """See PartKind."""
        return topic.policies.effective.deduplication

    def make(self, topic: PartOwner) -> DeduplicationPart:
        """See PartKind."""
        return DeduplicationPart(topic)

    async def discard(self, topic: PartOwner) -> None:
        """See PartKind: its cursor would hold storage for ever, and bring back a stale state."""
        if DEDUP_CURSOR in topic.ledger.cursors:
            await topic.ledger.delete_cursor(DEDUP_CURSOR)

    async def run(self) -> None:
        """Store snapshots: after so many entries at once, by age as often as the configuration
        says."""
        frequency, clock = self._frequency_seconds, self._clock
        looked_at = clock.now()
        while True:
            await trio.sleep(min(SNAPSHOT_CHECK_SECONDS, frequency or SNAPSHOT_CHECK_SECONDS))
            by_age = 0 < frequency <= clock.now() - looked_at
            if by_age:
                looked_at = clock.now()
            await self.keep(by_age=by_age)

    async def keep(self, *, by_age: bool) -> None:
        """Store the snapshots that are due. A failure for one topic is logged."""
        for number, (part, topic) in enumerate(list(self.loaded.items()), 1):
            if part in self.loaded:
                await _keep_logged(part, topic, by_age=by_age)
            if number % STEPS_PER_SLICE == 0:
                await trio.lowlevel.checkpoint()


async def _keep_logged(part: DeduplicationPart, topic: PartOwner, *, by_age: bool) -> None:
    try:
        await part.keep(by_age=by_age)
    except BrokerError as error:
        log.warning(
            "cannot keep the deduplication state; a restart replays more",
            topic=topic.name.full,
            error=str(error),
        )
    except Exception as error:
        log.error("cannot keep the deduplication state", topic=topic.name.full, exc_info=error)
