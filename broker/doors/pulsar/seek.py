"""SEEK: a new position for a subscription.

The order is part of the contract: every consumer that is moved is sent CLOSE_CONSUMER when the
reset begins, and the SUCCESS follows when the new position is stored. Clients subscribe again by
themselves. A SUBSCRIBE that arrives before the reset has ended is held until then. The kind of the
subscription decides which consumers are moved: all, or, in a broadcast, the calling one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.doors.pulsar.consumer import attached
from protocol import commands
from protocol.errors import MetadataError
from protocol.position import signed_id

if TYPE_CHECKING:
    from collections.abc import Awaitable, Coroutine
    from typing import Any

    from broker.doors.pulsar.session import ClientSession
    from protocol import pulsar_api_pb2 as pb


def handle_seek(session: ClientSession, body: pb.CommandSeek) -> Coroutine[Any, Any, None]:
    """Move the subscription of one of this connection's consumers."""
    consumer = attached(session, body.consumer_id)
    if body.HasField("message_id"):
        position = (signed_id(body.message_id.ledgerId), signed_id(body.message_id.entryId))
        moved = consumer.seek(position, tuple(body.message_id.ack_set))
    elif body.HasField("message_publish_time"):
        moved = consumer.seek_to_time(signed_id(body.message_publish_time))
    else:
        raise MetadataError("SEEK names neither a message id nor a publish time")
    return _answer_when(moved, session, body.request_id)


async def _answer_when(moved: Awaitable[None], session: ClientSession, request_id: int) -> None:
    await moved
    session.send(commands.success(request_id))
