"""The client's end of a connection to a metadata store in another process: its requests under way.

An answer prolongs the session, counted from when its request was sent. After the session is over by
this process's clock, or by a message of the server, answers no longer count.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import structlog
import trio

from metadata.socket_frames import NOTICE, Frame, FrameError, FrameReader, Kind, encode_frame
from metadata.store import SessionState

if TYPE_CHECKING:
    from collections.abc import Callable

    from metadata.session_times import Lease

log = structlog.get_logger()

_CHUNK_BYTES: Final = 256 * 1024
_ANSWER_BYTES_MAX: Final = 128 * 1024 * 1024
_REQUESTS_MAX: Final = 256
"""Under way at once. Further ones wait here, so that a ping overtakes them, however many there
are."""
_BREAKS: Final = (trio.BrokenResourceError, trio.ClosedResourceError)


class ConnectionLost(Exception):
    """A request has no answer, and may have taken effect."""


@final
class Connection:
    """See the module docstring. Run `write_all` and `read_all` until it fails."""

    def __init__(
        self,
        stream: trio.SocketStream,
        on_change: Callable[[str], None],
        on_over: Callable[[], None],
    ) -> None:
        """`on_over` is called when the server says that the session is over: of its own accord, or
        as the answer to a request of a session that has begun."""
        self._stream = stream
        self._on_change = on_change
        self._on_over = on_over
        self.lease: Lease | None = None
        """Answers prolong it."""
        self._number = NOTICE
        self._room = trio.Semaphore(_REQUESTS_MAX)
        self._pending: dict[int, _Call | None] = {}
        """None: no caller waits for the answer."""
        self._unsent: list[bytes] = []
        self._wake = trio.Event()
        self._is_failed = False

    @property
    def is_failed(self) -> bool:
        """Nothing is answered any more."""
        return self._is_failed

    def post(self, kind: Kind, path: str) -> None:
        """Send a request whose answer is of no interest. A refusal ends the connection."""
        if not self._is_failed:
            self._send(None, kind, path, b"", 0)

    def ping(self) -> None:
        """Ask for a sign of life, which prolongs the lease."""
        if not self._is_failed:
            call = _Call(trio.current_time())
            self._send(call, Kind.PING, "", b"", 0)

    async def call(self, kind: Kind, path: str = "", value: bytes = b"", version: int = 0) -> Frame:
        """The answer. Raises: ConnectionLost."""
        try:
            self._room.acquire_nowait()  # where there is room it costs no turn of the event loop
        except trio.WouldBlock:
            await self._room.acquire()
        try:
            return await self._call(kind, path, value, version)
        finally:
            self._room.release()

    async def _call(self, kind: Kind, path: str, value: bytes, version: int) -> Frame:
        """Raises: ConnectionLost."""
        if self._is_failed:
            raise ConnectionLost
        call = _Call(trio.current_time())
        number = self._send(call, kind, path, value, version)
        try:
            await call.done.wait()
        finally:
            if call.answer is None and number in self._pending:
                self._pending[number] = None
        if call.answer is None:
            raise ConnectionLost
        return call.answer

    def _send(self, call: _Call | None, kind: Kind, path: str, value: bytes, version: int) -> int:
        number = self._number = self._number % (2**32 - 1) + 1
        self._pending[number] = call
        self._unsent.append(encode_frame(Frame(number, kind, path, value, version)))
        self._wake.set()
        return number

    def fail(self) -> None:
        """Nothing is answered any more."""
        if self._is_failed:
            return
        self._is_failed = True
        pending, self._pending = self._pending, {}
        for call in pending.values():
            if call is not None:
                call.done.set()
        self._wake.set()
        trio.lowlevel.notify_closing(self._stream.socket)

    async def write_all(self, connection: trio.CancelScope) -> None:
        """Send until the connection fails, which ends it."""
        try:
            while not self._is_failed:
                data = b"".join(self._unsent)
                self._unsent.clear()
                if data:
                    await self._stream.send_all(data)
                else:
                    self._wake = trio.Event()
                    await self._wake.wait()
        except _BREAKS:
            pass
        connection.cancel()

    async def read_all(self, connection: trio.CancelScope) -> None:
        """Hand out answers and notices until the connection fails, which ends it."""
        reader = FrameReader(_ANSWER_BYTES_MAX)
        try:
            while data := await self._stream.receive_some(_CHUNK_BYTES):
                for frame in reader.feed(data):
                    self._take(frame)
        except _BREAKS:
            pass
        except FrameError as error:
            log.warning("the metadata store broke the protocol", reason=str(error))
        self.fail()
        connection.cancel()

    def _take(self, frame: Frame) -> None:
        if frame.kind is Kind.CHANGED:
            self._on_change(frame.path)
        elif frame.kind is Kind.REFUSED:
            reason = frame.value.decode(errors="replace")
            log.warning("the metadata store refuses this process", reason=reason)
        elif frame.kind is Kind.SESSION_OVER and (self.lease is not None or not frame.number):
            self._on_over()
            self.fail()
        elif self.lease is None:
            self._answer(frame)
        elif self.lease.state(trio.current_time(), is_connected=True) is SessionState.LOST:
            self.fail()
        else:
            self._answer(frame)

    def _answer(self, frame: Frame) -> None:
        call = self._pending.pop(frame.number, None)
        if call is not None:
            if self.lease is not None:
                self.lease.answered(call.sent_at)
            call.answer = frame
            call.done.set()


@final
class _Call:
    """One request under way."""

    __slots__ = ("answer", "done", "sent_at")

    def __init__(self, sent_at: float) -> None:
        self.sent_at = sent_at
        self.answer: Frame | None = None
        self.done = trio.Event()
