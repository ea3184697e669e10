"""SEEK: a new position for a subscription.

The order is part of the contract: the cursor is reset, every consumer of the subscription is sent
CLOSE_CONSUMER, and only then comes the SUCCESS. Clients subscribe again by themselves. Who is moved
is decided by the kind of the subscription: all its consumers, or, in a broadcast, the calling one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.handlers.consumer import attached
from broker.topic.owned import run_owned
from protocol import commands
from protocol.errors import MetadataError
from protocol.position import signed_id

if TYPE_CHECKING:
    from broker.net.session import Session
    from protocol import pulsar_api_pb2 as pb


async def handle_seek(session: Session, body: pb.CommandSeek) -> None:
    """Move the subscription of one of this connection's consumers."""
    consumer = attached(session, body.consumer_id)
    nursery = session.service.nursery
    if body.HasField("message_id"):
        position = (signed_id(body.message_id.ledgerId), signed_id(body.message_id.entryId))
        ack_set = tuple(body.message_id.ack_set)
        await run_owned(nursery, lambda: consumer.seek(position, ack_set))
    elif body.HasField("message_publish_time"):
        publish_time_ms = signed_id(body.message_publish_time)
        await run_owned(nursery, lambda: consumer.seek_to_time(publish_time_ms))
    else:
        raise MetadataError("SEEK names neither a message id nor a publish time")
    session.send(commands.success(body.request_id))
