"""A transport in memory that takes as many bytes as a test allows, and a client for its other
side."""

from __future__ import annotations

import ssl
from collections import deque
from contextlib import suppress
from itertools import chain, repeat
from typing import TYPE_CHECKING, final

import trio

from runtime.transport import Taken

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from runtime.transport import Strip, Take

_EVERYTHING = 1 << 60


@final
class MemoryTransport:
    """A Transport. `sent` is what the other side can read."""

    peer = "memory:1"
    peer_certificate = None

    def __init__(self, takes: Iterable[int] = ()) -> None:
        """How many bytes each call takes; afterwards everything."""
        self.takes = chain(takes, repeat(_EVERYTHING))
        self.sent = bytearray()
        self.is_finished = False
        self.is_closed = False
        self._pieces: deque[bytes] = deque()
        self._news = trio.Event()

    def arrive(self, *pieces: bytes) -> None:
        """From the other side; an empty piece: it has closed."""
        self._pieces += pieces
        self._news.set()

    def send_nowait(self, buffers: Sequence[bytes | memoryview]) -> int:
        """See Transport."""
        if self.is_closed:
            raise trio.BrokenResourceError("connection closed")
        data = b"".join(buffers)[: next(self.takes)]
        self.sent += data
        return len(data)

    def use_share(self, share: str) -> None:
        """See Transport."""

    async def send(self, buffers: Sequence[bytes | memoryview]) -> int:
        """See Transport."""
        while True:
            await trio.lowlevel.checkpoint()
            if taken := self.send_nowait(buffers):
                return taken

    def send_strip_nowait(self, strip: Strip, bytes_max: int) -> int:
        """See Transport."""
        return self.send_nowait(strip.buffers(bytes_max))

    async def send_strip(self, strip: Strip, bytes_max: int) -> int:
        """See Transport."""
        return await self.send(strip.buffers(bytes_max))

    def call_when_writable(self, call: Callable[[], object], *, is_full: bool) -> bool:
        """See Transport."""
        del call, is_full
        return False

    async def receive(self) -> bytes:
        """See Transport."""
        await trio.lowlevel.checkpoint()
        while not self._pieces:
            if self.is_closed:
                raise trio.BrokenResourceError("connection closed")
            self._news = trio.Event()
            await self._news.wait()
        return self._pieces.popleft() if self._pieces[0] else b""

    async def receive_into(self, take: Take, *, is_left: bool = False) -> None:
        """See Transport."""
        taken = Taken.IN_PART if is_left else Taken.WHOLE
        while taken is not Taken.STOP:
            if taken is Taken.IN_PART:
                await trio.lowlevel.checkpoint()
                taken = take(None)
            else:
                taken = take(await self.receive())

    async def finish_sending(self) -> None:
        """See Transport."""
        await trio.lowlevel.checkpoint()
        self.is_finished = True

    def close(self) -> None:
        """See Transport."""
        self.is_closed = True
        self._news.set()


@final
class MemoryClient:
    """The client's side of TLS. `exchange` moves records both ways."""

    def __init__(
        self, context: ssl.SSLContext, below: MemoryTransport, cuts: Iterable[int] = ()
    ) -> None:
        """`cuts`: the sizes of the pieces in which its records arrive; afterwards all at once."""
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.engine = context.wrap_bio(self._incoming, self._outgoing, server_hostname="localhost")
        self._below = below
        self._cuts = chain(cuts, repeat(_EVERYTHING))
        self._seen = 0
        self.got = bytearray()
        self.is_told_the_end = False
        self.is_secure = False

    def exchange(self) -> None:
        """Read what was sent, and send what there is to say."""
        below = self._below
        self._incoming.write(bytes(below.sent[self._seen :]))
        self._seen = len(below.sent)
        with suppress(ssl.SSLWantReadError):
            if not self.is_secure:
                self.engine.do_handshake()
                self.is_secure = True
            while not self.is_told_the_end:
                piece = self.engine.read(1 << 20)
                self.got += piece
                self.is_told_the_end = not piece
        self.flush()

    def flush(self) -> None:
        """Send what there is to say."""
        data = self._outgoing.read()
        while data:
            size = next(self._cuts)
            self._below.arrive(data[:size])
            data = data[size:]

    async def shake_hands(self) -> None:
        """With a server that runs in another task."""
        while not self.is_secure:
            self.exchange()
            await trio.lowlevel.checkpoint()
        self.exchange()
