"""A few read-only pages about the state of a process: what the HTTP ports of bookies and of
autorecovery serve. The paths and bodies are those of BookKeeper's server.

A page is a function of the parameters in the query that gives the answer, or awaits it.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Final, final
from urllib.parse import parse_qsl

from web.errors import RequestRefused
from web.prometheus import Page
from web.responses import Response

if TYPE_CHECKING:
    from web.asgi import Application, Receive, Scope, Send
    from web.callers import CallerRules

METRICS_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
METRICS_PATH: Final = "/metrics"
HEARTBEAT_PATH: Final = "/heartbeat"
_JSON: Final = "application/json"
_TEXT: Final = "text/plain"

Query = Mapping[str, str]
Answer = Callable[[Query], "Application | Awaitable[Application]"]


@final
class StateApplication:
    """ASGI. Everything is answered to GET and HEAD only."""

    def __init__(self, callers: CallerRules, answers: Mapping[str, Answer]) -> None:
        """`answers` by path."""
        self._callers = callers
        self._answers = answers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        response = await self._answer(scope)
        await response(scope, receive, send)

    async def _answer(self, scope: Scope) -> Application:
        headers = {
            key.decode("latin-1"): value.decode("latin-1") for key, value in scope["headers"]
        }
        server = scope.get("server")
        try:
            self._callers.check(scope["method"], headers, server[0] if server is not None else "")
        except RequestRefused as error:
            return text(error.status, error.reason)
        answer = self._answers.get(scope["path"])
        if answer is None:
            return text(404, f"There is nothing at {scope['path']}")
        if scope["method"] not in ("GET", "HEAD"):
            return text(404, "Only GET is supported")
        query = scope["query_string"].decode("latin-1")
        given = answer(dict(parse_qsl(query, keep_blank_values=True)))
        return await given if isinstance(given, Awaitable) else given


def text(status: int, body: str) -> Application:
    """A plain text."""
    return Response(body, status=status, media_type=_TEXT)


def json_text(body: object) -> Application:
    """200 with JSON."""
    return Response(json.dumps(body), media_type=_JSON)


def heartbeat(_query: Query) -> Application:
    """At HEARTBEAT_PATH: the process answers."""
    return text(200, "OK\n")


def metrics(add_series: Callable[[Page], None]) -> Application:
    """At METRICS_PATH: what `add_series` adds."""
    page = Page()
    add_series(page)
    return Response("".join(page.pieces()), headers={"content-type": METRICS_TYPE})
