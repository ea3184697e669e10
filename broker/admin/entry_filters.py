"""`.../entryFilters`: filters of entries, which are classes of Java that a Pulsar broker loads.

This broker loads none, so each name is refused with the words with which Pulsar 4.0.8 refuses a
name that it does not know, and nothing is ever set.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from broker.admin.router import Route
from broker.admin.topic_policies import namespace_of
from broker.refusal import Refusal

if TYPE_CHECKING:
    from broker.admin.context import AdminRequest

_NAMES: Final = "entryFilterNames"


async def _check(request: AdminRequest) -> None:
    """Raises: Refusal: filters are named, or the body is none."""
    body = await request.json()
    if body is None:
        return
    names = body.get(_NAMES) if isinstance(body, dict) else body
    if not isinstance(names, str | None) or not isinstance(body, dict):
        raise Refusal(400, f"{_NAMES} must be a text")
    if not names:
        raise Refusal(
            400, f"{_NAMES} can't be empty. To remove entry filters use the remove method."
        )
    first = names.split(",")[0].strip()
    raise Refusal(400, f"Entry filter '{first}' not found")


async def _get_of_namespace(request: AdminRequest) -> str:
    await request.context.namespaces.get(request.namespace_name)
    return ""


async def _set_of_namespace(request: AdminRequest) -> None:
    await request.context.namespaces.get(request.namespace_name)
    await _check(request)


async def _remove_of_namespace(request: AdminRequest) -> None:
    await request.context.namespaces.get(request.namespace_name)


async def _get_of_topic(request: AdminRequest) -> object:
    await namespace_of(request)
    return {_NAMES: ""} if request.flag("applied") else ""


async def _set_of_topic(request: AdminRequest) -> None:
    await namespace_of(request)
    await _check(request)


async def _remove_of_topic(request: AdminRequest) -> None:
    await namespace_of(request)


_OF_NAMESPACE: Final = "/admin/v2/namespaces/{tenant}/{namespace}/entryFilters"
_OF_TOPIC: Final = "/admin/v2/{domain}/{tenant}/{namespace}/{topic}/entryFilters"
OF_NAMESPACES: Final = (
    Route("GET", _OF_NAMESPACE, _get_of_namespace),
    Route("POST", _OF_NAMESPACE, _set_of_namespace),
    Route("DELETE", _OF_NAMESPACE, _remove_of_namespace),
)
OF_TOPICS: Final = (
    Route("GET", _OF_TOPIC, _get_of_topic),
    Route("POST", _OF_TOPIC, _set_of_topic),
    Route("DELETE", _OF_TOPIC, _remove_of_topic),
)
