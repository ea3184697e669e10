"""One HTTP request to another server, without following redirects.

For the few calls that brokers make of each other and of issuers of tokens, one connection each.
What a stranger on that port may send is bounded.
"""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Final, NamedTuple, final
from urllib.parse import urlsplit

import h11
import trio

if TYPE_CHECKING:
    from collections.abc import Iterable
    from urllib.parse import SplitResult

_CHUNK_BYTES: Final = 64 * 1024
_HEAD_BYTES_MAX: Final = 64 * 1024


class CallFailed(Exception):
    """The server did not answer, or not with HTTP, or at too great a length. The text names it and
    says why."""


@final
class Answer(NamedTuple):
    """The answer to a request."""

    status: int
    location: str
    """Where to repeat the request, with a redirect."""
    body: bytes


async def fetch(
    method: str,
    url: str,
    seconds_max: float,
    *,
    body: bytes = b"",
    body_bytes_max: int,
    tls: ssl.SSLContext | None = None,
    headers: Iterable[tuple[str, str]] = (),
) -> Answer:
    """The answer to a request. `url` is absolute; https is spoken with the context `tls` only.
    `body`, if there is one, is JSON. `body_bytes_max` bounds the answer. `headers` are sent besides
    those that every request has.

    Raises: CallFailed.
    """
    try:
        parts = urlsplit(url)
        with trio.fail_after(seconds_max):
            async with await _connected(parts, tls) as stream:
                return await _exchange(stream, method, url, body, body_bytes_max, headers)
    except trio.BrokenResourceError as error:  # of TLS, the cause says more
        raise CallFailed(f"{method} {url}: {error.__cause__ or error}") from None
    except (
        OSError,
        ValueError,  # of a URL, which another process wrote
        ssl.SSLError,
        trio.TooSlowError,
        h11.ProtocolError,
    ) as error:
        reason = str(error) or type(error).__name__
        raise CallFailed(f"{method} {url}: {reason}") from None


async def _connected(parts: SplitResult, tls: ssl.SSLContext | None) -> trio.abc.Stream:
    schemes = ("http",) if tls is None else ("http", "https")
    if parts.scheme not in schemes or not parts.hostname:
        raise ValueError(f"this is no {' or '.join(schemes)} URL")
    if parts.scheme == "http":
        return await trio.open_tcp_stream(parts.hostname, parts.port or 80)
    assert tls is not None
    stream = await trio.open_tcp_stream(parts.hostname, parts.port or 443)
    return trio.SSLStream(stream, tls, server_hostname=parts.hostname, https_compatible=True)


async def _exchange(
    stream: trio.abc.Stream,
    method: str,
    url: str,
    body: bytes,
    body_bytes_max: int,
    more_headers: Iterable[tuple[str, str]],
) -> Answer:
    parts = urlsplit(url)
    target = parts.path + (f"?{parts.query}" if parts.query else "")
    connection = h11.Connection(h11.CLIENT, max_incomplete_event_size=_HEAD_BYTES_MAX)
    headers = [
        ("Host", parts.netloc),
        ("Content-Length", str(len(body))),
        ("Connection", "close"),
        *more_headers,
    ]
    if body:
        headers.append(("Content-Type", "application/json"))
    events: list[h11.Event] = [h11.Request(method=method, target=target, headers=headers)]
    if body:
        events.append(h11.Data(data=body))
    events.append(h11.EndOfMessage())
    await stream.send_all(b"".join(connection.send(event) or b"" for event in events))
    status, location, received = 0, "", bytearray()
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            connection.receive_data(bytes(await stream.receive_some(_CHUNK_BYTES)))
        elif isinstance(event, h11.Response):
            status = event.status_code
            found = dict(event.headers).get(b"location", b"")
            location = found.decode("latin-1")
        elif isinstance(event, h11.Data):
            received += event.data
            if len(received) > body_bytes_max:
                raise CallFailed(f"{method} {url}: the answer has over {body_bytes_max} bytes")
        elif isinstance(event, h11.EndOfMessage):
            return Answer(status, location, bytes(received))
        elif isinstance(event, h11.ConnectionClosed):
            raise CallFailed(f"{method} {url}: the answer was not complete")
