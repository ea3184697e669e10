"""A transport as a stream of trio, for code that reads and writes in a task of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

import trio

if TYPE_CHECKING:
    from runtime.transport import Transport


@final
class TransportStream(trio.abc.HalfCloseableStream):
    """See the module docstring. After a cancelled `send_all` it can only be closed: some of the
    bytes may have left."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._rest = b""
        """Received, and not asked for yet."""

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """All of it."""
        left = memoryview(data)
        while left:
            left = left[await self._transport.send([left]) :]

    async def wait_send_all_might_not_block(self) -> None:
        """Return at once, because it is not known."""
        await trio.lowlevel.checkpoint()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """The next bytes; empty when the other side has closed."""
        if self._rest:
            await trio.lowlevel.checkpoint()
        else:
            self._rest = await self._transport.receive()
        size = len(self._rest) if max_bytes is None else max_bytes
        data, self._rest = self._rest[:size], self._rest[size:]
        return data

    async def send_eof(self) -> None:
        """No more bytes follow. Receiving continues."""
        await self._transport.finish_sending()

    async def aclose(self) -> None:
        """At once: what was sent is with the kernel."""
        self._transport.close()
        await trio.lowlevel.checkpoint()
