"""The types of ASGI 3.0, between a server and the application that it calls; and the body of a
request, for handlers that want it whole.

Source: https://asgi.readthedocs.io/en/latest/specs/www.html. Only its HTTP part is spoken.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final

from web.errors import RequestRefused

BODY_BYTES_MAX: Final = 8 * 1024 * 1024

Scope = MutableMapping[str, Any]
"""One request: its method, path, query, headers and ends."""
Message = MutableMapping[str, Any]
"""A piece of a request or of an answer."""
Receive = Callable[[], Awaitable[Message]]
"""Gives the next piece of the request's body."""
Send = Callable[[Message], Awaitable[None]]
"""Takes the start of the answer, or the next piece of its body."""
Application = Callable[[Scope, Receive, Send], Awaitable[None]]
"""Answers one request. An answer is itself such an application: the one that sends it."""


async def read_body(receive: Receive) -> bytes:
    """The whole body.

    Raises: RequestRefused: larger than BODY_BYTES_MAX, or the client has left.
    """
    body = bytearray()
    while True:
        message: Message = await receive()
        if message["type"] == "http.disconnect":
            raise RequestRefused(400, "The client went away")
        body += message.get("body", b"")
        if len(body) > BODY_BYTES_MAX:
            raise RequestRefused(413, f"The body is larger than {BODY_BYTES_MAX} bytes")
        if not message.get("more_body", False):
            return bytes(body)
