"""A share: the consumers of one subscription of the source that this follower serves.

At the owner a share is one consumer of the broadcast. Its name is that of the shadow topic, so that
the next broker to serve the shadow finds its place, and two of them never hold it at once. It takes
no messages (it grants no permits) and only acknowledges.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from broker.topics.broadcast.selection import PROPERTY
from broker.topics.follow.share_report import ShareReport
from protocol import client
from protocol import pulsar_api_pb2 as pb
from protocol.message_id import position_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.peers.owner_connection import OwnerConnection
    from protocol.position import Position
    from protocol.topic_name import TopicName

_Subscribe = pb.CommandSubscribe


@final
class Share:
    """See the module docstring."""

    __slots__ = (
        "_consumer_id",
        "_durable",
        "_shadow",
        "_source",
        "is_closed",
        "next_position",
        "report",
        "slowest",
        "subscription",
    )

    def __init__(
        self,
        subscription: str,
        shadow: TopicName,
        source: TopicName,
        consumer_id: int,
        *,
        durable: bool,
        slowest: Callable[[], Position],
        next_position: Callable[[Position], Position] | None,
    ) -> None:
        """`slowest`: the mark-delete position of the share now. `next_position`: the entry after a
        position; None while the share is made and starts with the first entry that the subscription
        holds at the owner."""
        self.subscription = subscription
        self.report = ShareReport()
        self.slowest = slowest
        self.next_position = next_position
        self.is_closed = False
        """The owner has closed the consumer since it was last asked to have it."""
        self._shadow = shadow
        self._source = source
        self._consumer_id = consumer_id
        self._durable = durable

    async def attach(self, connection: OwnerConnection) -> Position:
        """Become a consumer at the owner. If the owner knows the share, it continues where it was;
        a new one starts at its slowest position. Returns where the owner keeps it.

        Raises: BrokerError, LinkLost.
        """
        self.is_closed = False
        after = self.next_position
        start = None if after is None else after(self.slowest())
        await connection.ask(
            lambda request_id: client.subscribe(
                self._source.full,
                self.subscription,
                self._consumer_id,
                request_id,
                _Subscribe.Exclusive,
                start_message_id=start,
                metadata={PROPERTY: "true"},
                consumer_name=self._shadow.full,
                durable=self._durable,
                force_topic_creation=False,
                initialPosition=_Subscribe.Earliest if start is None else _Subscribe.Latest,
            )
        )
        answer = await connection.ask(
            lambda request_id: client.get_last_message_id(self._consumer_id, request_id)
        )
        content = answer.getLastMessageIdResponse
        return position_of(content.consumer_mark_delete_position)

    def detach(self) -> None:
        """The connection has ended, or the owner has closed the consumer."""
        self.report.detached()

    def acknowledgement(self) -> bytes:
        """What is to be reported to the owner now; empty: nothing."""
        position = self.report.next(self.slowest())
        if position is None:
            return b""
        return client.ack(self._consumer_id, [position], cumulative=True)

    async def move_back(self, connection: OwnerConnection, position: Position) -> None:
        """Let the owner keep everything after the position. The owner closes the consumer, which
        has to be attached again.

        Raises: BrokerError, LinkLost.
        """
        assert self.next_position is not None
        target = self.next_position(position)
        await connection.ask(lambda request_id: client.seek(self._consumer_id, request_id, target))

    async def leave(self, connection: OwnerConnection) -> None:
        """End the virtual cursor at the owner. With the last one its subscription ends.

        Raises: BrokerError, LinkLost.
        """
        await connection.ask(lambda request_id: client.unsubscribe(self._consumer_id, request_id))
        self.detach()

    def close(self, connection: OwnerConnection) -> None:
        """Leave the connection. The owner keeps the place for a while. Raises: LinkLost."""
        connection.send(client.close_consumer(self._consumer_id, 0))
        self.detach()

    def is_consumer(self, consumer_id: int) -> bool:
        """Whether this is its consumer id."""
        return consumer_id == self._consumer_id
