"""BookieServer: listens at a port or a path and serves a bookie to other processes.

One task reads all connections (`runtime.readers`). It decodes what has come, hands adds to the
bookie at once, and other requests to a task of their connection, which answers them in order, so
that pipelined reads of consecutive entries use the read-ahead of the first of them. Answers to adds
are sent at the end of the turn in which a journal group became durable. What the kernel does not
take then is sent by a second task of the connection. Tasks of their own answer long polls when
their condition is met.

Bounds, and the effect of each: connections (a new one is closed), waiting requests of a connection
(two chunks; its socket is not read), bytes of adds without an answer in all, and of answers of a
connection (its socket is not read), waiting reads in all (TOO_MANY_REQUESTS), concurrent reads of
storage (they wait, because the broker's own reads need storage as well), answers that a peer does
not take (closed after a time in which it took too little), bytes that all connections hold in
unfinished frames, waiting requests and such answers (some are closed: `runtime.held_bytes`), long
polls (answered at once). Damaged input closes that connection only.
"""

from __future__ import annotations

import socket
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

import structlog
import trio

from bookie.net.adds import ConnectionAdds
from bookie.net.door import OpenDoor
from bookie.net.long_polls import LongPolls
from bookie.net.pending_bytes import PendingBytes
from bookie.net.requests import RequestAnswers, is_read
from bookie.net.statistics import ServerStatistics
from bookie.net.turns import PortTurns
from protocol.bookkeeper.messages import AddRequest, ReadRequest
from protocol.bookkeeper.packets import FRAME_SIZE_MAX
from protocol.bookkeeper.request_runs import AddRun, Asked, RequestDecoder
from protocol.errors import RemoteProtocolError
from runtime.held_bytes import HeldBytes
from runtime.listening import open_listeners
from runtime.send_queue import SendQueue
from runtime.transport import Taken, TcpTransports
from runtime.unix_sockets import peer_process

if TYPE_CHECKING:
    from bookie.net.door import Door, Entered
    from bookie.net.requests import ServedBookie
    from protocol.bookkeeper.messages import Request
    from runtime.transport import Transports

    _Received = list[tuple[Request, bool]]
    """Requests of one chunk, and whether each was admitted."""

log = structlog.get_logger()

