"""Proxies between brokers and bookies, in which directions can be cut. One thread serves them all.

While a direction is cut nothing of it arrives, neither bytes nor the end of a connection. Bytes
wait, as TCP would send them again. New connections can be opened, and nothing arrives on them. When
the cut is over, what waited arrives late, or all connections are reset.

Bounds: per connection and direction one chunk, and what the kernel's buffers take.
"""

from __future__ import annotations

import socket
import struct
import threading
from typing import TYPE_CHECKING, Final, Literal, final

import trio

if TYPE_CHECKING:
    from collections.abc import Callable

Direction = Literal["requests", "answers"]
DIRECTIONS: Final[tuple[Direction, ...]] = ("requests", "answers")
CHUNK_BYTES: Final = 65_536
_RESET: Final = struct.pack("ii", 1, 0)


@final
class _Gate:
    def __init__(self) -> None:
        self.is_open = True
        self._changed = trio.Event()

    def turn(self, is_open: bool) -> None:
        self.is_open = is_open
        changed, self._changed = self._changed, trio.Event()
        changed.set()

    async def pass_through(self) -> None:
        while not self.is_open:
            await self._changed.wait()


@final
class Proxy:
    """Of one bookie. `listening_at` is where brokers find it."""

    def __init__(self, listening_at: tuple[str, int], bookie_at: tuple[str, int]) -> None:
        self.listening_at = listening_at
        self._bookie_at = bookie_at
        self.gates = {direction: _Gate() for direction in DIRECTIONS}
        self.listening = trio.CancelScope()
        self._links: dict[trio.CancelScope, list[trio.SocketStream]] = {}

    async def serve(self, client: trio.SocketStream) -> None:
        """One connection of a broker."""
        with trio.CancelScope() as scope:
            streams = self._links[scope] = [client]
            try:
                async with await trio.open_tcp_stream(*self._bookie_at) as bookie:
                    streams.append(bookie)
                    async with trio.open_nursery() as nursery:
                        end = nursery.cancel_scope.cancel
                        gates = self.gates
                        nursery.start_soon(_pump, client, bookie, gates["requests"], end)
                        nursery.start_soon(_pump, bookie, client, gates["answers"], end)
            except OSError:
                return  # the bookie is away, and the listener closes the broker's side
            finally:
                del self._links[scope]

    def reset(self) -> None:
        """End all connections as if both sides had failed."""
        for scope, streams in self._links.items():
            for stream in streams:
                stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            scope.cancel()


async def _pump(
    source: trio.SocketStream, sink: trio.SocketStream, gate: _Gate, end: Callable[[], None]
) -> None:
    try:
        while data := await source.receive_some(CHUNK_BYTES):
            await gate.pass_through()
            await sink.send_all(data)
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        pass
    await gate.pass_through()
    end()


@final
class Proxies:
    """See the module docstring. The methods are called from other threads than its own."""

    def __init__(self) -> None:
        self._is_running = threading.Event()
        self._thread = threading.Thread(target=trio.run, args=(self._run,), daemon=True)
        self._token: trio.lowlevel.TrioToken
        self._nursery: trio.Nursery

    def start(self) -> None:
        """Return when proxies can be added."""
        self._thread.start()
        self._is_running.wait()

    def stop(self) -> None:
        """End all proxies and the thread."""
        self._call(lambda: self._nursery.cancel_scope.cancel())
        self._thread.join()

    def add(self, listening_at: tuple[str, int], bookie_at: tuple[str, int]) -> Proxy:
        """A proxy that accepts connections when this returns. Raises: OSError."""
        proxy = Proxy(listening_at, bookie_at)
        trio.from_thread.run(self._open, proxy, trio_token=self._token)
        return proxy

    def cut(self, proxy: Proxy, directions: tuple[Direction, ...]) -> None:
        """Nothing arrives in these directions from now on."""
        self._turn(proxy, directions, is_open=False)

    def heal(self, proxy: Proxy, *, is_reset: bool) -> None:
        """Everything arrives again; or connections are reset, and new ones are well."""
        if is_reset:
            self._call(proxy.reset)
        self._turn(proxy, DIRECTIONS, is_open=True)

    def close(self, proxy: Proxy) -> None:
        """End a proxy and its connections."""
        self._call(proxy.listening.cancel)

    def _turn(self, proxy: Proxy, directions: tuple[Direction, ...], *, is_open: bool) -> None:
        def turn() -> None:
            for direction in directions:
                proxy.gates[direction].turn(is_open)

        self._call(turn)

    def _call(self, function: Callable[[], None]) -> None:
        trio.from_thread.run_sync(function, trio_token=self._token)

    async def _run(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            self._is_running.set()
            await trio.sleep_forever()

    async def _open(self, proxy: Proxy) -> None:
        host, port = proxy.listening_at
        listeners = await trio.open_tcp_listeners(port, host=host)
        self._nursery.start_soon(_listen, proxy, listeners)


async def _listen(proxy: Proxy, listeners: list[trio.SocketListener]) -> None:
    with proxy.listening:
        await trio.serve_listeners(proxy.serve, listeners)
