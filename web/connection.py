"""One HTTP/1.1 connection: h11 implements the protocol, this module moves bytes within the bounds.

A client has a deadline for the head of its request, for the body, and for taking the answer. Bytes
held for it meanwhile count against one budget of all connections. Data are received only while h11
needs some, so that pipelined requests wait in the kernel. The application is called as in ASGI. It
is not interrupted when its client leaves.

Connections take turns: in a round of the event loop a few of them handle what has come, or go on
with their answers.

HTTP/2 is not supported: its preface is answered with 505, and an offer to upgrade to it is ignored.
"""

from __future__ import annotations

import enum
import http
import json
import socket
import ssl
import struct
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol, final
from urllib.parse import unquote

import h11
import structlog
import trio

from web.dates import http_date
from web.errors import PeerTooSlow, RequestRefused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, MutableMapping

    from runtime.rounds import Rounds
    from web.asgi import Application
    from web.limits import ByteBudget, HttpLimits, RequestRate

    Message = MutableMapping[str, Any]

log = structlog.get_logger()

HEAD_RECEIVE_BYTES: Final = 4 * 1024
BODY_RECEIVE_BYTES: Final = 64 * 1024
REST_BYTES_MAX: Final = 64 * 1024
"""An unread body up to this size is read to keep the connection. A larger one ends it."""
REST_SECONDS_MAX: Final = 1.0
GOODBYE_SECONDS_MAX: Final = 1.0
GOODBYE_BYTES_MAX: Final = 256 * 1024
CHUNKS_PER_TURN: Final = 32
CHUNKS_FREE: Final = 1_000
CHUNK_BYTES_MEAN_MIN: Final = 64
"""After the first chunks of a body their average size must be at least this, because each chunk
costs the same."""
_ABORT: Final = struct.pack("ii", 1, 0)
_VERSIONS: Final = (b"1.1", b"1.0")
_TWO_ENDS: Final = frozenset((b"transfer-encoding", b"content-length"))
"""With both a proxy may see the end of a body elsewhere. Jetty refuses it with the same text."""


class Phase(enum.Enum):
    """The state in which a connection waits."""

    HEAD = "a request"
    BODY = "the rest of a request"
    HANDLER = "the broker"
    ANSWER = "the client to take its answer"


def _no_certificate() -> bytes | None:
    """The certificate of a client that is not asked for one."""
    return None


@final
@dataclass(frozen=True, slots=True)
class Link:
    """The layer of a connection below HTTP."""

    client: tuple[str, int] | None = None
    """Address and port; None: there is no such thing."""
    server: tuple[str, int] | None = None
    scheme: str = "http"
    peer_certificate: Callable[[], bytes | None] = _no_certificate
    """See `runtime.transport.Transport`. Asked once a request has come."""


def link_of(stream: trio.abc.Stream) -> Link:
    """The link of a stream without TLS."""
    if not isinstance(stream, trio.SocketStream):
        return Link()
    try:
        peer, local = stream.socket.getpeername(), stream.socket.getsockname()
    except OSError:
        return Link()
    return Link((peer[0], peer[1]), (local[0], local[1]))


class Shared(Protocol):
    """The part of its server that a connection uses."""

    @property
    def application(self) -> Application:
        """The application that answers."""

    @property
    def limits(self) -> HttpLimits:
        """The bounds."""

    @property
    def budget(self) -> ByteBudget:
        """Bytes held for all connections."""

    @property
    def rate(self) -> RequestRate:
        """The request rate of all connections."""

    @property
    def rounds(self) -> Rounds:
        """The rounds in which connections take turns."""

    @property
    def stopping(self) -> bool:
        """Whether no further request is wanted."""

    def free_bytes(self) -> None:
        """The budget is used up: close the connection of the slowest client."""

    def entered(self, connection: HttpConnection) -> None:
        """The connection waits for something else from now on."""


