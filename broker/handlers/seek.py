"""SEEK: a new position for a subscription.

The order is part of the contract: the cursor is reset, every consumer of the subscription is sent
CLOSE_CONSUMER, and only then comes the SUCCESS. Clients subscribe again by themselves. With a
broadcast subscription that is the calling consumer alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.broadcast.broadcast_subscription import BroadcastSubscription
from broker.broadcast.moves import ConsumerSeek
from broker.handlers.attached import Attached
from broker.topic.owned import run_owned
from protocol import commands
from protocol.errors import MetadataError
from protocol.position import signed_id

if TYPE_CHECKING:
    from broker.net.session import Session
    from broker.subscription.api import Subscription
    from protocol import pulsar_api_pb2 as pb


async def handle_seek(session: Session, body: pb.CommandSeek) -> None:
    """Move the subscription of one of this connection's consumers."""
    attached = session.consumers.get(body.consumer_id)
    if not isinstance(attached, Attached):
        raise MetadataError("Consumer not found")
    nursery = session.service.nursery
    target: Subscription | ConsumerSeek = attached.subscription
    if isinstance(target, BroadcastSubscription):
        target = ConsumerSeek(target, attached.consumer)
    if body.HasField("message_id"):
        position = (signed_id(body.message_id.ledgerId), signed_id(body.message_id.entryId))
        ack_set = tuple(body.message_id.ack_set)
        await run_owned(nursery, lambda: target.seek(position, ack_set))
    elif body.HasField("message_publish_time"):
        publish_time_ms = signed_id(body.message_publish_time)
        await run_owned(nursery, lambda: target.seek_to_time(publish_time_ms))
    else:
        raise MetadataError("SEEK names neither a message id nor a publish time")
    session.send(commands.success(body.request_id))
