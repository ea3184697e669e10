"""BookieServer: listens on bookiePort and serves reads of the embedded bookie to other processes.

A connection has two tasks. One decodes requests, one chunk ahead of the other, which answers them
in order, so that pipelined reads of consecutive entries use the read-ahead of the first of them.
Tasks of their own answer long polls when their condition is met.

Bounds, and the effect of each: connections (a new one is closed), waiting requests of a connection
(two chunks; its socket is not read), waiting reads in all (TOO_MANY_REQUESTS), concurrent reads of
storage (they wait, because the broker's own reads need storage as well), answers that a peer does
not take (closed after a time in which it took too little). Damaged input closes that connection
only.
"""

from __future__ import annotations

import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

import structlog
import trio

from bookie.net.requests import RequestAnswers, is_read, without_body
from bookie.net.statistics import ServerStatistics
from protocol.bookkeeper.messages import FENCING, ReadRequest
from protocol.bookkeeper.packets import FRAME_SIZE_MAX, RequestDecoder
from protocol.errors import RemoteProtocolError

if TYPE_CHECKING:
    from bookie.net.requests import ServedBookie
    from protocol.bookkeeper.messages import Request

    _Received = list[tuple[Request, bool]]
    """Requests of one chunk, and whether each was admitted."""

log = structlog.get_logger()

RECEIVE_SIZE_BYTES: Final = 64 * 1024
SEND_SIZE_BYTES: Final = 256 * 1024
"""Answers are collected up to this size. A peer must take as much within the send timeout."""
ANSWERED_PER_TURN: Final = 64
"""Reads from memory that are answered before other tasks have their turn."""
LONG_POLLS_MAX: Final = 16
"""Long polls of one connection. A further one is answered with the current state at once."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class BookieServerConfig:
    """The bounds; see the module docstring."""

    frame_size_max: int = FRAME_SIZE_MAX
    batch_read_bytes_max: int = 5 * 1024 * 1024
    connections_max: int = 256
    reads_pending_max: int = 20_000
    reads_at_once: int = 4
    send_timeout_seconds: float = 30.0


@final
class BookieServer:
    """See the module docstring. `bind`, then `run` in a nursery; cancelling it closes
    everything."""

    def __init__(self, bookie: ServedBookie, config: BookieServerConfig) -> None:
        self.config = config
        self.statistics = ServerStatistics()
        self.answers = RequestAnswers(
            bookie, config.batch_read_bytes_max, config.reads_at_once, self.statistics
        )
        self._listeners: list[trio.SocketListener] = []

    @property
    def port(self) -> int:
        """The port that was bound (useful when 0 was asked for)."""
        return int(self._listeners[0].socket.getsockname()[1])

    async def bind(self, host: str, port: int) -> None:
        """Listen. Connections are accepted once `run` is running.

        Raises: OSError: the address is not available.
        """
        self._listeners = await trio.open_tcp_listeners(port, host=host)

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Accept and serve until cancelled."""
        async with trio.open_nursery() as nursery:
            await nursery.start(trio.serve_listeners, self._serve, self._listeners)
            task_status.started()

    async def _serve(self, stream: trio.SocketStream) -> None:
        peer = _peer_of(stream)
        statistics = self.statistics
        if statistics.connections >= self.config.connections_max:
            statistics.connections_refused += 1
            log.warning("bookie connection refused: too many", peer=peer)
            return
        statistics.connections += 1
        try:
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            await _Connection(self, stream, peer).run()
        except* (trio.BrokenResourceError, OSError) as lost:
            log.debug("bookie connection lost", peer=peer, reason=str(lost.exceptions[0]))
        except* RemoteProtocolError as wrong:
            log.warning("bookie connection closed", peer=peer, reason=str(wrong.exceptions[0]))
        except* Exception as failed:
            log.error("bookie connection failed", peer=peer, exc_info=failed)
        finally:
            statistics.connections -= 1

    def admit(self, request: Request) -> bool:
        """Whether a request may wait. An admitted request must be `released` later."""
        if is_read(request) and self.statistics.reads_pending >= self.config.reads_pending_max:
            return False
        self.statistics.reads_pending += 1
        return True

    def release(self) -> None:
        """An admitted request has been answered, or its connection has ended."""
        self.statistics.reads_pending -= 1