@final
class HttpConnection:
    """Serves one stream. `phase` and `since` show the server how long it waits, and for what."""

    def __init__(self, shared: Shared, stream: trio.abc.Stream, link: Link) -> None:
        self._shared = shared
        self._limits = shared.limits
        self._stream = stream
        self._link = link
        self._protocol = h11.Connection(
            h11.SERVER, max_incomplete_event_size=self._limits.head_bytes_max
        )
        self._scope = trio.CancelScope()
        self.phase = Phase.HEAD
        self.since = trio.current_time()
        self._is_first = True
        self._reset()

    def _reset(self) -> None:
        self._method = b""
        self._start: Message | None = None
        self._body_is_read = False
        self._rest_is_lost = False
        self._body_deadline = float("inf")
        self._body_bytes = 0
        self._chunks = 0
        self._held = 0
        self._answer_seconds_left = self._limits.answer_seconds_max

    # --- life ---------------------------------------------------------------------------

    def give_way(self) -> None:
        """End at once: another connection needs the place."""
        self._scope.cancel()

    async def run(self) -> None:
        """Serve requests until the connection ends. The stream is then closed."""
        try:
            polite = False
            with self._scope:
                polite = await self._serve_all()
            await self._close(polite=polite)
        finally:
            self._give_back()
            await trio.aclose_forcefully(self._stream)

    async def _serve_all(self) -> bool:
        """Whether the client should be given time to read the last answer."""
        try:
            while await self._serve_one():
                self._is_first = False
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return False  # the client has left
        except PeerTooSlow as error:
            log.warning("HTTP client cut off", peer=self._peer, reason=str(error))
            return False
        except Exception as error:
            log.error("HTTP connection failed", peer=self._peer, exc_info=error)
            return False
        return True

    @property
    def _peer(self) -> str:
        client = self._link.client
        return "" if client is None else f"{client[0]}:{client[1]}"

    async def _serve_one(self) -> bool:
        """Serve one request. Returns whether there may be another."""
        try:
            request = await self._receive_head()
            if request is None:
                return False
            self._method = request.method
            self._enter(Phase.HANDLER)
            if request.http_version not in _VERSIONS:
                raise RequestRefused(505, "Only HTTP/1.1 is spoken here")
            if _TWO_ENDS.issubset(name for name, _value in request.headers):
                raise RequestRefused(400, "Transfer-Encoding and Content-Length")
            if not self._shared.rate.admits(trio.current_time()):
                await self._refuse(429, "Too many requests: httpRequestsMaxPerSecond is reached")
            else:
                await self._shared.application(self._scope_of(request), self._receive, self._send)
        except RequestRefused as error:
            if not await self._refuse(error.status, error.reason, close=True):
                return False
        except h11.RemoteProtocolError as error:
            if not await self._refuse(_status_of(error), f"No HTTP: {error}", close=True):
                return False
        return self._next_cycle()

    def _next_cycle(self) -> bool:
        protocol = self._protocol
        if protocol.our_state is not h11.DONE and protocol.our_state is not h11.MUST_CLOSE:
            raise RuntimeError("the application did not finish its answer")
        self._give_back()
        if protocol.our_state is not h11.DONE or protocol.their_state is not h11.DONE:
            return False
        if self._shared.stopping:
            return False
        protocol.start_next_cycle()
        self._reset()
        return True

    async def _close(self, *, polite: bool) -> None:
        """A close with unread input resets the connection, which may lose the answer. After an
        answer the client therefore gets a moment to close first."""
        if polite and isinstance(self._stream, trio.abc.HalfCloseableStream):
            with trio.move_on_after(GOODBYE_SECONDS_MAX):
                try:
                    await self._stream.send_eof()
                    left = GOODBYE_BYTES_MAX
                    while left > 0 and (data := await self._stream.receive_some(left)):
                        left -= len(data)
                except (trio.BrokenResourceError, trio.ClosedResourceError):
                    left = 0  # already closed
        elif isinstance(self._stream, trio.SocketStream):
            # Do not keep an answer in the kernel that the client does not take.
            self._stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _ABORT)

    def _enter(self, phase: Phase) -> None:
        self.phase = phase
        self.since = trio.current_time()
        self._shared.entered(self)

    # --- the request --------------------------------------------------------------------

    async def _receive_head(self) -> h11.Request | None:
        """The next request; None: the client has closed, or sends nothing."""
        limits = self._limits
        self._enter(Phase.HEAD)
        begun, has_received = bool(self._protocol.trailing_data[0]), False
        wait = limits.request_seconds_max if begun or self._is_first else limits.idle_seconds_max
        deadline = self.since + wait
        while True:
            event = self._protocol.next_event()
            if isinstance(event, h11.Request):
                if not has_received:  # it came with the one before
                    await self._take_turn()
                return event
            if event is not h11.NEED_DATA:
                return None
            data = await self._receive_some(HEAD_RECEIVE_BYTES, deadline)
            if data is None:
                if begun:
                    raise RequestRefused(408, _too_slow("head", limits.request_seconds_max))
                return None
            has_received = True
            if data and not begun:
                begun = True
                deadline = trio.current_time() + limits.request_seconds_max
            self._protocol.receive_data(data)

    async def _receive(self) -> Message:
        """ASGI: the next piece of the body."""
        if self._body_is_read:
            return {"type": "http.disconnect"}
        if self._protocol.they_are_waiting_for_100_continue:
            go_on = h11.InformationalResponse(status_code=100, headers=[])
            await self._write(self._protocol.send(go_on))
        if self._body_deadline == float("inf"):
            self._body_deadline = trio.current_time() + self._limits.request_seconds_max
        self._enter(Phase.BODY)
        try:
            data = await self._receive_piece(self._body_deadline)
            if data is None:
                raise RequestRefused(408, _too_slow("body", self._limits.request_seconds_max))
        except h11.RemoteProtocolError as error:
            self._rest_is_lost = True
            raise RequestRefused(_status_of(error), f"No HTTP: {error}") from None
        except RequestRefused:
            self._rest_is_lost = True
            raise
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            self._rest_is_lost = True
            return {"type": "http.disconnect"}
        self._enter(Phase.HANDLER)
        return {"type": "http.request", "body": data, "more_body": not self._body_is_read}

    async def _receive_piece(self, deadline: float) -> bytes | None:
        """Part of the body, nothing at its end; None: the deadline has passed."""
        while True:
            event = self._protocol.next_event()
            if isinstance(event, h11.Data):
                size = len(event.data)
                self._hold(size)
                await self._count_chunk(size)
                return bytes(event.data)
            if isinstance(event, h11.EndOfMessage):
                self._body_is_read = True
                return b""
            assert event is h11.NEED_DATA, event
            data = await self._receive_some(BODY_RECEIVE_BYTES, deadline)
            if data is None:
                return None
            self._protocol.receive_data(data)

    async def _count_chunk(self, size: int) -> None:
        self._chunks += 1
        self._body_bytes += size
        beyond = self._chunks - CHUNKS_FREE
        if beyond > 0 and self._body_bytes < beyond * CHUNK_BYTES_MEAN_MIN:
            raise RequestRefused(400, "The body comes in too many small chunks")
        if self._chunks % CHUNKS_PER_TURN == 0:
            await trio.lowlevel.checkpoint()

    async def _receive_some(self, size: int, deadline: float) -> bytes | None:
        with trio.CancelScope(deadline=deadline) as scope:
            data = bytes(await self._stream.receive_some(size))
        if scope.cancelled_caught:
            return None
        await self._take_turn()
        return data

    async def _take_turn(self) -> None:
        """Continue when few other connections do something in the same round: a
        thousand of them may get bytes together, and messages that arrive wait for the round."""
        async with self._shared.rounds:
            pass

    def _hold(self, size: int) -> None:
        if not self._shared.budget.take_for_request(size):
            self._shared.free_bytes()
            raise RequestRefused(
                503, "Too many bytes of unfinished requests: webServiceMaxBufferedMB is reached"
            )
        self._held += size

    def _give_back(self) -> None:
        self._shared.budget.give_for_request(self._held)
        self._held = 0

    def _scope_of(self, request: h11.Request) -> dict[str, Any]:
        raw_path, _, query = request.target.partition(b"?")
        link = self._link
        certificate = link.peer_certificate()
        return {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.4"},
            "http_version": request.http_version.decode("ascii"),
            "method": request.method.decode("ascii"),
            "scheme": link.scheme,
            "path": unquote(raw_path.decode("latin-1")),
            "raw_path": raw_path,
            "query_string": query,
            "root_path": "",
            "headers": list(request.headers),
            "client": link.client,
            "server": link.server,
            "extensions": {} if certificate is None else _tls_extension(certificate),
        }

    # --- the answer ---------------------------------------------------------------------

    async def _send(self, message: Message) -> None:
        """ASGI: the start of the answer, or a piece of its body."""
        if message["type"] == "http.response.start":
            self._start = message
            return
        parts: list[bytes] = []
        if self._start is not None:
            await self._skip_rest()
            parts.append(self._head(self._start["status"], self._start.get("headers", ())))
            self._start = None
        body = message.get("body", b"")
        if body and self._method != b"HEAD":
            parts.append(self._protocol.send(h11.Data(data=body)) or b"")
        if not message.get("more_body", False):
            parts.append(self._protocol.send(h11.EndOfMessage()) or b"")
        await self._write(b"".join(parts))

    def _head(
        self, status: int, headers: Iterable[tuple[bytes, bytes]], close: bool = False
    ) -> bytes:
        fields = [*headers, (b"date", http_date(time.time()).encode("ascii"))]
        unread = self._protocol.their_state in (h11.SEND_BODY, h11.ERROR)
        if close or unread or self._shared.stopping:
            fields.append((b"connection", b"close"))
        head = h11.Response(status_code=status, headers=fields, reason=_phrase(status))
        return self._protocol.send(head) or b""

    async def _skip_rest(self) -> None:
        """Read the rest of a small unread body, so that the connection can be kept."""
        waits = self._protocol.they_are_waiting_for_100_continue
        if self._body_is_read or self._rest_is_lost or waits:
            return
        deadline = trio.current_time() + REST_SECONDS_MAX
        already = self._body_bytes
        self._enter(Phase.BODY)
        while not self._body_is_read and self._body_bytes - already < REST_BYTES_MAX:
            if await self._receive_piece(deadline) is None:
                return

    async def _refuse(self, status: int, reason: str, *, close: bool = False) -> bool:
        """Answer in the common form of errors. Returns whether it could be sent."""
        if self._protocol.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            return False
        body = json.dumps({"reason": reason}).encode()
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode("ascii")),
        ]
        if not close:
            await self._skip_rest()
        answer = self._head(status, headers, close)
        if self._method != b"HEAD":
            answer += self._protocol.send(h11.Data(data=body)) or b""
        await self._write(answer + (self._protocol.send(h11.EndOfMessage()) or b""))
        return True

    async def _write(self, data: bytes) -> None:
        """Send, within the remaining time for this answer."""
        budget = self._shared.budget
        if not budget.take_for_answer(len(data)):
            self._shared.free_bytes()
            raise PeerTooSlow("webServiceMaxBufferedMB of answers wait for their clients")
        self._enter(Phase.ANSWER)
        try:
            with trio.move_on_after(max(0.0, self._answer_seconds_left)) as scope:
                await self._stream.send_all(data)
        finally:
            budget.give_for_answer(len(data))
        if scope.cancelled_caught:
            raise PeerTooSlow("it did not take its answer within webServiceAnswerTimeoutSeconds")
        self._answer_seconds_left -= trio.current_time() - self.since
        self._enter(Phase.HANDLER)
        await self._take_turn()


def _tls_extension(certificate: bytes) -> Message:
    """The certificate of the client, as ASGI's TLS extension passes it on."""
    return {"tls": {"client_cert_chain": (ssl.DER_cert_to_PEM_cert(certificate),)}}


def _status_of(error: h11.RemoteProtocolError) -> int:
    return int(error.error_status_hint)


def _phrase(status: int) -> str:
    try:
        return http.HTTPStatus(status).phrase
    except ValueError:
        return ""


def _too_slow(part: str, seconds: float) -> str:
    return f"The {part} of the request did not arrive within {seconds:g} s"
