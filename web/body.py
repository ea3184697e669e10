"""The body of a request, for handlers that want it whole."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from web.errors import RequestRefused

if TYPE_CHECKING:
    from web.asgi import Message, Receive

BODY_BYTES_MAX: Final = 8 * 1024 * 1024


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
