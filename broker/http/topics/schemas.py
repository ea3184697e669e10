"""`/admin/v2/schemas`: versions of a topic's schema, stored byte for byte."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from broker.ground.refusal import Refusal, not_found
from broker.http.router import Route
from broker.tenancy.schemas.schema_info import InvalidSchema
from protocol.errors import IncompatibleSchema
from web.responses import Response, json_response

if TYPE_CHECKING:
    from broker.http.context import AdminRequest
    from broker.tenancy.schemas.schema_format import StoredSchema
    from broker.tenancy.schemas.schema_info import SchemaInfo


async def latest(request: AdminRequest) -> dict[str, Any]:
    """The schema in force."""
    return _answer(await request.context.schemas.latest(request.topic))


async def one(request: AdminRequest) -> dict[str, Any]:
    """One version."""
    try:
        version = int(request.names["version"])
    except ValueError:
        raise Refusal(400, "The version must be a whole number") from None
    return _answer(await request.context.schemas.get(request.topic, version))


async def every(request: AdminRequest) -> dict[str, Any]:
    """All versions, oldest first."""
    stored = await request.context.schemas.all(request.topic)
    return {"getSchemaResponses": [_answer(each) for each in stored]}


async def post(request: AdminRequest) -> dict[str, Any]:
    """Register a schema; an equal one keeps its version."""
    strategy = await _strategy(request)
    schema = await _posted(request)
    try:
        version = await request.context.schemas.find_or_add(request.topic, schema, strategy)
    except InvalidSchema as error:
        raise Refusal(422, str(error)) from error
    return {"version": {"version": version}}


async def compatibility(request: AdminRequest) -> Response:
    """Whether it could be registered. If not, Pulsar answers 500 with the reason."""
    strategy = await _strategy(request)
    schema = await _posted(request)
    try:
        await request.context.schemas.check(request.topic, schema, strategy)
    except (IncompatibleSchema, InvalidSchema) as error:
        raise Refusal(500, str(error)) from error
    return json_response(
        {"schemaCompatibilityStrategy": strategy, "compatibility": True}, status=202
    )


async def version_of(request: AdminRequest) -> dict[str, int]:
    """The version of an equal schema, -1 when there is none."""
    schema = await _posted(request)
    return {"version": await request.context.schemas.find_version(request.topic, schema)}


async def delete(request: AdminRequest) -> dict[str, int]:
    """Delete the schema; with `force` also its history."""
    force = request.flag("force")
    return {"version": await request.context.schemas.delete(request.topic, force=force)}


async def _posted(request: AdminRequest) -> SchemaInfo:
    body = await request.json_object()
    if body is None:
        raise Refusal(400, "The body must be a schema: {type, schema, properties}")
    try:
        return await request.context.schemas.posted(body)
    except InvalidSchema as error:
        raise Refusal(422, str(error)) from error


async def _strategy(request: AdminRequest) -> str:
    namespace = await request.context.namespaces.get(request.namespace_name)
    return namespace.policies.of_topic(request.topic).effective.schema_strategy


def _answer(stored: StoredSchema | None) -> dict[str, Any]:
    if stored is None or stored.schema is None:
        raise not_found("Schema not found")
    return {
        "version": stored.version,
        "type": stored.schema.type_name,
        "timestamp": stored.timestamp_ms,
        "data": stored.schema.rest_text(),
        "properties": stored.schema.properties,
    }


_TOPIC: Final = "/admin/v2/schemas/{tenant}/{namespace}/{topic}"
ROUTES: Final = (
    Route("GET", f"{_TOPIC}/schema", latest),
    Route("GET", f"{_TOPIC}/schema/{{version}}", one),
    Route("GET", f"{_TOPIC}/schemas", every),
    Route("POST", f"{_TOPIC}/schema", post),
    Route("POST", f"{_TOPIC}/compatibility", compatibility),
    Route("POST", f"{_TOPIC}/version", version_of),
    Route("DELETE", f"{_TOPIC}/schema", delete),
)
