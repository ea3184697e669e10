"""State and metrics of a bookie over HTTP: the paths and bodies of BookKeeper's bookie server.

Everything here is read only. Source: the endpoint services of BookKeeper 4.17.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final, final

from starlette.responses import Response

from bookie.metrics import add_bookie_series
from web.errors import RequestRefused
from web.prometheus import Page

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.types import ASGIApp, Receive, Scope, Send

    from bookie.bookie import Bookie
    from bookie.net.server import BookieServer
    from web.callers import CallerRules

METRICS_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_JSON: Final = "application/json"
_TEXT: Final = "text/plain"


@final
class BookieApplication:
    """ASGI. `bookie` and `server` are None until the bookie is open, `is_ready` is set when it is
    registered."""

    def __init__(self, callers: CallerRules, *, metrics_only: bool) -> None:
        self._callers = callers
        self.bookie: Bookie | None = None
        self.server: BookieServer | None = None
        self.is_ready = False
        self.is_stopping = False
        self._answers: dict[str, Callable[[], ASGIApp]] = {"/metrics": self._metrics}
        if not metrics_only:
            self._answers |= {
                "/heartbeat": lambda: _text(200, "OK\n"),
                "/api/v1/bookie/is_ready": self._is_ready,
                "/api/v1/bookie/state": self._state,
                "/api/v1/bookie/info": self._info,
            }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        await self._answer(scope)(scope, receive, send)

    def _answer(self, scope: Scope) -> ASGIApp:
        headers = {
            key.decode("latin-1"): value.decode("latin-1") for key, value in scope["headers"]
        }
        server = scope.get("server")
        try:
            self._callers.check(scope["method"], headers, server[0] if server is not None else "")
        except RequestRefused as error:
            return _text(error.status, error.reason)
        answer = self._answers.get(scope["path"])
        if answer is None:
            return _text(404, f"There is nothing at {scope['path']}")
        if scope["method"] not in ("GET", "HEAD"):
            return _text(404, "Only GET is supported")
        return answer()

    def _is_ready(self) -> ASGIApp:
        if self.is_ready and not self.is_stopping:
            return _text(200, "")
        return _text(503, "Bookie is not fully started yet")

    def _state(self) -> ASGIApp:
        bookie = self.bookie
        return _json(
            {
                "running": self.is_ready,
                "readOnly": bookie is not None and not bookie.is_writable(),
                "shuttingDown": self.is_stopping,
                "availableForHighPriorityWrites": bookie is not None and bookie.has_headroom(),
            }
        )

    def _info(self) -> ASGIApp:
        if self.bookie is None:
            return _text(503, "Bookie is not fully started yet")
        free, total = self.bookie.free_and_total_bytes()
        return _json({"freeSpace": free, "totalSpace": total})

    def _metrics(self) -> ASGIApp:
        page = Page()
        if self.bookie is not None:
            add_bookie_series(page, self.bookie, self.server)
        return Response("".join(page.pieces()), headers={"content-type": METRICS_TYPE})


def _text(status: int, text: str) -> ASGIApp:
    return Response(text, status_code=status, media_type=_TEXT)


def _json(body: object) -> ASGIApp:
    return Response(json.dumps(body), media_type=_JSON)
