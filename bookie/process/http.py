"""State and metrics of a bookie over HTTP: the paths and bodies of BookKeeper's bookie server.

Everything here is read only. Source: the endpoint services of BookKeeper 4.17.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from bookie.metrics import add_bookie_series
from runtime.watchdog import watchdog_of_loop
from web.prometheus import add_stall_series
from web.state import HEARTBEAT_PATH, METRICS_PATH, heartbeat, json_text, metrics, text

if TYPE_CHECKING:
    from bookie.bookie import Bookie
    from bookie.net.server import BookieServer
    from web.asgi import Application
    from web.prometheus import Page
    from web.state import Answer, Query


@final
class BookieState:
    """The shown state of a bookie. `bookie` and `server` are None until the bookie is open,
    `is_ready` is set when it is registered."""

    def __init__(self) -> None:
        self.bookie: Bookie | None = None
        self.server: BookieServer | None = None
        self.is_ready = False
        self.is_stopping = False

    def answers(self, *, metrics_only: bool) -> dict[str, Answer]:
        """By path."""
        answers: dict[str, Answer] = {METRICS_PATH: lambda _query: metrics(self._add_series)}
        if not metrics_only:
            answers |= {
                HEARTBEAT_PATH: heartbeat,
                "/api/v1/bookie/is_ready": self._is_ready,
                "/api/v1/bookie/state": self._state,
                "/api/v1/bookie/info": self._info,
            }
        return answers

    def _is_ready(self, _query: Query) -> Application:
        if self.is_ready and not self.is_stopping:
            return text(200, "")
        return text(503, "Bookie is not fully started yet")

    def _state(self, _query: Query) -> Application:
        bookie = self.bookie
        return json_text(
            {
                "running": self.is_ready,
                "readOnly": bookie is not None and not bookie.is_writable(),
                "shuttingDown": self.is_stopping,
                "availableForHighPriorityWrites": bookie is not None and bookie.has_headroom(),
            }
        )

    def _info(self, _query: Query) -> Application:
        if self.bookie is None:
            return text(503, "Bookie is not fully started yet")
        free, total = self.bookie.free_and_total_bytes()
        return json_text({"freeSpace": free, "totalSpace": total})

    def _add_series(self, page: Page) -> None:
        if self.bookie is not None:
            add_bookie_series(page, self.bookie, self.server)
        add_stall_series(page, watchdog_of_loop(), {})
