"""One connection to a bookie: adds and reads out, answers in, and what happens when it ends.

The connection is opened by the first request. Requests of a turn are collected and leave with one
system call at its end (`flush`). When the connection ends, for whatever reason, everything without
an answer fails at once. Then requests are refused for a time (back-off), and the next request after
it opens a new connection.

An add without an answer for the add timeout ends the connection: its late answer could not be
distinguished from answers to later adds of the same entry. A read that takes too long fails alone.
Its answer may still come, so its place in the order is kept. If reads wait and nothing at all is
answered for the read timeout, the connection ends, whether or not anyone still wants the answers.

Timeouts count the time in which this process ran. While it is stopped or gets no CPU, answers wait
in the kernel, and the bookie is not to blame.

Damaged answers, and answers to requests that were not sent, end the connection.
"""

from __future__ import annotations

from collections import deque
from enum import Enum
from typing import TYPE_CHECKING, Final, final

import structlog
import trio

from bookie.api import BookieError, Status
from ledgers.remote.answers import AddRun, AnswerDecoder, LacWritten
from ledgers.remote.pending_adds import PendingAdds
from protocol.bookkeeper.messages import BatchReadResponse
from protocol.errors import RemoteProtocolError
from runtime.send_queue import SendQueue
from runtime.transport import Taken

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bookie.api import AddSink, Turn
    from ledgers.remote.answers import Answer, Decoder
    from ledgers.remote.config import RemoteConfig
    from ledgers.remote.network import Connect
    from runtime.transport import Transport

_log = structlog.get_logger()

TICKS_PER_TIMEOUT: Final = 16
"""The age of an add is known to this part of the add timeout; an add may fail by so much early."""

ReadKey = tuple[int, int] | int
"""(ledger id, entry id) of a single read; request id of a batch read, or of what else is answered
by its id."""


class _State(Enum):
    IDLE = "idle"
    """No connection; the next request opens one."""
    CONNECTING = "connecting"
    OPEN = "open"
    BACK_OFF = "back-off"


@final
class WaitingRead:
    """A read without an answer."""

    __slots__ = ("answered", "bodies", "failure", "status")

    def __init__(self) -> None:
        self.answered = trio.Event()
        self.status = int(Status.OK)
        self.bodies: Sequence[bytes] = ()
        self.failure = ""

    def fail(self, status: int, reason: str) -> None:
        """It has no answer and gets none."""
        self.status = status
        self.failure = reason
        self.answered.set()


