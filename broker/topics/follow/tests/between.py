"""Stands between a follower and the owner of its source, and changes what they tell each other."""

from __future__ import annotations

import socket
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from urllib.parse import urlsplit

import trio

from broker.topics.follow.tests.cluster import owner_and_follower
from protocol.decoding import decode_command


def frames_of(data):
    """The whole frames that some bytes begin with, and the rest."""
    frames = []
    while len(data) >= 4 and len(data) >= (end := 4 + int.from_bytes(data[:4], "big")):
        frames.append(data[:end])
        data = data[end:]
    return frames, data


def command_of(frame):
    size = int.from_bytes(frame[4:8], "big")
    return decode_command(frame[8 : 8 + size])


def unchanged(command, frame):
    return frame


class Between:
    """`to_follower` and `to_owner` are given each frame with its command, and return the bytes that
    go on in its place."""

    def __init__(self):
        self.to_follower = self.to_owner = unchanged
        self._streams = []
        """To followers that are connected."""

    def heal(self):
        """Change nothing any more, and let followers connect again."""
        self.to_follower = self.to_owner = unchanged
        for stream in self._streams:
            with suppress(OSError):  # it has left already
                stream.socket.shutdown(socket.SHUT_RDWR)

    async def serve(self, nursery, host, port):
        async def handle(follower):
            owner = await trio.open_tcp_stream(host, port)
            async with follower, owner:
                self._streams.append(follower)
                try:
                    async with trio.open_nursery() as both:
                        both.start_soon(self._pump, follower, owner, "to_owner", both.cancel_scope)
                        both.start_soon(
                            self._pump, owner, follower, "to_follower", both.cancel_scope
                        )
                finally:
                    self._streams.remove(follower)

        [listener] = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, handle, [listener])
        return listener.socket.getsockname()[1]

    async def _pump(self, source, target, way, scope):
        held = b""
        try:
            while data := await source.receive_some(1 << 20):
                frames, held = frames_of(held + data)
                change = getattr(self, way)
                await target.send_all(b"".join(change(command_of(one), one) for one in frames))
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass  # one side has left
        scope.cancel()


@asynccontextmanager
async def followed_through(**fields):
    """As `owner_and_follower`, with one in between."""
    async with owner_and_follower(**fields) as (cluster, a, b, publisher):
        between = Between()
        async with trio.open_nursery() as nursery:
            url = urlsplit(a.broker_service_url)
            port = await between.serve(nursery, url.hostname, url.port)
            address = cluster.addresses["a"]
            cluster.addresses["a"] = replace(
                address, broker_service_url=f"pulsar://127.0.0.1:{port}"
            )
            yield between, a, b, publisher
            nursery.cancel_scope.cancel()
