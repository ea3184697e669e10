"""A peer that speaks as much of ZooKeeper's protocol as a session needs: connecting, pings, and
answers without content. Layouts: ZooKeeper's zookeeper.jute."""

from __future__ import annotations

import struct

import trio

_EXISTS = 3
_PING_XID = -2
_STAT = bytes(68)
_PASSWORD = bytes(16)


class ZooKeeperPeer:
    """Run it with `port = await nursery.start(peer.run)`."""

    def __init__(self, timeout_ms):
        self._timeout_ms = timeout_ms
        self.sessions = 0
        """How many were begun."""
        self.pings = 0
        """How many were answered."""
        self.is_silent = False
        """Nothing is answered from now on."""

    async def run(self, task_status):
        [listener] = await trio.open_tcp_listeners(0, host="127.0.0.1")
        task_status.started(listener.socket.getsockname()[1])
        await trio.serve_listeners(self._serve, [listener])

    async def _serve(self, stream):
        try:
            asked_for = struct.unpack_from("!q", await _frame(stream), 16)[0]
            if self.is_silent:
                await trio.sleep_forever()
            if not asked_for:
                self.sessions += 1
            granted = struct.pack("!iiq", 0, self._timeout_ms, asked_for or self.sessions)
            await _send(stream, granted + struct.pack("!i", 16) + _PASSWORD + b"\0")
            while True:
                xid, kind = struct.unpack_from("!ii", await _frame(stream))
                if self.is_silent:
                    continue
                answer = struct.pack("!iqi", xid, 0, 0)
                await _send(stream, answer + (_STAT if kind == _EXISTS else b""))
                self.pings += xid == _PING_XID
        except (EOFError, trio.BrokenResourceError):
            await stream.aclose()


async def _frame(stream):
    [length] = struct.unpack("!i", await _exactly(stream, 4))
    return await _exactly(stream, length)


async def _exactly(stream, size):
    data = b""
    while len(data) < size:
        more = await stream.receive_some(size - len(data))
        if not more:
            raise EOFError
        data += more
    return data


async def _send(stream, data):
    await stream.send_all(struct.pack("!i", len(data)) + data)
