"""The producers of a topic: who may come, who waits for the topic, what follows when one leaves.

`ProducerAccess` decides; this part opens, refuses and disconnects. Openings run in the order of the
requests, as operations of the topic (`PRODUCERS`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import structlog

from broker.limits.producer_bytes import producer_bytes
from broker.topics.topic.admission import check_producers
from broker.topics.topic.producer import NO_LIMITS, Producer
from broker.topics.topic.producer_access import ProducerAccess
from broker.topics.topic.producer_turns import ProducerTurns
from broker.topics.topic.publish_totals import PublishTotals
from broker.topics.topic.topic_base import TopicBase
from broker.topics.topic.topic_limits import TopicPublishLimits
from protocol.errors import MetadataError, ProducerFenced, ServiceNotReady

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from typing import Any

    from broker.tenancy.policies.scopes import TopicPolicies
    from broker.topics.topic.producer import ProducerSession
    from broker.topics.topic.producer_request import ProducerRequest
    from broker.topics.topic.producer_turns import Turn
    from broker.topics.topic.services import TopicServices
    from protocol.errors import BrokerError
    from protocol.new_messages import NewMessage
    from protocol.topic_name import TopicName

log = structlog.get_logger()

LOGGED_NAME_MAX: Final = 200
"""Characters of a producer's name in a line of the log."""


