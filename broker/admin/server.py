"""The ASGI application over the route table, and its HTTP server.

Before the broker is ready every request is answered with 503, so the first 200 of `/metrics` or the
health check means that a client can use the broker. `web` serves it on a socket that is
bound before anything else starts, so that a port in use is refused at once.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, final

from starlette.responses import Response

from broker.admin.context import AdminRequest
from broker.admin.errors import status_and_reason
from broker.admin.redirects import Redirect, send_to_owner
from broker.admin.streaming import Streamed, encoded, is_large, json_pieces
from broker.refusal import Refusal
from web.body import read_body
from web.server import HttpServer

if TYPE_CHECKING:
    from collections.abc import Iterable

    import trio
    from starlette.types import ASGIApp, Receive, Scope, Send

    from broker.admin.context import AdminContext
    from broker.admin.router import Router
    from web.callers import CallerRules
    from web.limits import HttpLimits
    from web.server import Door

_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_JSON: Final = "application/json"


@final
class AdminApplication:
    """ASGI. `context` is None until the broker is ready."""

    def __init__(self, router: Router, callers: CallerRules) -> None:
        self._router = router
        self._callers = callers
        self.context: AdminContext | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        response = await self._answer(scope, receive)
        await response(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive) -> ASGIApp:
        headers = {
            key.decode("latin-1"): value.decode("latin-1") for key, value in scope["headers"]
        }
        method: str = scope["method"]
        try:
            server = scope.get("server")
            self._callers.check(method, headers, server[0] if server is not None else "")
            if headers.get("upgrade", "").lower() == "websocket":
                raise Refusal(501, "WebSocket is not supported; connect to the brokerServicePort")
            return await self._handled(scope, receive, method, headers)
        except Redirect as redirect:
            return Response(status_code=307, headers={"Location": redirect.url})
        except Exception as error:  # the only place where errors become answers
            return _error(*status_and_reason(error))

    async def _handled(
        self, scope: Scope, receive: Receive, method: str, headers: dict[str, str]
    ) -> ASGIApp:
        raw_path: bytes = scope.get("raw_path") or scope["path"].encode()
        raw_path = raw_path.partition(b"?")[0]
        route, names, known = self._router.find(raw_path, "GET" if method == "HEAD" else method)
        context = self.context
        if context is None:
            return _error(503, "The broker is starting; it is not ready yet")
        if route is None:
            if known:
                return _error(405, f"{method} is not allowed on {scope['path']}")
            return _error(404, f"There is nothing at {scope['path']}")
        if any(map(_CONTROL.search, names.values())):
            raise Refusal(400, "A name in the path has a control character")
        request = AdminRequest(
            context,
            method,
            scope["path"],
            raw_path.decode("latin-1"),
            scope["query_string"],
            names,
            headers,
            lambda: read_body(receive),
            scope.get("scheme", "http"),
        )
        if route.at_owner:
            await send_to_owner(request)
        if route.by_parts is not None and context.cluster is not None:
            count = await context.namespaces.partitions_of(request.topic)
            if count:
                return _as_response(await route.by_parts(request, count))
        return _as_response(await route.handler(request))


async def serve_http(
    application: AdminApplication,
    limits: HttpLimits,
    doors: Iterable[Door],
    stop: trio.Event,
    task_status: trio.TaskStatus[None],
) -> None:
    """Serve until `stop` is set, then allow pending requests a moment to finish."""
    await HttpServer(application, limits).serve(doors, stop, task_status)


def _as_response(answer: object) -> ASGIApp:
    if isinstance(answer, Response | Streamed):
        return answer
    if answer is None:
        return Response(status_code=204)
    if isinstance(answer, str):
        return Response(answer, media_type=_JSON if answer else None)
    if is_large(answer):
        return Streamed(json_pieces(answer))
    return Response(encoded(answer), media_type=_JSON)


def _error(status: int, reason: str) -> Response:
    return Response(encoded({"reason": reason}), status_code=status, media_type=_JSON)