@final
class _Connection:
    """One peer."""

    def __init__(self, server: BookieServer, stream: trio.SocketStream, peer: str) -> None:
        self._server = server
        self._stream = stream
        self._peer = peer
        self._send_lock = trio.Lock()
        self._admitted = 0
        self._long_polls = 0
        self._has_warned = False

    async def run(self) -> None:
        """Serve until the peer has closed and has all its answers.

        Raises: RemoteProtocolError: after all requests before it were answered.
            trio.BrokenResourceError: the peer is gone.
        """
        queue, requests = trio.open_memory_channel["_Received"](0)
        violation: RemoteProtocolError | None = None
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._answer_all, requests, nursery)
                async with queue:
                    violation = await self._receive_all(queue)
        finally:
            for _ in range(self._admitted):
                self._server.release()
        if violation is not None:
            raise violation

    async def _receive_all(
        self, queue: trio.MemorySendChannel[_Received]
    ) -> RemoteProtocolError | None:
        """Queue requests until the peer has closed. Returns its protocol error, if any."""
        decoder = RequestDecoder(self._server.config.frame_size_max)
        admit = self._server.admit
        while data := await self._stream.receive_some(RECEIVE_SIZE_BYTES):
            try:
                requests = decoder.feed(bytes(data))
            except RemoteProtocolError as error:
                return error
            received: _Received = []
            for request in requests:
                is_admitted = admit(request)
                self._admitted += is_admitted
                received.append((without_body(request), is_admitted))
            await queue.send(received)
            if decoder.error is not None:
                return decoder.error
        return None

    async def _answer_all(
        self, queue: trio.MemoryReceiveChannel[_Received], nursery: trio.Nursery
    ) -> None:
        """Answer in order. Answers that are ready together are sent together."""
        async for received in queue:
            pending: list[bytes] = []
            size = 0
            for number, (request, is_admitted) in enumerate(received):
                if is_admitted and self._begin_long_poll(request, nursery):
                    continue
                buffers = await self._answer(request, is_admitted, number)
                pending += buffers
                size += sum(map(len, buffers))
                if size >= SEND_SIZE_BYTES:
                    await self._send(pending)
                    pending, size = [], 0
            await self._send(pending)

    async def _answer(self, request: Request, is_admitted: bool, number: int) -> list[bytes]:
        answers = self._server.answers
        if not is_admitted:
            return answers.overloaded(request)
        buffers = answers.answer_now(request)
        if buffers is None:
            self._warn_of_fencing(request)
            buffers = await answers.answer(request)
        elif number % ANSWERED_PER_TURN == 0:
            await trio.lowlevel.checkpoint()
        self._release()
        return buffers

    def _begin_long_poll(self, request: Request, nursery: trio.Nursery) -> bool:
        if self._long_polls >= LONG_POLLS_MAX or not isinstance(request, ReadRequest):
            return False
        if not self._server.answers.is_long_poll(request):
            return False
        self._long_polls += 1
        nursery.start_soon(self._long_poll, request)
        return True

    async def _long_poll(self, request: ReadRequest) -> None:
        buffers = await self._server.answers.answer_long_poll(request)
        self._long_polls -= 1
        self._release()
        await self._send(buffers)

    def _release(self) -> None:
        self._admitted -= 1
        self._server.release()

    def _warn_of_fencing(self, request: Request) -> None:
        if not self._has_warned and getattr(request, "flags", 0) & FENCING:
            self._has_warned = True
            log.warning("fencing read refused", peer=self._peer, request=type(request).__name__)

    async def _send(self, buffers: list[bytes]) -> None:
        """Raises: trio.BrokenResourceError: the peer is gone, or takes nothing."""
        if not buffers:
            return
        data = memoryview(b"".join(buffers))
        seconds = self._server.config.send_timeout_seconds
        async with self._send_lock:
            for start in range(0, len(data), SEND_SIZE_BYTES):
                with trio.move_on_after(seconds) as scope:
                    await self._stream.send_all(data[start : start + SEND_SIZE_BYTES])
                if scope.cancelled_caught:
                    log.warning("bookie connection closed: it takes no answers", peer=self._peer)
                    raise trio.BrokenResourceError("the peer takes no answers")


def _peer_of(stream: trio.SocketStream) -> str:
    try:
        host, port, *_ = stream.socket.getpeername()
    except OSError:
        return "unknown"
    return f"{host}:{port}"
