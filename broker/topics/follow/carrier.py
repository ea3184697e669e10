"""Carries the new messages of the source to a follower: a reader at the owner, from the tail on.

One reader per shadow topic, however many subscriptions and consumers the shadow has. It is the one
copy of each message that a follower costs the owner. It always starts at the tail: earlier messages
are read from the bookies, so that neither a restart of the follower nor a consumer that is far
behind costs the owner anything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from broker.ground.entry import Entry
from protocol import client
from protocol import pulsar_api_pb2 as pb
from protocol.message_id import position_of

if TYPE_CHECKING:
    from broker.peers.owner_connection import OwnerConnection
    from protocol.frames import ParsedFrame
    from protocol.position import Position
    from protocol.topic_name import TopicName

PERMITS: Final = 1_000
"""Messages under way from the owner at most."""
_CONSUMER_ID: Final = 0


@final
class Carrier:
    """See the module docstring. It belongs to one connection."""

    __slots__ = ("_newest", "_permits", "_source", "_told")

    def __init__(self, source: TopicName) -> None:
        self._source = source
        self._permits = 0
        self._newest: Position | None = None
        self._told: Position | None = None

    async def attach(self, connection: OwnerConnection, name: str) -> Position:
        """Subscribe under a name of its own. Returns the newest entry of the source.

        Raises: BrokerError, LinkLost.
        """
        await connection.ask(
            lambda request_id: client.subscribe(
                self._source.full,
                name,
                _CONSUMER_ID,
                request_id,
                pb.CommandSubscribe.Exclusive,
                consumer_name=name,
                durable=False,
                force_topic_creation=False,
            )
        )
        answer = await connection.ask(
            lambda request_id: client.get_last_message_id(_CONSUMER_ID, request_id)
        )
        return position_of(answer.getLastMessageIdResponse.last_message_id)

    def entry_of(self, frame: ParsedFrame) -> Entry | None:
        """The entry of a MESSAGE; None: it is not for the carrier."""
        command, payload = frame
        message = command.message
        if message.consumer_id != _CONSUMER_ID or payload is None:
            return None
        entry = Entry(payload, -1, position_of(message.message_id))
        self._permits -= entry.messages()
        self._newest = entry.position
        return entry

    def grant(self) -> bytes:
        """A FLOW, if the owner has sent half of what it may; else nothing."""
        if 2 * self._permits > PERMITS:
            return b""
        more = PERMITS - self._permits
        self._permits = PERMITS
        return client.flow(_CONSUMER_ID, more)

    def acknowledgement(self) -> bytes:
        """An ACK of what has arrived since the last one: the owner need not keep it in memory."""
        if self._newest == self._told or self._newest is None:
            return b""
        self._told = self._newest
        return client.ack(_CONSUMER_ID, [self._newest], cumulative=True)

    @staticmethod
    def is_consumer(consumer_id: int) -> bool:
        """Whether this is its consumer id."""
        return consumer_id == _CONSUMER_ID
