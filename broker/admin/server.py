"""The ASGI application over the route table, and its HTTP server.

Before the broker is ready everything is answered with 503, so that the first 200 of `/metrics` or
the health check means that a client can use it. Served by hypercorn's trio worker on a socket that
is bound before anything else starts, so that a port in use is refused at once.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, cast, final

import trio
from starlette.responses import Response

from broker.admin.context import AdminRequest
from broker.admin.errors import status_and_reason
from broker.namespaces.refusal import Refusal

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterable

    from starlette.types import Message, Receive, Scope, Send

    from broker.admin.context import AdminContext
    from broker.admin.router import Router

_JSON: Final = "application/json"
BODY_BYTES_MAX: Final = 8 * 1024 * 1024
"""Larger bodies are refused with 413; the largest legal one is a schema."""
GRACEFUL_SECONDS: Final = 1.0


@final
class AdminApplication:
    """ASGI. `context` is None until the broker is ready."""

    def __init__(self, router: Router) -> None:
        self._router = router
        self.context: AdminContext | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request (or the life of the server)."""
        if scope["type"] == "lifespan":
            await _lifespan(receive, send)
            return
        if scope["type"] != "http":
            raise RuntimeError(f"{scope['type']} is not served here")
        response = await self._answer(scope, receive)
        await response(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive) -> Response:
        raw_path: bytes = scope.get("raw_path") or scope["path"].encode()
        raw_path = raw_path.partition(b"?")[0]
        method: str = scope["method"]
        route, names, known = self._router.find(raw_path, "GET" if method == "HEAD" else method)
        context = self.context
        if context is None:
            return _error(503, "The broker is starting; it is not ready yet")
        if route is None:
            if known:
                return _error(405, f"{method} is not allowed on {scope['path']}")
            return _error(404, f"There is nothing at {scope['path']}")
        request = AdminRequest(
            context,
            method,
            scope["path"],
            scope["query_string"],
            names,
            {key.decode("latin-1"): value.decode("latin-1") for key, value in scope["headers"]},
            lambda: read_body(receive),
        )
        try:
            return _as_response(await route.handler(request))
        except Exception as error:  # the one place where errors become answers
            return _error(*status_and_reason(error))


async def serve_http(
    application: AdminApplication,
    listening: Iterable[socket.socket],
    stop: trio.Event,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve until `stop` is set, then let requests under way finish for a moment."""
    from hypercorn.config import Config, Sockets
    from hypercorn.trio.run import worker_serve
    from hypercorn.utils import wrap_app

    config = Config()
    config.accesslog = None
    config.errorlog = None
    config.graceful_timeout = GRACEFUL_SECONDS
    config.keep_alive_timeout = 60
    config.include_server_header = False
    config.h11_pass_raw_headers = False
    sockets = Sockets(secure_sockets=[], insecure_sockets=list(listening), quic_sockets=[])
    async with trio.open_nursery() as nursery:

        async def run(task_status: trio.TaskStatus[Any] = trio.TASK_STATUS_IGNORED) -> None:
            await worker_serve(
                wrap_app(cast("Any", application), config.wsgi_max_body_size, "asgi"),
                config,
                sockets=sockets,
                shutdown_trigger=stop.wait,
                task_status=task_status,
            )

        await nursery.start(run)
        task_status.started()


def _as_response(answer: object) -> Response:
    if isinstance(answer, Response):
        return answer
    if answer is None:
        return Response(status_code=204)
    if isinstance(answer, str):
        return Response(answer, media_type=_JSON if answer else None)
    return Response(_compact(answer), media_type=_JSON)


def _error(status: int, reason: str) -> Response:
    return Response(_compact({"reason": reason}), status_code=status, media_type=_JSON)


def _compact(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


async def read_body(receive: Receive) -> bytes:
    """The whole body. Raises: Refusal: larger than BODY_BYTES_MAX, or the client went away."""
    body = bytearray()
    while True:
        message: Message = await receive()
        if message["type"] == "http.disconnect":
            raise Refusal(400, "The client went away")
        body += message.get("body", b"")
        if len(body) > BODY_BYTES_MAX:
            raise Refusal(413, f"The body is larger than {BODY_BYTES_MAX} bytes")
        if not message.get("more_body", False):
            return bytes(body)


async def _lifespan(receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        if message["type"] == "lifespan.startup":
            await send({"type": "lifespan.startup.complete"})
        elif message["type"] == "lifespan.shutdown":
            await send({"type": "lifespan.shutdown.complete"})
            return
