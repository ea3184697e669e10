"""Answers whose body is known as a whole.

The order and the case of their headers are part of what clients see: those that are given come
first, in lower case, then `content-length`, then `content-type`. `web.connection` adds the date.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from web.asgi import Receive, Scope, Send

JSON: Final = "application/json"
TEXT: Final = "text/plain"
_WITHOUT_BODY: Final = frozenset({204, 304})
"""RFC 9110 8.6: these, and all below 200, have no content-length."""


@final
class Response:
    """ASGI: an answer of one piece. It may be sent any number of times."""

    __slots__ = ("body", "headers", "status")

    def __init__(
        self,
        content: str | bytes = b"",
        status: int = 200,
        headers: Mapping[str, str] | None = None,
        media_type: str | None = None,
    ) -> None:
        """`headers`: latin-1; one of them may say another length or type. `media_type`: of
        `content`, to which a text adds that it is UTF-8; None: the answer does not say."""
        self.status = status
        self.body = content.encode() if isinstance(content, str) else content
        given = headers or {}
        self.headers = [
            (name.lower().encode("latin-1"), value.encode("latin-1"))
            for name, value in given.items()
        ]
        names = {name for name, _value in self.headers}
        if b"content-length" not in names and status >= 200 and status not in _WITHOUT_BODY:
            self.headers.append((b"content-length", b"%d" % len(self.body)))
        if media_type is not None and b"content-type" not in names:
            if media_type.startswith("text/") and "charset=" not in media_type.lower():
                media_type += "; charset=utf-8"
            self.headers.append((b"content-type", media_type.encode("latin-1")))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it. To HEAD too: `web.connection` leaves the body out."""
        del scope, receive
        await send({"type": "http.response.start", "status": self.status, "headers": self.headers})
        await send({"type": "http.response.body", "body": self.body})


def json_response(value: object, status: int = 200) -> Response:
    """Compact JSON, also of null or of an empty list.

    Raises: ValueError: a number in it is not finite, which JSON cannot say.
    """
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return Response(text, status, media_type=JSON)
