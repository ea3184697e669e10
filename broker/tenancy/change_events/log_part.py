"""One topic of a log of policies, at the broker that owns it: reads all of it, follows it, writes.

Everything is the protocol of any client, so that the owner may be this broker, another one, or one
of Pulsar. The whole topic is read again on each connection, so no state about the confirmations of
the former owner is kept.
"""

from __future__ import annotations

import itertools
import uuid
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, final

import trio

from broker.peers.owner_connection import LinkLost
from broker.tenancy.policies.change_event_schema import (
    EVENT_SCHEMA_PROPERTIES,
    EVENT_SCHEMA_TEXT,
)
from broker.tenancy.policies.topic_events import (
    BATCH_MAX,
    GLOBAL_PREFIX,
    EventSchema,
    Malformed,
    policies_in,
)
from broker.tenancy.policies.topic_policy_map import NO_VERSION, Kept
from protocol import client
from protocol import pulsar_api_pb2 as pb
from protocol.errors import BrokerError, ProtocolError
from protocol.message_id import position_of
from protocol.metadata import count_messages, is_encrypted, is_marker
from protocol.position import EARLIEST

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from broker.peers.owner_connection import OwnerConnection
    from protocol.client import ReceivedMessage
    from protocol.frames import ParsedFrame
    from protocol.position import Position
    from protocol.topic_name import TopicName
    from runtime.clock import Clock

    Take = Callable[[list[ParsedFrame]], Awaitable[None]]
    Connect = Callable[[Take], Awaitable[OwnerConnection]]

PERMITS: Final = 64
"""Messages under way at most: what comes at once takes a few milliseconds to read."""
PER_SLICE: Final = 16
ANSWER_SECONDS_MAX: Final = 20.0
SCHEMAS_MAX: Final = 100
_CONSUMER_ID: Final = 0
_PRODUCER_ID: Final = 0
_Type = pb.BaseCommand


class Event(NamedTuple):
    """One message."""

    key: str
    kept: Kept


class EventTaker(Protocol):
    """The reader of a part."""

    async def take(self, event: Event) -> None:
        """The next message. Does not raise."""


