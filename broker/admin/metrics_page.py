"""`/metrics`: the Prometheus exposition of broker and bookie."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from starlette.responses import Response

from broker.admin.router import Route

if TYPE_CHECKING:
    from broker.admin.context import AdminRequest

_CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


async def metrics(request: AdminRequest) -> Response:
    """Everything, as of now."""
    return Response(request.context.metrics.exposition(), media_type=_CONTENT_TYPE)


ROUTES: Final = (Route("GET", "/metrics", metrics),)
