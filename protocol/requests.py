"""The requests of clients, as handlers take them.

A client sends PARTITIONED_METADATA, LOOKUP, SUBSCRIBE and FLOW for each consumer, PING for each
connection, and CLOSE_CONSUMER at the end. These have objects of their own, which are made either
from the bytes (`protocol.plain_requests`) or from what protobuf has parsed (`REQUESTS`), so that a
handler cannot tell the two apart, and the two readers can be compared. All others stay what
protobuf has made of them (`ParsedRequest`).

Integers are those of the wire: ids from 0 to 2^64 - 1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, final

from protocol import pulsar_api_pb2 as pb
from protocol.decoding import COMMAND_FIELDS
from protocol.left_out import EPOCH_UNSET, NO_PROPERTIES
from protocol.position import signed_id

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from mypy_extensions import i64

PERMITS_MAX: Final = 2**31 - 1
"""The largest number of a FLOW that a Java client can mean."""


class Request:
    """One request. `kind` is its type (BaseCommand.Type)."""

    __slots__ = ("kind",)

    def __init__(self, kind: int) -> None:
        self.kind: i64 = kind

    def command(self) -> pb.BaseCommand:
        """As much of it as a refusal repeats: its type and its request id, if it has one."""
        raise NotImplementedError


@final
class ParsedRequest(Request):
    """A request of any other kind, as protobuf has parsed it."""

    __slots__ = ("_command", "body")

    def __init__(self, command: pb.BaseCommand) -> None:
        self.kind = command.type
        self.body: Any = getattr(command, COMMAND_FIELDS[command.type])
        """Its own message."""
        self._command = command

    def command(self) -> pb.BaseCommand:
        """All of it."""
        return self._command


@final
class Ping(Request):
    """Are you still there?"""

    __slots__ = ()

    def __init__(self) -> None:
        self.kind = pb.BaseCommand.PING

    def command(self) -> pb.BaseCommand:
        """See Request."""
        return pb.BaseCommand(type=pb.BaseCommand.PING, ping=pb.CommandPing())


@final
class Partitions(Request):
    """PARTITIONED_METADATA: how many partitions has the topic?"""

    __slots__ = ("may_create", "request_id", "topic")

    def __init__(self, topic: str, request_id: int, may_create: bool) -> None:
        self.kind = pb.BaseCommand.PARTITIONED_METADATA
        self.topic = topic
        self.request_id = request_id
        self.may_create = may_create

    def command(self) -> pb.BaseCommand:
        """See Request."""
        command = pb.BaseCommand(type=pb.BaseCommand.PARTITIONED_METADATA)
        command.partitionMetadata.request_id = self.request_id
        return command


@final
class Lookup(Request):
    """LOOKUP: which broker serves the topic?"""

    __slots__ = ("authoritative", "listener", "request_id", "topic")

    def __init__(self, topic: str, request_id: int, authoritative: bool, listener: str) -> None:
        self.kind = pb.BaseCommand.LOOKUP
        self.topic = topic
        self.request_id = request_id
        self.authoritative = authoritative
        self.listener = listener
        """The name of the listener whose address is wanted; empty: the usual one."""

    def command(self) -> pb.BaseCommand:
        """See Request."""
        command = pb.BaseCommand(type=pb.BaseCommand.LOOKUP)
        command.lookupTopic.request_id = self.request_id
        return command


@final
class Subscribe(Request):
    """SUBSCRIBE. Missing fields have the defaults of the protocol."""

    __slots__ = (
        "consumer_id",
        "consumer_name",
        "durable",
        "earliest",
        "epoch",
        "key_shared",
        "may_create",
        "metadata",
        "priority_level",
        "properties",
        "read_compacted",
        "replicated",
        "request_id",
        "rollback_seconds",
        "schema",
        "size_bytes",
        "start_message_id",
        "sub_type",
        "subscription",
        "topic",
    )

    def __init__(
        self, topic: str, subscription: str, sub_type: int, consumer_id: int, request_id: int
    ) -> None:
        self.kind = pb.BaseCommand.SUBSCRIBE
        self.topic = topic
        self.subscription = subscription
        self.sub_type = sub_type
        self.consumer_id = consumer_id
        self.request_id = request_id
        self.consumer_name = ""
        self.priority_level = 0
        self.durable = True
        self.start_message_id: tuple[int, int, int] | None = None
        """(ledger id, entry id, batch index or -1), signed."""
        self.metadata = NO_PROPERTIES
        self.read_compacted = False
        self.replicated = False
        """replicate_subscription_state."""
        self.schema: pb.Schema | None = None
        self.earliest = False
        """initialPosition is Earliest."""
        self.may_create = True
        """force_topic_creation."""
        self.rollback_seconds = 0
        self.key_shared: pb.KeySharedMeta | None = None
        self.properties = NO_PROPERTIES
        """The properties of the subscription."""
        self.epoch = EPOCH_UNSET
        self.size_bytes = 0
        """No part of it is larger than this."""

    def command(self) -> pb.BaseCommand:
        """See Request."""
        command = pb.BaseCommand(type=pb.BaseCommand.SUBSCRIBE)
        command.subscribe.request_id = self.request_id
        return command


@final
class Flow(Request):
    """FLOW: the consumer takes so many more messages."""

    __slots__ = ("consumer_id", "permits")

    def __init__(self, consumer_id: int, permits: int) -> None:
        self.kind = pb.BaseCommand.FLOW
        self.consumer_id = consumer_id
        self.permits = permits

    def command(self) -> pb.BaseCommand:
        """See Request."""
        return pb.BaseCommand(type=pb.BaseCommand.FLOW, flow=pb.CommandFlow())


@final
class CloseConsumer(Request):
    """CLOSE_CONSUMER."""

    __slots__ = ("consumer_id", "request_id")

    def __init__(self, consumer_id: int, request_id: int) -> None:
        self.kind = pb.BaseCommand.CLOSE_CONSUMER
        self.consumer_id = consumer_id
        self.request_id = request_id

    def command(self) -> pb.BaseCommand:
        """See Request."""
        command = pb.BaseCommand(type=pb.BaseCommand.CLOSE_CONSUMER)
        command.close_consumer.request_id = self.request_id
        return command


# ---- From protobuf -------------------------------------------------------------------------------


def _ping(body: pb.CommandPing) -> Request:
    del body
    return Ping()


def _partitions(body: pb.CommandPartitionedTopicMetadata) -> Request:
    return Partitions(body.topic, body.request_id, body.metadata_auto_creation_enabled)


def _lookup(body: pb.CommandLookupTopic) -> Request:
    return Lookup(body.topic, body.request_id, body.authoritative, body.advertised_listener_name)


def _subscribe(body: pb.CommandSubscribe) -> Request:
    request = Subscribe(
        body.topic, body.subscription, body.subType, body.consumer_id, body.request_id
    )
    request.consumer_name = body.consumer_name
    request.priority_level = body.priority_level
    request.durable = body.durable
    if body.HasField("start_message_id"):
        start = body.start_message_id
        request.start_message_id = (
            signed_id(start.ledgerId),
            signed_id(start.entryId),
            start.batch_index,
        )
    request.metadata = _properties(body.metadata)
    request.read_compacted = body.read_compacted
    request.replicated = body.replicate_subscription_state
    if body.HasField("schema"):
        request.schema = body.schema
    request.earliest = body.initialPosition == pb.CommandSubscribe.Earliest
    request.may_create = body.force_topic_creation
    request.rollback_seconds = body.start_message_rollback_duration_sec
    if body.HasField("keySharedMeta"):
        request.key_shared = body.keySharedMeta
    request.properties = _properties(body.subscription_properties)
    if body.HasField("consumer_epoch"):
        request.epoch = body.consumer_epoch
    request.size_bytes = body.ByteSize()
    return request


def _properties(items: Iterable[pb.KeyValue]) -> Mapping[str, str]:
    return {item.key: item.value for item in items} if items else NO_PROPERTIES


def _flow(body: pb.CommandFlow) -> Request:
    return Flow(body.consumer_id, body.messagePermits)


def _close_consumer(body: pb.CommandCloseConsumer) -> Request:
    return CloseConsumer(body.consumer_id, body.request_id)


REQUESTS: Final[Mapping[int, Callable[[Any], Request]]] = {
    pb.BaseCommand.PING: _ping,
    pb.BaseCommand.PARTITIONED_METADATA: _partitions,
    pb.BaseCommand.LOOKUP: _lookup,
    pb.BaseCommand.SUBSCRIBE: _subscribe,
    pb.BaseCommand.FLOW: _flow,
    pb.BaseCommand.CLOSE_CONSUMER: _close_consumer,
}
"""By type: makes the request of the command's own message, as protobuf has parsed it."""
