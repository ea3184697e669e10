"""`/metrics`: the Prometheus exposition of broker and bookie."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from broker.http.router import Route
from broker.http.streaming import Streamed

if TYPE_CHECKING:
    from broker.http.context import AdminRequest

_CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


async def metrics(request: AdminRequest) -> Streamed:
    """Everything, as of now."""
    page = await request.context.metrics.page()
    return Streamed(page.pieces(), _CONTENT_TYPE)


ROUTES: Final = (Route("GET", "/metrics", metrics),)