class TopicProducers(TopicBase):
    """A topic, as far as its producers are concerned."""

    __slots__ = ("_made_turns", "access", "publish_limits", "published", "published_last_ms")

    def __init__(self, services: TopicServices, name: TopicName, policies: TopicPolicies) -> None:
        super().__init__(services, name, policies)
        self.access = ProducerAccess()
        self.published_last_ms = 0
        self.published = PublishTotals(self.access.producers)
        self._made_turns: ProducerTurns | None = None
        self.publish_limits = TopicPublishLimits(services)

    @property
    def _turns(self) -> ProducerTurns:
        self._made_turns = self._made_turns or ProducerTurns()
        return self._made_turns

    @property
    def epoch(self) -> int | None:
        """The number of the last exclusive grant; None before the first."""
        return self.access.epoch

    async def prepare_to_produce(self, name: str, address: str, *, encrypted: bool) -> None:
        """Everything that can refuse a producer before anything is changed, in Pulsar's order. The
        first step of opening one, and like `attach_producer` one of the `operations` of producers.

        Raises: BrokerError.
        """
        self.check_open()
        await self.policies.tell()  # again, if it could not take them up when they changed
        self.check_room_to_produce(name, address)
        await self.check_backlog()
        if self.policies.effective.encryption_required and not encrypted:
            raise MetadataError(f"Encryption is required in {self.name.full}")

    async def attach_producer(self, session: ProducerSession, request: ProducerRequest) -> Producer:
        """Admit a producer, which may have to wait for its turn (see `wait_turn`). One of the
        `operations` of producers.

        Raises: BrokerError.
        """
        self.check_open()
        self.check_publishable()
        self.check_room_to_produce(request.name, session.remote_address)
        producer = Producer(self, session, request, self.services.clock.wall_ms())
        before = self.access.producers.get(request.name)
        self._hold(producer)
        try:
            admission = self.access.admit(producer)
        except BaseException:
            self._left(producer)
            raise
        if before is not None:
            self._left(before)
        for fenced in admission.fenced:
            self._left(fenced)
            fenced.session.closed(fenced)
        for fenced in admission.fenced_waiting:
            self._left(fenced)
            self._turns.refuse(fenced, ProducerFenced("Fenced out by another producer"))
        if not admission.granted:
            self._turns.begin(producer)
            return producer
        await self._open_producer(producer, admission.new_epoch)
        return producer

    def check_room_to_produce(self, name: str, address: str) -> None:
        """Whether the producer of this name, or one more, may come from this address.

        Raises: BrokerError ProducerBusy.
        """
        names = self.access.producers
        if name not in names:
            check_producers(
                self.name.full,
                self.policies.effective,
                self.services.config,
                address,
                len(names),
                self._addresses_of_producers,
            )

    def _addresses_of_producers(self) -> list[str]:
        return [each.session.remote_address for each in self.access.producers.values()]

    def knows_producer(self, name: str) -> bool:
        """Whether a producer of this name is connected or waits, or deduplication remembers what
        one has published: another would be refused, or its messages taken for duplicates."""
        access = self.access
        if name in access.producers or self.last_sequence_id(name) >= 0:
            return True
        return any(each.name == name for each in access.waiting)

    def holder_of_name(self, session: ProducerSession, request: ProducerRequest) -> Producer | None:
        """The producer of another connection that holds the name of this one."""
        wanted = Producer(self, session, request, 0)
        holder = self.access.conflict(wanted)
        return None if holder is None or holder.session is session else holder

    async def _open_producer(self, producer: Producer, new_epoch: int | None) -> None:
        if new_epoch is not None:
            try:
                await self.store_epoch(new_epoch)
            except BaseException:
                self.remove_producer(producer)
                raise
            if self.access.producers.get(producer.name) is not producer:
                raise ProducerFenced("Fenced out by another producer")
        producer.open = True
        producer.use_limits(self.publish_limits.in_force)
        self.touch()

    def wait_turn(self, producer: Producer) -> Coroutine[Any, Any, None]:
        """Wait until a producer that `attach_producer` left waiting has the topic.

        Raises: BrokerError: it lost its place.
        """
        return self._wait_turn(producer, self._turns.of(producer))

    async def _wait_turn(self, producer: Producer, turn: Turn) -> None:
        try:
            await turn.wait()
            await self._open_producer(producer, self.access.epoch)
        except BaseException:
            self.remove_producer(producer)
            raise

    def refuse_message(self, producer: Producer, send: NewMessage, refusal: BrokerError) -> None:
        """Refuse a message of the producer. Some clients send it again for ever, so the log says
        why. The lines that name a peer are bounded (`runtime.spared_lines`)."""
        session = producer.session
        session.refused(producer, send, refusal)
        log.warning(
            "message refused",
            topic=self.name.full,
            producer=producer.name[:LOGGED_NAME_MAX],
            sequence_id=send.sequence_id,
            error=refusal.message,
            peer=session.peer,
        )

    def remove_producer(self, producer: Producer) -> None:
        """The producer has left, for whatever reason. Idempotent."""
        if self._made_turns is not None:
            closed = ProducerFenced("The producer was closed while it waited")
            self._made_turns.refuse(producer, closed)
        if self.access.remove(producer):
            self._left(producer)
            if self.access.waiting:
                promoted = self.access.promote(self._refuse_waiting)
                if promoted is not None:
                    self._turns.grant(promoted)
        self.touch()

    def _refuse_waiting(self, producer: Producer, error: Exception) -> None:
        """It waited, and was taken out of the access of the topic because it may not have it."""
        self._left(producer)
        self._turns.refuse(producer, error)

    def _hold(self, producer: Producer) -> None:
        """Raises: TooManyRequests: names and metadata of producers take too much already."""
        size_bytes = producer_bytes(producer.name, producer.request.metadata)
        self.services.producer_bytes.take(producer.session, size_bytes)
        producer.held_bytes = size_bytes

    def _left(self, producer: Producer) -> None:
        """It is not in the access of the topic any more. Idempotent."""
        if producer.held_bytes:
            self.services.producer_bytes.give_back(producer.session, producer.held_bytes)
            producer.held_bytes = 0
        if producer.open:
            producer.open = False
            producer.use_limits(NO_LIMITS)
            self.published.left(producer)

    def disconnect_producers(self) -> None:
        """Disconnect every producer. Clients look up the topic and return by themselves."""
        for producer in list(self.access.producers.values()):
            producer.session.closed(producer)
            self.remove_producer(producer)
        for each in self._made_turns.waiting() if self._made_turns is not None else ():
            if self.access.remove(each):
                self._left(each)
            self._turns.refuse(each, ServiceNotReady("The topic is closing; look up again"))

    def end_producer(self, producer: Producer, reason: BrokerError) -> None:
        """Disconnect one producer. The reason is for the client, if it still waits."""
        self._turns.refuse(producer, reason)
        producer.session.closed(producer)
        self.remove_producer(producer)

    def rest_producers(self) -> None:
        """The topic is put to rest: what the next producer makes again goes."""
        if self._made_turns is not None and not self._made_turns.waiting():
            self._made_turns = None
        if not self.access.producers:
            self.access.producers.clear()  # gives the table of an emptied one back
