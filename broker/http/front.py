"""What the HTTP server calls: the application over the route table, loaded by the first request.

The routes are a tenth of a broker's modules. A broker without HTTP requests, such as most of those
in a test suite, does not load them. They are loaded in a thread, so that clients of the binary
protocol are served meanwhile.

Before the broker is ready every request is answered with 503, so the first 200 of `/metrics` or the
health check means that a client can use the broker. `web` serves it on a socket that is bound
before anything else starts, so that a port in use is refused at once.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final, Protocol, final

import trio

from web.server import HttpServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from broker.http.context import AdminContext
    from web.asgi import Receive, Scope, Send
    from web.limits import HttpLimits
    from web.server import Door

STARTING: Final = "The broker is starting; it is not ready yet"


class Application(Protocol):
    """ASGI. It answers from `context`."""

    context: AdminContext | None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""


@final
class AdminFront:
    """ASGI. `context` is None until the broker is ready."""

    def __init__(self, load: Callable[[], Application]) -> None:
        """`load` is called once, in a thread."""
        self._load = load
        self._loading = trio.Lock()
        self._application: Application | None = None
        self.context: AdminContext | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if self.context is None:
            await _answer_starting(send)
            return
        application = self._application or await self._loaded()
        await application(scope, receive, send)

    async def _loaded(self) -> Application:
        async with self._loading:
            if self._application is None:
                application = await trio.to_thread.run_sync(self._load)
                application.context = self.context
                self._application = application
            return self._application


async def _answer_starting(send: Send) -> None:
    body = json.dumps({"reason": STARTING}, separators=(",", ":")).encode()
    headers = [
        (b"content-length", str(len(body)).encode()),
        (b"content-type", b"application/json"),
    ]
    await send({"type": "http.response.start", "status": 503, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def serve_http(
    front: AdminFront,
    limits: HttpLimits,
    doors: Iterable[Door],
    stop: trio.Event,
    task_status: trio.TaskStatus[None],
) -> None:
    """Serve until `stop` is set, then allow pending requests a moment to finish."""
    await HttpServer(front, limits).serve(doors, stop, task_status)
