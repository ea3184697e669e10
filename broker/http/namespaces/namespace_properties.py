"""Properties of a namespace: names and texts that its users choose. Answers as of Pulsar 4.0.8."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from broker.ground.refusal import Refusal
from broker.http.router import Route
from broker.http.topics.topics import text_map
from web.responses import Response, json_response

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.http.context import AdminRequest

_FIELD: Final = "properties"
Properties = dict[str, str]


async def _of(request: AdminRequest) -> Properties:
    namespace = await request.context.namespaces.get(request.namespace_name)
    return dict(namespace.policies.record.fields.get(_FIELD) or {})


async def _change(request: AdminRequest, change: Callable[[Properties], Properties]) -> None:
    await request.context.namespaces.change_policies(
        request.namespace_name,
        lambda record: record.with_fields(
            **{_FIELD: change(dict(record.fields.get(_FIELD) or {}))}
        ),
    )


def _text(value: str | None) -> Response:
    """A property as it is, without quotes, although Pulsar calls it JSON."""
    return Response(value or "", media_type="application/json")


async def get_all(request: AdminRequest) -> Response:
    """All of them."""
    return json_response(await _of(request))


async def set_some(request: AdminRequest) -> None:
    """Body: those to be added or replaced. Pulsar never answers if there is none."""
    await request.context.namespaces.get(request.namespace_name)
    given = await request.json_object()
    if given is None:
        raise Refusal(400, "The body must be an object of properties")
    texts = text_map(given)
    await _change(request, lambda old: {**old, **texts})


async def clear(request: AdminRequest) -> None:
    """Remove all."""
    await _change(request, lambda _old: {})


async def get_one(request: AdminRequest) -> Response:
    """One of them; nothing: there is none of this name."""
    return _text((await _of(request)).get(request.names["key"]))


async def set_one(request: AdminRequest) -> None:
    """Add or replace one."""
    key, value = request.names["key"], request.names["value"]
    await _change(request, lambda old: {**old, key: value})


async def remove_one(request: AdminRequest) -> Response:
    """Remove one. The answer is what it was."""
    key = request.names["key"]
    before = (await _of(request)).get(key)
    await _change(request, lambda old: {name: old[name] for name in old if name != key})
    return _text(before)


_NAMESPACE: Final = "/admin/v2/namespaces/{tenant}/{namespace}"
ROUTES: Final = (
    Route("GET", f"{_NAMESPACE}/properties", get_all),
    Route("PUT", f"{_NAMESPACE}/properties", set_some),
    Route("DELETE", f"{_NAMESPACE}/properties", clear),
    Route("GET", f"{_NAMESPACE}/property/{{key}}", get_one),
    Route("PUT", f"{_NAMESPACE}/property/{{key}}/{{value}}", set_one),
    Route("DELETE", f"{_NAMESPACE}/property/{{key}}", remove_one),
)