@final
class Channel:
    """See the module docstring. The owner runs `run` and calls `check_timeout` now and then."""

    def __init__(
        self,
        name: str,
        connect: Connect,
        address: Callable[[], tuple[str, int]],
        config: RemoteConfig,
        turn: Turn,
        on_answered: Callable[[int], None],
        on_failure: Callable[[str], None],
        decoder: Callable[[int], Decoder] = AnswerDecoder,
    ) -> None:
        """`on_answered` is called with the bytes of adds that are not pending any more,
        `on_failure` of every lost connection. `decoder`: of the protocol that the requests speak,
        by the largest answer."""
        self._name = name
        self._connect = connect
        self._address = address
        self._config = config
        self._turn = turn
        self._on_answered = on_answered
        self._on_failure = on_failure
        self._new_decoder = decoder
        self._decoder: Decoder = decoder(config.frame_size_max)
        self._state = _State.IDLE
        self._connection: Transport | None = None
        self._out = SendQueue()
        self._adds = PendingAdds()
        self._tick = 0.0
        """For how long this process has run, as of the last check for timeouts."""
        self._silent_since = 0.0
        """When something was answered, or a read was sent while none waited."""
        self._reads: dict[ReadKey, deque[WaitingRead]] = {}
        self._reads_pending = 0
        self._wanted = trio.Event()
        self._blocked = trio.Event()
        self._is_blocked = False
        self._back_off_s = config.back_off_first_s
        self._reason = ""

    @property
    def is_refusing(self) -> str:
        """Why requests fail now; empty: they are sent."""
        return self._reason if self._state is _State.BACK_OFF else ""

    @property
    def is_connected(self) -> bool:
        """There is a connection now."""
        return self._state is _State.OPEN

    def put_adds(
        self,
        ledger_id: int,
        first: int,
        count: int,
        buffers: Sequence[bytes],
        size_bytes: int,
        sink: AddSink,
    ) -> bool:
        """Send a run at the next `flush`. False: refused, the sink was not kept."""
        if not self._adds.add(ledger_id, first, count, sink, size_bytes, self._tick):
            return False
        self._out.append(buffers, size_bytes)
        return True

    async def read(self, key: ReadKey, request: bytes) -> Sequence[bytes]:
        """Send a read, or another request that is answered by itself. Returns the bodies of the
        answer.

        Raises: BookieError: refused, not there, no answer in time, or the connection ended.
        """
        if self._state is _State.BACK_OFF:
            raise BookieError(Status.UNREACHABLE, self._reason)
        if self._reads_pending >= self._config.reads_in_flight_max:
            raise BookieError(Status.TOO_MANY_REQUESTS, f"{self._reads_pending} reads wait")
        waiting = WaitingRead()
        self._reads.setdefault(key, deque()).append(waiting)
        if not self._reads_pending:
            self._silent_since = self._tick
        self._reads_pending += 1
        self._out.append((request,), len(request))
        self.flush()
        seconds = self._config.read_timeout_s
        until = self._tick + seconds
        while self._tick < until and not waiting.answered.is_set():
            with trio.move_on_after(max(until - self._tick, seconds / TICKS_PER_TIMEOUT)):
                await waiting.answered.wait()
        if not waiting.answered.is_set():
            reason = f"no answer in {seconds:g} s"
            self._on_failure(reason)
            raise BookieError(Status.TIMED_OUT, reason)
        if waiting.status:
            raise BookieError(Status(waiting.status), waiting.failure)
        return waiting.bodies

    def flush(self) -> None:
        """Send what was put, or as much as the kernel takes. The rest follows by itself."""
        if self._state is _State.IDLE:
            self._wanted.set()
        if self._connection is None or self._is_blocked:
            return
        try:
            self._out.send_to(self._connection)
        except trio.BrokenResourceError:
            self._connection.close()  # the receiver notices, and has the reason
            return
        if self._out.pending_bytes:
            self._is_blocked = True
            self._blocked.set()

    def check_timeout(self, elapsed_s: float) -> None:
        """This process has run so much longer: end the connection if an add, or a read without any
        answer to others, has waited too long. Called TICKS_PER_TIMEOUT times in the shorter
        timeout."""
        self._tick += elapsed_s
        now = self._tick
        since = self._adds.oldest_since()
        seconds = self._config.add_timeout_s
        if since is not None and now - since >= seconds:
            self._lose(f"no answer to an add in {seconds:g} s", Status.TIMED_OUT)
        seconds = self._config.read_timeout_s
        if self._reads_pending and now - self._silent_since >= seconds:
            self._lose(f"no answer in {seconds:g} s", Status.TIMED_OUT)

    async def run(self) -> None:
        """Open connections when they are wanted, until cancelled."""
        try:
            while True:
                await self._wanted.wait()
                self._wanted = trio.Event()
                self._state = _State.CONNECTING
                await self._serve_one_connection()
                self._state = _State.BACK_OFF
                await trio.sleep(self._back_off_s)
                self._back_off_s = min(self._config.back_off_max_s, 2 * self._back_off_s)
                self._state = _State.IDLE
        finally:
            self._reason = "the client was closed"
            self._state = _State.BACK_OFF
            self._fail_pending(Status.UNREACHABLE)

    async def _serve_one_connection(self) -> None:
        self._reason = ""
        try:
            with trio.fail_after(self._config.connect_timeout_s):
                connection = await self._connect(*self._address())
        except (OSError, UnicodeError, trio.TooSlowError) as error:
            self._reason = str(error) or "no connection in time"
        else:
            if self._reason:  # an add was too old before the connection was there
                connection.close()
            else:
                await self._serve(connection)
        self._state = _State.BACK_OFF
        self._on_failure(self._reason)
        self._fail_pending(Status.UNREACHABLE)

    async def _serve(self, connection: Transport) -> None:
        self._connection = connection
        self._state = _State.OPEN
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._send_rest, connection)
                self.flush()
                await self._receive(connection)
                nursery.cancel_scope.cancel()
        finally:
            self._connection = None
            self._is_blocked = False
            self._blocked = trio.Event()
            connection.close()

    async def _receive(self, connection: Transport) -> None:
        """Take answers until the connection ends. Sets the reason."""
        self._decoder = self._new_decoder(self._config.frame_size_max)
        reason = ""
        try:
            await connection.receive_into(self._take_data)
            reason = "the bookie closed the connection"
        except trio.BrokenResourceError as error:
            reason = str(error)
        except RemoteProtocolError as error:
            _log.error("bookie_connection_closed", bookie=self._name, reason=str(error))
            reason = str(error)
        self._reason = self._reason or reason

    def _take_data(self, data: bytes | None) -> Taken:
        """Raises: RemoteProtocolError."""
        if not data:
            return Taken.STOP
        decoder = self._decoder
        answers = decoder.feed(data)
        if answers:
            self._take(answers)
            self._back_off_s = self._config.back_off_first_s
        if decoder.error is not None:
            raise decoder.error
        return Taken.WHOLE

    async def _send_rest(self, connection: Transport) -> None:
        while True:
            await self._blocked.wait()
            self._blocked = trio.Event()
            try:
                while self._out.pending_bytes:
                    self._out.took(await connection.send(self._out.batch()))
            except trio.BrokenResourceError:
                connection.close()
                return
            self._is_blocked = False

    def _take(self, answers: list[Answer]) -> None:
        """One turn. Raises: RemoteProtocolError: after the answers before it were delivered."""
        touched: dict[int, AddSink] = {}
        pending_bytes = self._adds.size_bytes
        self._silent_since = self._tick
        self._turn.begin_turn()
        try:
            for answer in answers:
                if isinstance(answer, AddRun):
                    status, ledger_id, first, count = answer
                    for sink, start, size in self._adds.answered(ledger_id, first, count):
                        touched[id(sink)] = sink
                        self._tell(sink, status, ledger_id, start, size)
                elif isinstance(answer, BatchReadResponse):
                    self._answer_read(answer.request_id, answer.status, answer.bodies)
                elif isinstance(answer, LacWritten):
                    self._answer_read(answer.txn_id, answer.status, ())
                else:
                    key = (answer.ledger_id, answer.entry_id)
                    self._answer_read(key, answer.status, (answer.body,))
        finally:
            self._on_answered(pending_bytes - self._adds.size_bytes)
            self._end_turn(touched)

    def _tell(self, sink: AddSink, status: int, ledger_id: int, first: int, count: int) -> None:
        try:
            sink.on_add_replies(status, ledger_id, first, count)
        except Exception as error:
            _log.error("answer_not_taken", bookie=self._name, ledger_id=ledger_id, exc_info=error)

    def _end_turn(self, touched: dict[int, AddSink]) -> None:
        for sink in touched.values():
            try:
                sink.on_replies_end()
            except Exception as error:
                _log.error("answers_not_taken", bookie=self._name, exc_info=error)
        try:
            self._turn.end_turn()
        except Exception as error:
            _log.error("turn_failed", bookie=self._name, exc_info=error)

    def _answer_read(self, key: ReadKey, status: int, bodies: Sequence[bytes]) -> None:
        queue = self._reads.get(key)
        if not queue:
            raise RemoteProtocolError(f"the answer to request {key}, which was not sent")
        waiting = queue.popleft()
        if not queue:
            del self._reads[key]
        self._reads_pending -= 1
        waiting.status = status
        waiting.failure = f"answer to the request {key}"
        waiting.bodies = bodies
        waiting.answered.set()

    def _lose(self, reason: str, status: Status) -> None:
        """End the connection. Pending requests fail with this status."""
        self._reason = self._reason or reason
        if self._connection is not None:
            self._connection.close()
        self._fail_pending(status)

    def _fail_pending(self, status: Status) -> None:
        self._out.clear()
        reads, self._reads = self._reads, {}
        self._reads_pending = 0
        for queue in reads.values():
            for waiting in queue:
                waiting.fail(status, self._reason)
        touched: dict[int, AddSink] = {}
        self._turn.begin_turn()
        self._on_answered(self._adds.size_bytes)
        try:
            for ledger_id, run in self._adds.take_all():
                touched[id(run.sink)] = run.sink
                self._tell(run.sink, status, ledger_id, run.first, run.end - run.first)
        finally:
            self._end_turn(touched)
