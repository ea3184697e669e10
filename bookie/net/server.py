"""BookieServer: listens on bookiePort and serves a bookie to other processes.

A connection has three tasks. One decodes requests. It hands adds to the bookie at once, and other
requests, one chunk ahead, to the second, which answers them in order, so that pipelined reads of
consecutive entries use the read-ahead of the first of them. The third sends the answers to adds.
Tasks of their own answer long polls when their condition is met.

Bounds, and the effect of each: connections (a new one is closed), waiting requests of a connection
(two chunks; its socket is not read), bytes of adds without an answer in all, and of answers to adds
of a connection (its socket is not read), waiting reads in all (TOO_MANY_REQUESTS), concurrent reads
of storage (they wait, because the broker's own reads need storage as well), answers that a peer
does not take (closed after a time in which it took too little). Damaged input closes that
connection only.
"""

from __future__ import annotations

import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

import structlog
import trio

from bookie.net.adds import ConnectionAdds
from bookie.net.requests import RequestAnswers, is_read
from bookie.net.statistics import ServerStatistics
from protocol.bookkeeper.messages import AddRequest, ReadRequest
from protocol.bookkeeper.packets import FRAME_SIZE_MAX, RequestDecoder
from protocol.errors import RemoteProtocolError

if TYPE_CHECKING:
    from bookie.net.requests import ServedBookie
    from protocol.bookkeeper.messages import Request

    _Received = list[tuple[Request, bool]]
    """Requests of one chunk, and whether each was admitted."""

log = structlog.get_logger()

RECEIVE_SIZE_BYTES: Final = 256 * 1024
SEND_SIZE_BYTES: Final = 256 * 1024
"""Answers are collected up to this size. A peer must take as much within the send timeout."""
ANSWERED_PER_TURN: Final = 64
"""Reads from memory that are answered before other tasks have their turn."""
ADD_ANSWERS_MAX: Final = 16 * 1024
"""Answers to adds of one connection that wait to be sent."""
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
    add_bytes_pending_max: int = 64 * 1024 * 1024
    reads_at_once: int = 4
    send_timeout_seconds: float = 30.0


@final
class PendingBytes:
    """Bytes of adds of all connections that have no answer yet, and the wait for fewer."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._fewer = trio.Event()

    def changed(self, difference: int) -> None:
        """So many bytes more, or less."""
        was_full = self._bytes > self._bytes_max
        self._bytes += difference
        if was_full and self._bytes <= self._bytes_max:
            self._fewer.set()
            self._fewer = trio.Event()

    async def wait_for_room(self) -> None:
        """Return at once when there is room."""
        while self._bytes > self._bytes_max:
            await self._fewer.wait()


@final
class BookieServer:
    """See the module docstring. `bind`, then `run` in a nursery; cancelling it closes
    everything."""

    def __init__(self, bookie: ServedBookie, config: BookieServerConfig) -> None:
        self.bookie = bookie
        self.config = config
        self.statistics = ServerStatistics()
        self.add_bytes = PendingBytes(config.add_bytes_pending_max)
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
        self.listen_on(await trio.open_tcp_listeners(port, host=host))

    def listen_on(self, listeners: list[trio.SocketListener]) -> None:
        """Listen on what is bound already, perhaps for a long time."""
        self._listeners = listeners

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
        self._adds = ConnectionAdds(server.bookie, server.statistics, self._add_answers_changed)
        self._adds_counted = 0
        self._is_over = False
        self._add_answers = trio.Event()
        self._add_answers_sent = trio.Event()

    async def run(self) -> None:
        """Serve until the peer has closed and has all its answers.

        Raises: RemoteProtocolError: after all requests before it were answered.
            trio.BrokenResourceError: the peer is gone.
        """
        queue, requests = trio.open_memory_channel["_Received"](0)
        violation: RemoteProtocolError | None = None
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._send_add_answers)
                async with trio.open_nursery() as readers:
                    readers.start_soon(self._answer_all, requests, readers)
                    async with queue:
                        violation = await self._receive_all(queue)
                await self._adds_answered()
                nursery.cancel_scope.cancel()
        finally:
            self._is_over = True
            self._server.add_bytes.changed(-self._adds_counted)
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
            adds = self._adds
            for request in requests:
                if isinstance(request, AddRequest):
                    adds.take(request)
                    continue
                adds.end_run()
                is_admitted = admit(request)
                self._admitted += is_admitted
                received.append((request, is_admitted))
            adds.end_run()
            self._count_adds()
            if received:
                await queue.send(received)
            await self._server.add_bytes.wait_for_room()
            while len(adds.answers) > ADD_ANSWERS_MAX:
                await self._add_answers_sent.wait()
            if decoder.error is not None:
                return decoder.error
        return None

    def _count_adds(self) -> None:
        if self._is_over:
            return
        pending = self._adds.bytes_pending
        self._server.add_bytes.changed(pending - self._adds_counted)
        self._adds_counted = pending

    def _add_answers_changed(self) -> None:
        """Called with every group of replies."""
        self._count_adds()
        self._add_answers.set()

    async def _send_add_answers(self) -> None:
        """Send what the bookie has answered, a group at a time."""
        adds = self._adds
        while True:
            await self._add_answers.wait()
            self._add_answers = trio.Event()
            count = len(adds.answers)
            await self._send(adds.answers[:count])
            del adds.answers[:count]
            self._add_answers_sent.set()
            self._add_answers_sent = trio.Event()

    async def _adds_answered(self) -> None:
        """Return when the peer, which has closed its side, has the answers to its adds."""
        adds = self._adds
        while adds.bytes_pending or adds.answers:
            await self._add_answers_sent.wait()

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
