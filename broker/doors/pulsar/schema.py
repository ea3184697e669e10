"""GET_SCHEMA and GET_OR_CREATE_SCHEMA."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from broker.doors.pulsar.lookup import parse_topic
from broker.tenancy.schemas.registry import (
    DELETED,
    schema_id_of,
    version_bytes,
    version_number,
)
from broker.topics.topic.topic_base import PRODUCERS
from protocol import commands
from protocol import pulsar_api_pb2 as pb
from protocol.errors import IncompatibleSchema, TopicNotFound

if TYPE_CHECKING:
    from broker.doors.pulsar.broker import Broker
    from broker.doors.pulsar.session import ClientSession
    from broker.topics.topic.topic import Topic


async def handle_get_schema(
    broker: Broker, session: ClientSession, body: pb.CommandGetSchema
) -> None:
    """The schema of a version, or the newest. A deletion is a version with an empty schema."""
    topic = parse_topic(body.topic)
    number = version_number(body.schema_version) if body.schema_version else None
    schemas = broker.schemas
    if number is None or number < 0:
        stored = await schemas.newest(topic)
    else:
        stored = await schemas.get(topic, number)
    if stored is None:
        raise TopicNotFound("Topic not found or no-schema")
    schema = (stored.schema or DELETED).to_wire(schema_id_of(topic))
    session.send(
        commands.get_schema_response(body.request_id, schema, version_bytes(stored.version))
    )


def handle_get_or_create_schema(
    broker: Broker, session: ClientSession, body: pb.CommandGetOrCreateSchema
) -> None:
    """The version of this schema, registered if it is new and allowed."""
    name = parse_topic(body.topic)
    session.request_begins()
    broker.call_when_loaded(name, create=True, waiter=_Registering(broker, session, body))


@final
class _Registering:
    """A GET_OR_CREATE_SCHEMA from its arrival to its answer. It queues with the openings of the
    topic's producers, which register schemas, too: versions are given in the order of arrival."""

    __slots__ = ("_body", "_broker", "_session", "_topic")

    _topic: Topic

    def __init__(
        self, broker: Broker, session: ClientSession, body: pb.CommandGetOrCreateSchema
    ) -> None:
        self._broker = broker
        self._session = session
        self._body = body

    @property
    def is_cancelled(self) -> bool:
        """Its connection has ended."""
        return bool(self._session.outbox.failed)

    def loaded(self, topic: Topic) -> None:
        """The topic is loaded: earlier requests for its producers come first."""
        self._topic = topic
        topic.operations.begin(PRODUCERS, self._in_turn)

    def refused(self, error: Exception) -> None:
        """Answer with the error."""
        self._session.request_ends()
        self._session.refuse(
            pb.BaseCommand(type=pb.BaseCommand.GET_OR_CREATE_SCHEMA, getOrCreateSchema=self._body),
            error,
        )

    async def _in_turn(self) -> None:
        topic, body = self._topic, self._body
        try:
            topic.check_open()
            if not body.HasField("schema"):
                raise IncompatibleSchema("GET_OR_CREATE_SCHEMA needs a schema")
            version = await self._broker.schemas.for_producer(
                topic.name, body.schema, topic.policies.effective
            )
        except Exception as error:
            self.refused(error)
            return
        self._session.request_ends()
        self._session.send(commands.get_or_create_schema_response(body.request_id, version))
