"""One HTTP request to another server of the cluster, without following redirects.

For the few calls that brokers make of each other, one connection each. The answer's body is not
kept: only its status counts, and what a stranger on that port may send is bounded.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

import h11
import trio

_CHUNK_BYTES: Final = 16 * 1024
_HEAD_BYTES_MAX: Final = 64 * 1024
_BODY_BYTES_MAX: Final = 1024 * 1024


class CallFailed(Exception):
    """The server did not answer, or not with HTTP. The text names it and says why."""


async def call(method: str, url: str, seconds_max: float) -> int:
    """The status of the answer to a request without a body. `url` is absolute, http only.

    Raises: CallFailed.
    """
    parts = urlsplit(url)
    if parts.scheme != "http" or not parts.hostname:
        raise CallFailed(f"{url} is no http URL")
    try:
        with trio.fail_after(seconds_max):
            stream = await trio.open_tcp_stream(parts.hostname, parts.port or 80)
            async with stream:
                return await _exchange(stream, method, url)
    except (OSError, trio.TooSlowError, trio.BrokenResourceError, h11.ProtocolError) as error:
        reason = str(error) or type(error).__name__
        raise CallFailed(f"{method} {url}: {reason}") from None


async def _exchange(stream: trio.SocketStream, method: str, url: str) -> int:
    parts = urlsplit(url)
    target = parts.path + (f"?{parts.query}" if parts.query else "")
    connection = h11.Connection(h11.CLIENT, max_incomplete_event_size=_HEAD_BYTES_MAX)
    headers = [("Host", parts.netloc), ("Content-Length", "0"), ("Connection", "close")]
    head = connection.send(h11.Request(method=method, target=target, headers=headers))
    end = connection.send(h11.EndOfMessage())
    assert head is not None
    assert end is not None
    await stream.send_all(head + end)
    status = received = 0
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            data = await stream.receive_some(_CHUNK_BYTES)
            received += len(data)
            if received > _BODY_BYTES_MAX:
                return status
            connection.receive_data(data)
        elif isinstance(event, h11.Response):
            status = event.status_code
        elif isinstance(event, h11.EndOfMessage | h11.ConnectionClosed):
            return status