@final
class LogPart:
    """One connection. Made, then `run` once; `publish` while that runs."""

    def __init__(self, topic: TopicName, cluster: str, clock: Clock, taker: EventTaker) -> None:
        self.topic = topic
        self._clock = clock
        self._cluster = cluster
        self._taker = taker
        self._connection: OwnerConnection | None = None
        self._incoming: trio.MemorySendChannel[ParsedFrame]
        self._frames: trio.MemoryReceiveChannel[ParsedFrame]
        self._incoming, self._frames = trio.open_memory_channel(2 * PERMITS)
        self.caught_up = trio.Event()
        """Set when everything that was there at the beginning has been taken."""
        self._target: Position | None = None
        self._read_to: Position = (-1, -1)
        self._taken = 0
        self._own = EventSchema()
        self._schemas: dict[bytes, EventSchema | Malformed] = {}
        self._own_version: bytes | None = None
        self._producer_name = ""
        self._sequence_ids = itertools.count()
        self._receipts: dict[int, trio.Event] = {}
        self._outcomes: dict[int, Position | BrokerError] = {}
        self._progress = trio.Event()

    async def run(self, connect: Connect, *, create: bool) -> None:
        """Read and follow until the connection ends. `create`: make the topic if there is none.

        Raises: LinkLost, BrokerError.
        """
        connection = await connect(self._take)
        self._connection = connection
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._handle_frames, connection)
                nursery.start_soon(self._watch, connection)
                refusal = await self._begin(connection, create=create)
                if refusal is None:
                    await connection.wait_ended()
                nursery.cancel_scope.cancel()
            raise refusal or LinkLost(connection.failure)
        finally:
            connection.close("the log is not read any more")
            self._note_progress()
            for receipt in self._receipts.values():
                receipt.set()

    async def _begin(
        self, connection: OwnerConnection, *, create: bool
    ) -> LinkLost | BrokerError | None:
        """None: everything that was there has been taken."""
        try:
            await self._attach(connection, create=create)
            await self._wait_caught_up(connection)
        except (LinkLost, BrokerError) as error:
            return error
        return None

    async def _watch(self, connection: OwnerConnection) -> None:
        await connection.wait_ended()
        self._note_progress()

    async def _attach(self, connection: OwnerConnection, *, create: bool) -> None:
        name = f"__system_reader-reader-{uuid.uuid4().hex[:10]}"
        await connection.ask(
            lambda request_id: client.subscribe(
                self.topic.full,
                name,
                _CONSUMER_ID,
                request_id,
                pb.CommandSubscribe.Exclusive,
                start_message_id=EARLIEST,
                consumer_name=name,
                durable=False,
                read_compacted=True,
                force_topic_creation=create,
            )
        )
        answer = await connection.ask(
            lambda request_id: client.get_last_message_id(_CONSUMER_ID, request_id)
        )
        self._target = position_of(answer.getLastMessageIdResponse.last_message_id)
        connection.send(client.flow(_CONSUMER_ID, PERMITS))
        self._note_progress()

    async def _wait_caught_up(self, connection: OwnerConnection) -> None:
        while not self.caught_up.is_set() and not connection.failure:
            progress = self._progress
            with trio.move_on_after(ANSWER_SECONDS_MAX) as waited:
                await progress.wait()
            if waited.cancelled_caught:
                raise LinkLost(f"{self.topic.full} sends nothing")
        if connection.failure:
            raise LinkLost(connection.failure)

    def _note_progress(self) -> None:
        self._progress.set()
        self._progress = trio.Event()
        target = self._target
        if target is not None and (target[1] < 0 or self._read_to >= target):
            self.caught_up.set()

    # --- reading ------------------------------------------------------------------------

    async def _take(self, frames: list[ParsedFrame]) -> None:
        connection = self._connection
        for frame in frames:
            command = frame[0]
            kind = command.type
            if kind == _Type.MESSAGE:
                await self._incoming.send(frame)
            elif kind == _Type.SEND_RECEIPT:
                receipt = command.send_receipt
                self._answered(receipt.sequence_id, position_of(receipt.message_id))
            elif kind == _Type.SEND_ERROR:
                error = command.send_error
                self._answered(error.sequence_id, BrokerError(error.error, error.message))
            elif kind in (_Type.CLOSE_CONSUMER, _Type.CLOSE_PRODUCER) and connection is not None:
                connection.close("its owner has closed it")

    async def wait_read(self, position: Position) -> None:
        """Return when this message has been taken. Raises: LinkLost."""
        while self._read_to < position:
            connection, progress = self._connection, self._progress
            if connection is None or connection.failure:
                raise LinkLost("the log was lost before the change came back")
            await progress.wait()

    async def _handle_frames(self, connection: OwnerConnection) -> None:
        try:
            await self._handle(connection)
        except (LinkLost, BrokerError) as error:
            connection.close(str(error))

    async def _handle(self, connection: OwnerConnection) -> None:
        """Raises: LinkLost, BrokerError."""
        granted = 0
        async for command, payload in self._frames:
            if payload is None or command.message.consumer_id != _CONSUMER_ID:
                continue
            position = position_of(command.message.message_id)
            count = count_messages(payload)
            events = await self._events_in(connection, command, payload, position, count)
            for event in events:
                await self._taker.take(event)
                self._taken += 1
                if self._taken % PER_SLICE == 0:
                    await trio.lowlevel.checkpoint()
            self._read_to = position
            granted += max(1, count)  # the permits that its owner took, also for what is no event
            if 2 * granted >= PERMITS:
                connection.send(
                    client.flow(_CONSUMER_ID, granted)
                    + client.ack(_CONSUMER_ID, [position], cumulative=True)
                )
                granted = 0
            self._note_progress()

    async def _events_in(
        self,
        connection: OwnerConnection,
        command: pb.BaseCommand,
        payload: bytes,
        position: Position,
        count: int,
    ) -> list[Event]:
        try:
            if count > BATCH_MAX:
                raise ValueError(f"it is a batch of {count}")
            messages = client.received_messages(command, payload)
        except (ProtocolError, ValueError) as error:
            return [Event("", Kept(position, flaw=f"it is no message: {error}"))]
        if messages and is_marker(messages[0].metadata):
            return []
        return [
            await self._event(connection, each, position)
            for each in messages
            if each.single is None or not each.single.compacted_out
        ]

    async def _event(
        self, connection: OwnerConnection, message: ReceivedMessage, position: Position
    ) -> Event:
        metadata, single = message.metadata, message.single
        about = metadata if single is None else single
        key, version = about.partition_key, metadata.schema_version
        if not isinstance(key, str):  # see `peek`: it is no UTF-8, and so no topic's
            return Event("", Kept(position, version, flaw="its key is no text"))
        if about.null_value or not message.payload:
            return Event(key, Kept(position, version))
        try:
            if metadata.compression != pb.NONE or is_encrypted(metadata):
                raise Malformed("it is compressed or encrypted")
            schema = await self._schema(connection, version)
            policies = policies_in(schema.read(message.payload), key)
        except Malformed as malformed:
            return Event(key, Kept(position, version, flaw=str(malformed)))
        return Event(key, Kept(position, version, policies))

    async def _schema(self, connection: OwnerConnection, version: bytes) -> EventSchema:
        """Raises: Malformed, LinkLost."""
        if version in (NO_VERSION, self._own_version):
            return self._own
        found = self._schemas.get(version)
        if found is None:
            if len(self._schemas) >= SCHEMAS_MAX:
                raise Malformed("the topic has too many schemas")
            found = self._schemas[version] = await self._ask_schema(connection, version)
        if isinstance(found, Malformed):
            raise Malformed(str(found))
        return found

    async def _ask_schema(
        self, connection: OwnerConnection, version: bytes
    ) -> EventSchema | Malformed:
        answer = await connection.ask(
            lambda request_id: client.get_schema(self.topic.full, request_id, version)
        )
        response = answer.getSchemaResponse
        if response.HasField("error_code"):
            return Malformed(f"its schema is not known: {response.error_message}")
        text = response.schema.schema_data.decode(errors="replace")
        if text == EVENT_SCHEMA_TEXT:
            return self._own
        try:
            return EventSchema(text)
        except Malformed as malformed:
            return malformed

    # --- writing ------------------------------------------------------------------------

    async def publish(self, key: str, event: object, base: Kept | None) -> Position:
        """Append the record, None for a message without value. It has the schema of the message
        that it replaces, if that has all its fields. Returns its place.

        Raises: BrokerError, LinkLost; Malformed: a value is not one of its policy.
        """
        connection = self._connection
        if connection is None or connection.failure:
            raise LinkLost("the log is not connected")
        if self._own_version is None:
            await self._open_producer(connection)
        assert self._own_version is not None
        payload, version = b"", self._own_version
        if event is not None:
            payload, version = await self._written(connection, event, base, version)
        sequence_id = next(self._sequence_ids)
        message = client.message(
            payload,
            producer_name=self._producer_name,
            sequence_id=sequence_id,
            publish_time=self._clock.wall_ms(),
            partition_key=key,
            schema_version=version,
            replicate_to=[] if key.startswith(GLOBAL_PREFIX) else [self._cluster],
            uncompressed_size=len(payload),
            null_value=True if event is None else None,
        )
        receipt = self._receipts[sequence_id] = trio.Event()
        try:
            connection.send(client.send(_PRODUCER_ID, sequence_id, message))
            with trio.move_on_after(ANSWER_SECONDS_MAX):
                await receipt.wait()
        finally:
            del self._receipts[sequence_id]
        outcome = self._outcomes.pop(sequence_id, None)
        if outcome is None:
            raise LinkLost(connection.failure or "its owner does not answer")
        if isinstance(outcome, BrokerError):
            raise outcome
        return outcome

    async def _written(
        self, connection: OwnerConnection, event: object, base: Kept | None, version: bytes
    ) -> tuple[bytes, bytes]:
        if base is not None and not base.flaw and base.version not in (NO_VERSION, version):
            schema = await self._schema(connection, base.version)
            if schema.has(event["topicPoliciesEvent"]["policies"]):  # type: ignore[index]
                return schema.write(event), base.version
        return self._own.write(event), version

    async def _open_producer(self, connection: OwnerConnection) -> None:
        schema = pb.Schema(
            name=self.topic.local_name,
            type=pb.Schema.Avro,
            schema_data=EVENT_SCHEMA_TEXT.encode(),
            properties=client.key_values(EVENT_SCHEMA_PROPERTIES),
        )
        answer = await connection.ask(
            lambda request_id: client.producer(
                self.topic.full,
                _PRODUCER_ID,
                request_id,
                schema=schema,
                user_provided_producer_name=False,
            )
        )
        self._producer_name = answer.producer_success.producer_name
        self._own_version = answer.producer_success.schema_version

    def _answered(self, sequence_id: int, outcome: Position | BrokerError) -> None:
        receipt = self._receipts.get(sequence_id)
        if receipt is not None:
            self._outcomes[sequence_id] = outcome
            receipt.set()