SEND_SIZE_BYTES: Final = 256 * 1024
"""Answers are collected up to this size. A peer must take as much within the send timeout."""
ANSWERED_PER_TURN: Final = 64
"""Requests that are answered without a wait before other tasks have their turn."""
V2_BYTES_PER_TURN: Final = 256 * 1024
"""Decoded before other connections have their turn."""
V3_BYTES_PER_TURN: Final = 16 * 1024
"""The same of version 3, whose requests cost much for their size."""
ANSWER_BYTES_MAX: Final = 512 * 1024
"""Answers of one connection that wait to be sent. Above it the connection is not read."""
CHUNKS_WAITING_MAX: Final = 2
"""Chunks of one connection with requests that wait for their answers."""
LONG_POLLS_MAX: Final = 16
"""Long polls of one connection. A further one is answered with the current state at once."""
ALL_LONG_POLLS_MAX: Final = 4_096
"""The same for those of all connections."""
REQUEST_SIZE_BYTES: Final = 256
"""About the memory that a decoded request takes."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class BookieServerConfig:
    """The bounds; see the module docstring."""

    frame_size_max: int = FRAME_SIZE_MAX
    batch_read_bytes_max: int = 5 * 1024 * 1024
    connections_max: int = 256
    reads_pending_max: int = 20_000
    add_bytes_pending_max: int = 64 * 1024 * 1024
    held_bytes_max: int = 256 * 1024 * 1024
    reads_at_once: int = 4
    send_timeout_seconds: float = 30.0


@final
class BookieServer:
    """See the module docstring. `bind`, then `run` in a nursery; cancelling it closes
    everything."""

    def __init__(
        self,
        bookie: ServedBookie,
        config: BookieServerConfig,
        transports: Transports | None = None,
        door: Door | None = None,
    ) -> None:
        """`transports`: TCP by default. `door`: everyone is served by default."""
        self.bookie = bookie
        self.config = config
        self.turns = PortTurns()
        self._transports: Transports = transports or TcpTransports()
        self._door: Door = door or OpenDoor()
        self.statistics = ServerStatistics()
        self.add_bytes = PendingBytes(config.add_bytes_pending_max)
        self.held = HeldBytes(max(config.held_bytes_max, 2 * config.frame_size_max))
        self.long_polls = LongPolls(bookie.progress_of, ALL_LONG_POLLS_MAX)
        self.answers = RequestAnswers(
            bookie, config.batch_read_bytes_max, config.reads_at_once, self.statistics
        )
        self._listeners: list[trio.SocketListener] = []

    def series(self) -> list[tuple[str, str, str, int]]:
        """For Prometheus: name, kind, help text, value."""
        return [*self.statistics.series(), *self._door.series()]

    @property
    def port(self) -> int:
        """The port that was bound (useful when 0 was asked for); 0: it listens at a path."""
        listening = self._listeners[0].socket
        return 0 if listening.family == socket.AF_UNIX else int(listening.getsockname()[1])

    async def bind(self, host: str, port: int) -> None:
        """Listen. Connections are accepted once `run` is running.

        Raises: OSError: the address is not available.
        """
        self.listen_on(await open_listeners(port, host))

    def listen_on(self, listeners: list[trio.SocketListener]) -> None:
        """Listen on what is bound already, perhaps for a long time."""
        self._listeners = listeners

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Accept and serve until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._transports.run)
            nursery.start_soon(self._door.run)
            nursery.start_soon(self.long_polls.run)
            await nursery.start(trio.serve_listeners, self._serve, self._listeners)
            task_status.started()

    async def _serve(self, stream: trio.SocketStream) -> None:
        peer = _peer_of(stream)
        try:
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            transport = self._transports.of(stream, peer)
            try:
                entered = await self._door.let_in(transport)
                if entered is not None:
                    await self._serve_one(entered)
            finally:
                transport.close()
        except* (trio.BrokenResourceError, OSError) as lost:
            log.debug("bookie connection lost", peer=peer, reason=str(lost.exceptions[0]))
        except* RemoteProtocolError as wrong:
            log.warning("bookie connection closed", peer=peer, reason=str(wrong.exceptions[0]))
        except* Exception as failed:
            log.error("bookie connection failed", peer=peer, exc_info=failed)

    async def _serve_one(self, entered: Entered) -> None:
        statistics = self.statistics
        if statistics.connections >= self.config.connections_max:
            statistics.connections_refused += 1
            log.warning("bookie connection refused: too many", peer=entered.transport.peer)
            return
        statistics.connections += 1
        try:
            await _Connection(self, entered).run()
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

    def __init__(self, server: BookieServer, entered: Entered) -> None:
        self._server = server
        self._transport, self._first = entered
        self._decoder = RequestDecoder(server.config.frame_size_max)
        self._adds = ConnectionAdds(server.bookie, server.statistics, self._send_add_answers)
        self._adds_counted = 0
        self._requests: deque[_Received] = deque()
        self._requests_moved = trio.Event()
        self._chunk = b""
        self._at = 0
        """Up to here the chunk has been decoded."""
        self._requests_waiting = 0
        self._admitted = 0
        self._long_polls: set[trio.CancelScope] = set()
        self._scope = trio.CancelScope()
        self.held_bytes = 0
        self.held_since = self.moved_at = trio.current_time()
        self._out = SendQueue()
        self._is_marked = False
        self._is_blocked = False
        self._blocked = trio.Event()
        self._out_moved = trio.Event()
        self._has_peer_closed = False
        self._is_over = False

    async def run(self) -> None:
        """Serve until the peer has closed and has all its answers.

        Raises: RemoteProtocolError: after all requests before it were answered.
            trio.BrokenResourceError: the peer is gone.
        """
        try:
            with self._scope:
                await self._serve()
        finally:
            self._is_over = True
            self._transport.close()
            self._server.held.holds(self, 0, trio.current_time())
            self._server.add_bytes.changed(-self._adds_counted)
            for _ in range(self._admitted):
                self._server.release()
        if self._decoder.error is not None:
            raise self._decoder.error

    async def _serve(self) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._send_rest)
            async with trio.open_nursery() as answering:
                answering.start_soon(self._answer_all, answering)
                await self._receive_all()
                for wait in self._long_polls:
                    wait.cancel()
            while self._adds.bytes_pending or self._out.pending_bytes:
                await self._out_moved.wait()
            nursery.cancel_scope.cancel()

    @property
    def reading_paused(self) -> bool:
        """See Holder."""
        return self._server.add_bytes.is_full

    def give_up(self, held_bytes: int, held_seconds: float) -> None:
        """See Holder."""
        reason = (
            f"it holds {held_bytes} bytes of an unfinished request or of answers that it does not"
            f" take, since {held_seconds:.1f} s, and all connections together hold"
            f" {self._server.held.bytes_max}"
        )
        log.warning("bookie connection closed", peer=self._transport.peer, reason=reason)
        self._server.statistics.connections_given_up += 1
        self._is_over = True
        self._scope.cancel()

    def _hold(self, *, is_finished: bool) -> None:
        """Count what is held. Finished: a frame is complete, or answers were taken."""
        held_bytes = (
            self._decoder.pending_size_bytes
            + len(self._chunk)
            - self._at
            + REQUEST_SIZE_BYTES * self._requests_waiting
            + self._out.pending_bytes
        )
        if held_bytes or self.held_bytes:
            now = self.moved_at = trio.current_time()
            if is_finished or not self.held_bytes:
                self.held_since = now
            if not self._is_over:
                self._server.held.holds(self, held_bytes, now)

    # --- in -----------------------------------------------------------------------------

    async def _receive_all(self) -> None:
        """Return when the peer has closed, or sent what is no request."""
        if self._first:
            self._take(self._first)
            self._first = b""
        while not self._has_peer_closed and self._decoder.error is None:
            await self._transport.receive_into(self._take, is_left=self._at < len(self._chunk))
            await self._server.add_bytes.wait_for_room()
            while self._out.pending_bytes > ANSWER_BYTES_MAX:
                await self._out_moved.wait()
            while len(self._requests) >= CHUNKS_WAITING_MAX:
                await self._requests_moved.wait()
        self._has_peer_closed = True
        self._tell_requests_moved()

    def _take(self, data: bytes | None) -> Taken:
        """One chunk, or the next part of a large one, in a turn."""
        if data is not None:
            self._chunk, self._at = data, 0
            if not data:
                self._has_peer_closed = True
                return Taken.STOP
        size = V2_BYTES_PER_TURN if self._decoder.is_v2 else V3_BYTES_PER_TURN
        part = self._chunk[self._at : self._at + size]
        self._at += size
        if self._at >= len(self._chunk):
            self._chunk, self._at = b"", 0
        turns = self._server.turns
        turns.begin_turn()
        try:
            self._take_requests(self._decoder.feed(part))
        finally:
            turns.end_turn()
        is_busy = (
            self._is_over
            or self._decoder.error is not None
            or self._server.add_bytes.is_full
            or self._out.pending_bytes > ANSWER_BYTES_MAX
            or len(self._requests) >= CHUNKS_WAITING_MAX
        )
        if is_busy:
            return Taken.STOP
        return Taken.IN_PART if self._chunk else Taken.WHOLE

    def _take_requests(self, asked: list[Asked]) -> None:
        """Hand adds to the bookie, and other requests to the task that answers them."""
        adds = self._adds
        received: _Received = []
        for request in asked:
            if isinstance(request, AddRun):
                adds.take(request)
            elif isinstance(request, AddRequest):
                adds.take_v3(request)
            else:
                is_admitted = self._server.admit(request)
                self._admitted += is_admitted
                received.append((request, is_admitted))
        self._count_adds()
        if received:
            self._requests_waiting += len(received)
            self._requests.append(received)
            self._tell_requests_moved()
        self._hold(is_finished=bool(asked))

    def _count_adds(self) -> None:
        if self._is_over:
            return
        pending = self._adds.bytes_pending
        self._server.add_bytes.changed(pending - self._adds_counted)
        self._adds_counted = pending

    def _tell_requests_moved(self) -> None:
        self._requests_moved.set()
        self._requests_moved = trio.Event()

    # --- answers ------------------------------------------------------------------------

    async def _answer_all(self, nursery: trio.Nursery) -> None:
        """Answer in order. Answers that are ready together are sent together."""
        while self._requests or not self._has_peer_closed:
            if not self._requests:
                await self._requests_moved.wait()
                continue
            received = self._requests.popleft()
            self._tell_requests_moved()
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
            self._requests_waiting -= len(received)
            await self._send(pending)

    async def _answer(self, request: Request, is_admitted: bool, number: int) -> list[bytes]:
        answers = self._server.answers
        if not is_admitted:
            return answers.overloaded(request)
        buffers = answers.answer_now(request)
        if buffers is None:
            buffers = await answers.answer(request)
        if number % ANSWERED_PER_TURN == 0:
            await trio.lowlevel.checkpoint()
        self._release()
        return buffers

    def _begin_long_poll(self, request: Request, nursery: trio.Nursery) -> bool:
        if self._has_peer_closed or len(self._long_polls) >= LONG_POLLS_MAX:
            return False
        server = self._server
        if not server.long_polls.has_room or not isinstance(request, ReadRequest):
            return False
        if not server.answers.is_long_poll(request):
            return False
        wait = trio.CancelScope()
        self._long_polls.add(wait)
        nursery.start_soon(self._long_poll, request, wait)
        return True

    async def _long_poll(self, request: ReadRequest, wait: trio.CancelScope) -> None:
        server = self._server
        buffers = await server.answers.answer_long_poll(request, server.long_polls, wait)
        self._long_polls.discard(wait)
        self._release()
        await self._send(buffers)

    def _release(self) -> None:
        self._admitted -= 1
        self._server.release()

    # --- out ----------------------------------------------------------------------------

    def _send_add_answers(self, answers: list[bytes]) -> None:
        """Send the answers of one group."""
        self._count_adds()
        if self._is_over:
            return
        self._out.append(answers, sum(map(len, answers)))
        if not self._is_marked:
            self._is_marked = True
            self._server.turns.send(self)

    async def _send(self, buffers: list[bytes]) -> None:
        """Return when few bytes are left to send."""
        self._out.append(buffers, sum(map(len, buffers)))
        buffers.clear()
        self.flush()
        while self._out.pending_bytes > SEND_SIZE_BYTES:
            await self._out_moved.wait()

    def flush(self) -> None:
        """Send what the kernel takes now."""
        self._is_marked = False
        if self._is_over or self._is_blocked:
            return
        try:
            self._out.send_to(self._transport)
        except trio.BrokenResourceError:
            self._is_blocked = True  # the task that sends the rest finds out, and ends all
            self._blocked.set()
            return
        if self._out.pending_bytes:
            self._is_blocked = True
            self._blocked.set()
        self._hold(is_finished=False)
        self._tell_out_moved()

    async def _send_rest(self) -> None:
        """Raises: trio.BrokenResourceError: the peer is gone, or takes nothing."""
        seconds = self._server.config.send_timeout_seconds
        while True:
            await self._blocked.wait()
            self._blocked = trio.Event()
            while self._out.pending_bytes:
                with trio.move_on_after(seconds) as scope:
                    await self._send_some()
                if scope.cancelled_caught:
                    log.warning(
                        "bookie connection closed: it takes no answers", peer=self._transport.peer
                    )
                    raise trio.BrokenResourceError("the peer takes no answers")
            self._is_blocked = False
            self._tell_out_moved()

    async def _send_some(self) -> None:
        """As much as a peer must take in the send timeout."""
        left = SEND_SIZE_BYTES
        while left > 0 and self._out.pending_bytes:
            taken = await self._transport.send(self._out.batch())
            self._out.took(taken)
            left -= taken
            self._hold(is_finished=True)
            self._tell_out_moved()

    def _tell_out_moved(self) -> None:
        self._out_moved.set()
        self._out_moved = trio.Event()


def _peer_of(stream: trio.SocketStream) -> str:
    try:
        if stream.socket.family == socket.AF_UNIX:
            return f"process:{peer_process(stream.socket)}"
        host, port, *_ = stream.socket.getpeername()
    except OSError:
        return "unknown"
    return f"{host}:{port}"
