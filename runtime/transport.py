"""Transports: the network seam of brokers and bookies.

A transport moves the bytes of one connection and knows the address of its peer. It keeps no queue.
Sending is tried synchronously first (`send_nowait`): at the end of a turn of the event loop the
kernel nearly always takes everything, and a task switch costs more than the system call.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Protocol, final

import trio

from runtime.readers import Readers
from runtime.watchdog import callback_name

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence

RECEIVE_SIZE_BYTES_MIN = 64 * 1024
RECEIVE_SIZE_BYTES_MAX = 1024 * 1024
PATIENCE_SECONDS = 0.01
"""How long what is in no hurry waits. A task waits as long beside a fan-out to 20,000 consumers."""


class Taken(Enum):
    """The outcome of a `take`, and how the receiver continues."""

    WHOLE = "whole"
    """Handled: the next receive may follow."""
    UNHURRIED = "unhurried"
    """Handled, and what comes next may wait a moment to be read together."""
    IN_PART = "in part"
    """The rest needs a later turn: call `take(None)` before the next receive."""
    STOP = "stop"
    """Receive nothing more for now."""


Take = Callable[[bytes | None], Taken]
"""Called with each piece received. None means: continue with the rest of the last piece."""


class Strip(Protocol):
    """Bytes in order that send themselves to a socket, because they are too many buffers."""

    def send(self, descriptor: int, bytes_max: int) -> int:
        """Send at most `bytes_max` bytes of what is left. Returns the number of bytes taken, of
        which the strip is told by its owner. Raises: as `socket.send` does."""

    def buffers(self, bytes_max: int) -> list[bytes | memoryview]:
        """What `send` would send."""


class Transport(Protocol):
    """One connection."""

    peer: str
    """`address:port` of the other side, as statistics print it."""

    @property
    def peer_certificate(self) -> bytes | None:
        """The certificate by which the other side has proved who it is (DER), verified; None: it
        has shown none, or not yet."""

    def send_nowait(self, buffers: Sequence[bytes | memoryview]) -> int:
        """Returns the number of bytes taken; 0 means not now. The next call begins with the bytes
        that were not taken.

        Raises: trio.BrokenResourceError: the other side is gone.
        """

    async def send(self, buffers: Sequence[bytes | memoryview]) -> int:
        """Like `send_nowait`, but waits until at least one byte is taken."""

    def send_strip_nowait(self, strip: Strip, bytes_max: int) -> int:
        """Like `send_nowait` with at most so many bytes of a strip."""

    async def send_strip(self, strip: Strip, bytes_max: int) -> int:
        """Like `send_strip_nowait`, but waits until at least one byte is taken."""

    def call_when_writable(self, call: Callable[[], object], *, is_full: bool) -> bool:
        """Call once, in the loop, when more bytes are taken than before; unless `is_full` (the
        last bytes given were not all taken), in a later turn. The call never raises, and is not
        made after `close`. Returns False if this transport has to be waited for by a task
        (`send`).

        Raises: trio.BrokenResourceError.
        """

    async def receive(self) -> bytes:
        """The next bytes; empty when the other side has closed.

        Raises: trio.BrokenResourceError.
        """

    async def receive_into(self, take: Take, *, is_left: bool = False) -> None:
        """Pass each received piece to `take` until it returns STOP. An empty piece: the other side
        has closed. `is_left`: `take` starts with the rest it had when it stopped.

        Raises: trio.BrokenResourceError; whatever `take` raises.
        """

    async def finish_sending(self) -> None:
        """Tell the other side that no more bytes follow. Receiving continues."""

    def close(self) -> None:
        """Close at once and drop unsent output. Wakes a blocked `send` and `receive`."""

    def use_share(self, share: str) -> None:
        """The user of the connection: its receives take turns with those of other shares. At first
        it is the address of the peer."""


def share_of(peer: str) -> str:
    """The share of a connection at first: all that come from one host take turns as one."""
    return peer.rpartition(":")[0]


@final
class SocketTransport:
    """A connection of TCP or of a Unix socket. The receive size follows the traffic: 64 KB for
    quiet ones, up to 1 MB."""

    __slots__ = (
        "_has_waited",
        "_may_have_more",
        "_readers",
        "_receive_size_bytes",
        "_receive_size_bytes_max",
        "_receiving",
        "_share",
        "_socket",
        "peer",
    )

    peer_certificate = None
    """Any process that can reach the port can connect."""

    def __init__(
        self,
        connection: socket.socket,
        peer: str,
        readers: Readers,
        receive_size_bytes_max: int = RECEIVE_SIZE_BYTES_MAX,
    ) -> None:
        # A plain socket, not trio's wrapper: sending must be possible without a checkpoint.
        self._socket = connection
        self._socket.setblocking(False)
        if connection.family != socket.AF_UNIX:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._receive_size_bytes = min(RECEIVE_SIZE_BYTES_MIN, receive_size_bytes_max)
        self._receive_size_bytes_max = receive_size_bytes_max
        self._readers = readers
        self._receiving: _Receiving | None = None
        self._has_waited = False
        """A task has waited for the socket by itself: trio may still know the descriptor."""
        self._may_have_more = False
        """The last receive did not empty the socket."""
        self._share = share_of(peer)
        self.peer = peer

    def send_nowait(self, buffers: Sequence[bytes | memoryview]) -> int:
        """Returns the number of bytes taken; 0 means not now."""
        try:
            if len(buffers) == 1:
                return self._socket.send(buffers[0])
            return self._socket.sendmsg(buffers)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError as error:
            raise trio.BrokenResourceError(str(error)) from error

    async def send(self, buffers: Sequence[bytes | memoryview]) -> int:
        """Like `send_nowait`, but waits until at least one byte is taken."""
        while True:
            await self._wait(trio.lowlevel.wait_writable)
            taken = self.send_nowait(buffers)
            if taken:
                return taken

    def send_strip_nowait(self, strip: Strip, bytes_max: int) -> int:
        """See Transport."""
        try:
            return strip.send(self._socket.fileno(), bytes_max)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError as error:
            raise trio.BrokenResourceError(str(error)) from error

    async def send_strip(self, strip: Strip, bytes_max: int) -> int:
        """See Transport."""
        while True:
            await self._wait(trio.lowlevel.wait_writable)
            taken = self.send_strip_nowait(strip, bytes_max)
            if taken:
                return taken

    def call_when_writable(self, call: Callable[[], object], *, is_full: bool) -> bool:
        """See Transport."""
        descriptor = self._socket.fileno()
        if descriptor == -1:
            raise trio.BrokenResourceError("connection closed")
        try:
            self._readers.call_when_writable(descriptor, call, is_full=is_full)
        except OSError as error:
            raise trio.BrokenResourceError(str(error)) from error
        return True

    async def receive(self) -> bytes:
        """The next bytes; empty when the other side has closed."""
        while True:
            await self._wait(trio.lowlevel.wait_readable)
            data = self._receive_nowait()
            if data is not None:
                return data

    def _receive_nowait(self) -> bytes | None:
        """The bytes available; None: none. Raises: trio.BrokenResourceError."""
        size = min(self._receive_size_bytes, self._readers.chunk_bytes_max)
        try:
            data = self._socket.recv(size)
        except (BlockingIOError, InterruptedError):
            return None
        except OSError as error:
            raise trio.BrokenResourceError(str(error)) from error
        self._may_have_more = len(data) == size
        if self._may_have_more:
            self._receive_size_bytes = min(size * 2, self._receive_size_bytes_max)
        elif len(data) < size // 8:
            smallest = min(RECEIVE_SIZE_BYTES_MIN, self._receive_size_bytes_max)
            self._receive_size_bytes = max(size // 2, smallest)
        return data

    async def receive_into(self, take: Take, *, is_left: bool = False) -> None:
        """Pass each received piece to `take` until it returns STOP, without a task switch each
        time."""
        descriptor = self._socket.fileno()
        if descriptor == -1:
            raise trio.BrokenResourceError("connection closed")
        receiving = self._receiving = _Receiving(take, is_left)
        try:
            self._readers.add(descriptor, self._on_readable, self._share)
            if is_left:
                self._readers.call_soon(descriptor)
            await receiving.ended.wait()
        except OSError as error:
            raise trio.BrokenResourceError(str(error)) from error
        finally:
            self._readers.remove(descriptor, self._on_readable)
            self._receiving = None
        receiving.raise_error()

    def _on_readable(self) -> int:
        """Take the available bytes, or continue with the rest. Returns the number of bytes."""
        receiving = self._receiving
        if receiving is None or receiving.ended.is_set():
            return 0
        data = None
        try:
            if receiving.is_left:
                self._may_have_more = True  # what came meanwhile is not reported again
            else:
                data = self._receive_nowait()
                if data is None:
                    return 0
                receiving.size_bytes = len(data)
            taken = receiving.take(data)
            receiving.is_left = taken is Taken.IN_PART
            if taken is Taken.STOP:
                self._end_receiving(None)
            elif (receiving.is_left or self._may_have_more) and not receiving.ended.is_set():
                self._readers.call_again(self._socket.fileno())
            elif taken is Taken.UNHURRIED:
                self._readers.be_patient(self._socket.fileno(), PATIENCE_SECONDS)
        except Exception as error:  # for the task that waits
            self._end_receiving(error)
        return receiving.size_bytes

    def what_ran(self) -> str:
        """For the watchdog of the loop: what its receiver did with the last bytes."""
        receiving = self._receiving
        return type(self).__name__ if receiving is None else callback_name(receiving.take)

    def _end_receiving(self, error: Exception | None) -> None:
        """Wake the caller of `receive_into`. Nothing is read until it calls again."""
        receiving = self._receiving
        if receiving is not None and not receiving.ended.is_set():
            self._readers.remove(self._socket.fileno(), self._on_readable)
            receiving.error = error
            receiving.ended.set()

    async def finish_sending(self) -> None:
        """Send a FIN. Receiving continues."""
        try:
            self._socket.shutdown(socket.SHUT_WR)
        except OSError as error:
            raise trio.BrokenResourceError(str(error)) from error
        await trio.lowlevel.checkpoint()

    async def _wait(self, wait: Callable[[socket.socket], Awaitable[None]]) -> None:
        # A closed socket must not reach trio. trio would register its number, -1, as one that the
        # task waits for, and would report it as busy to every later caller with a closed socket.
        if self._socket.fileno() == -1:
            raise trio.BrokenResourceError("connection closed")
        self._has_waited = True
        try:
            await wait(self._socket)
        except (OSError, trio.ClosedResourceError) as error:
            raise trio.BrokenResourceError("connection closed") from error

    def close(self) -> None:
        """Close at once. Wakes a blocked `send` and `receive`."""
        if self._socket.fileno() != -1:
            self._readers.remove_writer(self._socket.fileno())
            self._end_receiving(trio.BrokenResourceError("connection closed"))
            if self._has_waited:
                trio.lowlevel.notify_closing(self._socket)
            self._socket.close()

    def use_share(self, share: str) -> None:
        """See Transport."""
        if share != self._share:
            self._share = share
            self._readers.use_share(self._socket.fileno(), self._on_readable, share)


@final
class _Receiving:
    """One call of `receive_into`."""

    __slots__ = ("ended", "error", "is_left", "size_bytes", "take")

    def __init__(self, take: Take, is_left: bool) -> None:
        self.take = take
        self.is_left = is_left
        self.size_bytes = 0
        self.ended = trio.Event()
        self.error: Exception | None = None

    def raise_error(self) -> None:
        """Raise what has ended it, if that was an error."""
        failure, self.error = self.error, None
        if failure is not None:
            try:
                raise failure
            finally:
                del failure  # its traceback refers to this frame, so both would stay in memory


@final
class StreamTransport:
    """A connection over any trio stream: memory in tests and simulation."""

    __slots__ = ("_closed", "_scope", "_stream", "peer")

    peer_certificate = None
    """Streams of TLS are no transports: see `security.tls_transport`."""

    def __init__(self, stream: trio.abc.Stream, peer: str) -> None:
        self._stream = stream
        self._closed = False
        self._scope = trio.CancelScope()
        self.peer = peer

    def send_nowait(self, buffers: Sequence[bytes | memoryview]) -> int:
        """Always 0: a stream can only be sent to by waiting."""
        del buffers
        if self._closed:
            raise trio.BrokenResourceError("connection closed")
        return 0

    async def send(self, buffers: Sequence[bytes | memoryview]) -> int:
        """Send all of it."""
        data = b"".join(buffers)
        try:
            await self._stream.send_all(data)
        except trio.ClosedResourceError as error:
            raise trio.BrokenResourceError("connection closed") from error
        return len(data)

    def send_strip_nowait(self, strip: Strip, bytes_max: int) -> int:
        """See `send_nowait`."""
        del strip, bytes_max
        return self.send_nowait(())

    async def send_strip(self, strip: Strip, bytes_max: int) -> int:
        """See Transport."""
        return await self.send(strip.buffers(bytes_max))

    def call_when_writable(self, call: Callable[[], object], *, is_full: bool) -> bool:
        """A stream has to be waited for."""
        del call, is_full
        return False

    async def receive(self) -> bytes:
        """The next bytes; empty when the other side has closed."""
        if self._closed:
            raise trio.BrokenResourceError("connection closed")
        self._scope = trio.CancelScope()
        with self._scope:
            try:
                return bytes(await self._stream.receive_some(RECEIVE_SIZE_BYTES_MIN))
            except trio.ClosedResourceError as error:
                raise trio.BrokenResourceError("connection closed") from error
        raise trio.BrokenResourceError("connection closed")

    async def receive_into(self, take: Take, *, is_left: bool = False) -> None:
        """Pass each received piece to `take` until it returns STOP. The rest of a piece is handled
        in turns between other tasks."""
        taken = Taken.IN_PART if is_left else Taken.WHOLE
        while taken is not Taken.STOP:
            if taken is Taken.IN_PART:
                await trio.lowlevel.checkpoint()
                taken = take(None)
            else:
                taken = take(await self.receive())

    async def finish_sending(self) -> None:
        """Half-close if this kind of stream supports it. Receiving continues."""
        if isinstance(self._stream, trio.abc.HalfCloseableStream):
            await self._stream.send_eof()

    def close(self) -> None:
        """Stop receiving. The nursery of the owner closes the stream itself with `aclose`."""
        self._closed = True
        self._scope.cancel()

    async def aclose(self) -> None:
        """Close the stream forcefully. The session has nothing more to send."""
        await trio.aclose_forcefully(self._stream)

    def use_share(self, share: str) -> None:
        """Each has a task of its own."""


class Transports(Protocol):
    """Makes the transports of a server whose connections are accepted as streams."""

    async def run(self) -> None:
        """Read for all of them, until cancelled."""

    def of(self, stream: trio.SocketStream, peer: str) -> Transport:
        """The transport of an accepted connection."""


@final
class TcpTransports:
    """The transports of TCP and Unix sockets, which one `Readers` calls."""

    def __init__(self) -> None:
        self.readers = Readers()

    async def run(self) -> None:
        """Read until cancelled."""
        await self.readers.run()

    def of(self, stream: trio.SocketStream, peer: str) -> Transport:
        """Takes the socket out of the stream."""
        taken = stream.socket
        family, kind, protocol = taken.family, taken.type, taken.proto
        plain = socket.socket(family, kind, protocol, fileno=taken.detach())
        return SocketTransport(plain, peer, self.readers)


@final
class StreamTransports:
    """The transports of streams of any kind (simulation): each is read by its own task."""

    async def run(self) -> None:
        """Nothing is shared."""
        await trio.sleep_forever()

    def of(self, stream: trio.abc.Stream, peer: str) -> Transport:
        """The stream is closed by its owner."""
        return StreamTransport(stream, peer)
