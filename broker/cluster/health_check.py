"""A check of this broker's health: a message is stored on its own topic and read again.

The topic is `healthcheck` in the broker's heartbeat namespace, in the form of Pulsar 1 or 2. Its
managed ledger has no subscription, so full ledgers are deleted. The stored entries are messages as
a producer of Pulsar makes them.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Final, Protocol, final

import trio

from broker.cluster.heartbeat import HEALTH_CHECK_TOPIC
from broker.ground.entry import Entry
from ledgers.errors import LedgerError
from protocol import pulsar_api_pb2 as pb
from protocol.errors import BrokerError, ServiceNotReady
from protocol.metadata import encode_message
from protocol.topic_name import PERSISTENT
from runtime.locks import KeyedLocks

if TYPE_CHECKING:
    from broker.managed_ledger.context import AppendListener
    from protocol.position import Position
    from runtime.clock import Clock

_PRODUCER: Final = "healthcheck"
_BYTES_MAX: Final = 64 * 1024


class HealthLedger(Protocol):
    """A managed ledger, as the check uses it."""

    @property
    def listener(self) -> AppendListener | None:
        """Gets the outcome of appends."""

    @listener.setter
    def listener(self, listener: AppendListener) -> None: ...

    def append_run(self, entries: list[Entry], contexts: list[object]) -> None:
        """Append entries."""

    async def read(self, position: Position, count_max: int, bytes_max: int) -> list[Entry]:
        """Raises: BrokerError PersistenceError."""


class HealthLedgers(Protocol):
    """Opens managed ledgers."""

    async def open(self, name: str) -> HealthLedger:
        """Raises: BrokerError, OwnershipLost."""


@final
class HealthCheck:
    """One check of a topic runs at a time; others wait for their turn."""

    def __init__(self, factory: HealthLedgers, clock: Clock, seconds_max: float = 30.0) -> None:
        """`seconds_max`: for one check, with its waiting."""
        self._factory = factory
        self._clock = clock
        self._seconds_max = seconds_max
        self._locks: KeyedLocks[str] = KeyedLocks()

    async def run(self, namespace_name: str) -> None:
        """Check with the topic of this heartbeat namespace, which this broker owns.

        Raises: BrokerError: nothing could be stored, or what was stored could not be read, in time.
        """
        with trio.move_on_after(self._seconds_max) as scope:
            async with self._locks.hold(namespace_name):
                await self._store_and_read(f"{namespace_name}/{PERSISTENT}/{HEALTH_CHECK_TOPIC}")
        if scope.cancelled_caught:
            raise ServiceNotReady(
                f"The health check did not store and read a message in {self._seconds_max:g} s"
            )

    async def _store_and_read(self, name: str) -> None:
        ledger = await self._factory.open(name)
        message = self._message()
        position = await _stored(ledger, message)
        try:
            entries = await ledger.read(position, 1, _BYTES_MAX)
        except LedgerError as error:
            raise ServiceNotReady(f"The health check could not read: {error}") from error
        if not entries or entries[0].data != message:
            raise ServiceNotReady("The health check read something else than it had stored")

    def _message(self) -> bytes:
        metadata = pb.MessageMetadata(
            producer_name=_PRODUCER, sequence_id=0, publish_time=self._clock.wall_ms()
        )
        return encode_message(metadata, str(uuid.uuid4()).encode())


async def _stored(ledger: HealthLedger, message: bytes) -> Position:
    """The position of the message, once it is durable. Raises: BrokerError."""
    attempt = _Attempt()
    ledger.listener = attempt
    ledger.append_run([Entry(message, 1)], [attempt])
    await attempt.done.wait()
    if attempt.failure is not None:
        raise attempt.failure
    assert attempt.position is not None
    return attempt.position


@final
class _Attempt:
    """An AppendListener for one entry, and its context. Entries of earlier attempts, which were
    given up, are none of its business."""

    def __init__(self) -> None:
        self.done = trio.Event()
        self.position: Position | None = None
        self.failure: BrokerError | None = None

    def on_appended(self, entries: list[Entry], contexts: list[object]) -> None:
        """See AppendListener."""
        for entry, context in zip(entries, contexts, strict=True):
            if context is self:
                self.position = entry.position
                self.done.set()

    def on_append_failed(self, context: object, error: BrokerError) -> None:
        """See AppendListener."""
        if context is self:
            self.failure = error
            self.done.set()

    def on_fenced(self) -> None:
        """See AppendListener. The next check opens the ledger again."""

    def on_terminated(self) -> None:
        """See AppendListener. Nobody ends it."""
