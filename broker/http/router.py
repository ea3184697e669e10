"""Finds the handler of a request on the raw path.

A name is one segment, with slashes in it encoded, so a path is split before it is decoded. The
decoding of a segment depends on its name, as in Pulsar: `{topic}` as a form value; `{subscription}`
twice (percent-decoding, then as a form value), since Java clients encode it twice; all others by
percent-decoding. `{domain}` is `persistent` or `non-persistent`.

Routes are kept in a tree by segment, literal segments before names. A `{domain}` is kept as the two
literals that it stands for, so a route of one domain only does not hide routes of both.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, final
from urllib.parse import unquote, unquote_plus

from broker.tenancy.authorization.operations import UNKNOWN
from protocol.topic_name import NON_PERSISTENT, PERSISTENT

if TYPE_CHECKING:
    from broker.http.context import AdminRequest
    from broker.tenancy.authorization.operations import Operation

Handler = Callable[["AdminRequest"], Awaitable[Any]]
"""Answers: None = 204, str = text, a Response, anything else = JSON."""

_DOMAIN: Final = "{domain}"
_DOMAINS: Final = (PERSISTENT, NON_PERSISTENT)


@final
@dataclass(frozen=True, slots=True)
class Route:
    """`GET /admin/v2/tenants/{tenant}` and its handler."""

    method: str
    path: str
    handler: Handler
    at_owner: bool = False
    """Whether the broker that owns the topic of the path has to answer."""
    by_parts: Callable[[AdminRequest, int], Awaitable[Any]] | None = None
    """In a cluster: answers for a topic with so many partitions, instead of `handler`."""
    asks: tuple[Operation, ...] = UNKNOWN
    """The right that it requires. Filled in from the list of Pulsar's endpoints."""


def decode_segment(name: str, raw: str) -> str:
    """Decode a raw path segment."""
    if name == "subscription":
        return unquote_plus(unquote(raw))
    return unquote_plus(raw) if name == "topic" else unquote(raw)


@final
@dataclass(slots=True)
class _Node:
    literal: dict[str, _Node] = field(default_factory=dict)
    named: dict[str, _Node] = field(default_factory=dict)
    routes: dict[str, Route] = field(default_factory=dict)


@final
class Router:
    """All routes."""

    def __init__(self, routes: Iterable[Route]) -> None:
        self._root = _Node()
        for route in routes:
            self._add(route)

    def _add(self, route: Route) -> None:
        paths = [route.path]
        if _DOMAIN in route.path:
            paths = [route.path.replace(_DOMAIN, domain) for domain in _DOMAINS]
        for path in paths:
            node = self._root
            for segment in path.strip("/").split("/"):
                if segment.startswith("{"):
                    node = node.named.setdefault(segment[1:-1], _Node())
                else:
                    node = node.literal.setdefault(segment, _Node())
            assert route.method not in node.routes, f"two handlers of {route.method} {path}"
            node.routes[route.method] = route

    def find(self, raw_path: bytes, method: str) -> tuple[Route | None, dict[str, str], bool]:
        """(route, decoded names, whether the path is known with another method)."""
        path = raw_path.decode("latin-1").strip("/")
        segments = path.split("/")
        other_method = False
        for node, names in _matches(self._root, segments, 0, {}):
            route = node.routes.get(method)
            if route is not None:
                if _DOMAIN in route.path:
                    place = route.path.strip("/").split("/").index(_DOMAIN)
                    names = {**names, "domain": segments[place]}
                return route, names, True
            other_method = other_method or bool(node.routes)
        return None, {}, other_method


def _matches(
    node: _Node, segments: list[str], index: int, names: dict[str, str]
) -> Iterable[tuple[_Node, dict[str, str]]]:
    if index == len(segments):
        yield node, names
        return
    segment = segments[index]
    below = node.literal.get(segment)
    if below is not None:
        yield from _matches(below, segments, index + 1, names)
    if not segment:
        return
    for name, below in node.named.items():
        decoded = {**names, name: decode_segment(name, segment)}
        yield from _matches(below, segments, index + 1, decoded)
