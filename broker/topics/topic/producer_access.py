"""Which producers may publish to a topic: producer names and access modes. Pure.

The rules and texts are those of Pulsar 4.0 (PIP-68, PIP-74). A shared producer is refused while an
exclusive one holds the topic or waits for it. An exclusive producer needs an empty topic. An
exclusive producer with fencing ends all others, including waiting ones. Waiting producers get the
topic in order of arrival. Every exclusive grant raises the topic epoch; a producer that returns
with an older epoch was fenced meanwhile.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, final

from broker.topics.topic.producer_request import (
    EXCLUSIVE,
    EXCLUSIVE_WITH_FENCING,
    SHARED,
    WAIT_FOR_EXCLUSIVE,
)
from protocol.errors import ProducerBusy, ProducerFenced

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.topics.topic.producer import Producer

CLAIMED_EPOCH_MAX: Final = 2**62
"""The newest epoch that a producer may bring to a topic whose epoch is older. Pulsar takes any
signed 64-bit number, and the epochs after the largest one are negative. From this one on, grants
cannot get there one by one."""


@final
@dataclass(frozen=True, slots=True)
class Admission:
    """The outcome for one producer."""

    granted: bool
    """False: it waits for exclusive access, and `promote` will return it later."""
    new_epoch: int | None = None
    """The topic epoch to be made durable if the grant was exclusive."""
    fenced: tuple[Producer, ...] = ()
    """Producers that lose the topic to this one."""
    fenced_waiting: tuple[Producer, ...] = ()
    """Waiting producers that lose their place."""


@final
@dataclass(slots=True)
class ProducerAccess:
    """The producers of one topic.

    Invariant: `exclusive` is None or the only one in `producers`; no producer waits while the
    topic has none.
    """

    epoch: int | None = None
    producers: dict[str, Producer] = field(default_factory=dict)
    exclusive: Producer | None = None
    waiting: dict[Producer, None] = field(default_factory=dict)
    """In order of arrival."""

    def conflict(self, producer: Producer) -> Producer | None:
        """The live producer of the same name, if any, that `producer` does not succeed."""
        other = self.producers.get(producer.name)
        if other is None or _succeeds(producer, other):
            return None
        return other

    def admit(self, producer: Producer) -> Admission:
        """Let the producer in, or make it wait.

        Raises: BrokerError ProducerBusy, ProducerFenced.
        """
        if self.conflict(producer) is not None:
            raise ProducerBusy(
                f"Producer with name '{producer.name}' is already connected to topic"
            )
        self.remove(self.producers.get(producer.name))
        mode = producer.request.access_mode
        if mode == SHARED:
            if self.exclusive is not None or self.waiting:
                raise ProducerBusy(self._held_text())
            self.producers[producer.name] = producer
            return Admission(granted=True)
        if mode == EXCLUSIVE_WITH_FENCING:
            return self._admit_fencing(producer)
        if mode == EXCLUSIVE:
            if self.exclusive is not None or self.waiting:
                raise ProducerFenced(self._held_text())
            if self.producers:
                raise ProducerFenced("Topic has existing shared producers")
        elif mode == WAIT_FOR_EXCLUSIVE and self.producers:
            self.waiting[producer] = None
            return Admission(granted=False)
        self._check_epoch(producer)
        return self._grant_exclusive(producer)

    def _held_text(self) -> str:
        holder = self.exclusive.name if self.exclusive is not None else "a waiting producer"
        return f"Topic has an existing exclusive producer: {holder}"

    def _check_epoch(self, producer: Producer) -> None:
        known = producer.request.topic_epoch
        current = -1 if self.epoch is None else self.epoch
        if known in (None, current):
            return
        if not current < known <= CLAIMED_EPOCH_MAX:
            raise ProducerFenced(
                f"Topic epoch has already moved. Current epoch: {current}, Producer epoch: {known}"
            )

    def _admit_fencing(self, producer: Producer) -> Admission:
        self._check_epoch(producer)
        fenced = tuple(self.producers.values())
        fenced_waiting = tuple(self.waiting)
        self.producers.clear()
        self.waiting.clear()
        granted = self._grant_exclusive(producer)
        return Admission(
            granted=True,
            new_epoch=granted.new_epoch,
            fenced=fenced,
            fenced_waiting=fenced_waiting,
        )

    def _grant_exclusive(self, producer: Producer) -> Admission:
        known = producer.request.topic_epoch
        following = 0 if self.epoch is None else self.epoch + 1
        epoch = following if known is None else known
        self.epoch = epoch
        self.exclusive = producer
        self.producers[producer.name] = producer
        return Admission(granted=True, new_epoch=epoch)

    def remove(self, producer: Producer | None) -> bool:
        """Remove the producer, waiting or not. False if it was not, or no longer, in."""
        if producer is None:
            return False
        if producer in self.waiting:
            del self.waiting[producer]
            return True
        if self.producers.get(producer.name) is not producer:
            return False
        del self.producers[producer.name]
        if self.exclusive is producer:
            self.exclusive = None
        return True

    def promote(self, refuse: Callable[[Producer, Exception], None]) -> Producer | None:
        """The waiting producer that gets the free topic now. Call when a producer has left."""
        while self.waiting and not self.producers:
            producer = next(iter(self.waiting))
            del self.waiting[producer]
            try:
                self._check_epoch(producer)
            except ProducerFenced as error:
                refuse(producer, error)
                continue
            self._grant_exclusive(producer)
            return producer
        return None


def _succeeds(producer: Producer, other: Producer) -> bool:
    """Whether this is the same client's next attempt, so that it may replace `other`."""
    return (
        producer.session is other.session
        and producer.producer_id == other.producer_id
        and producer.request.epoch > other.request.epoch
    )
