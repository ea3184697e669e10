"""GET_SCHEMA and GET_OR_CREATE_SCHEMA."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.handlers.lookup import parse_topic
from broker.schemas.registry import DELETED, schema_id_of, version_bytes, version_number
from protocol import commands
from protocol.errors import IncompatibleSchema, TopicNotFound

if TYPE_CHECKING:
    from broker.handlers.broker import Broker
    from broker.handlers.session import ClientSession
    from protocol import pulsar_api_pb2 as pb


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


async def handle_get_or_create_schema(
    broker: Broker, session: ClientSession, body: pb.CommandGetOrCreateSchema
) -> None:
    """The version of this schema, registered if it is new and allowed."""
    topic = await broker.get_or_load_topic(parse_topic(body.topic), create=True)
    if not body.HasField("schema"):
        raise IncompatibleSchema("GET_OR_CREATE_SCHEMA needs a schema")
    version = await broker.schemas.for_producer(topic.name, body.schema, topic.policies.effective)
    session.send(commands.get_or_create_schema_response(body.request_id, version))
