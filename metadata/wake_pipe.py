"""WakePipe: wakes the thread of kazoo that sends requests, and never holds up the event loop."""

from __future__ import annotations

import os
from typing import final


@final
class WakePipe:
    """One end of a pipe, with what kazoo uses of a socket. It gets a byte for each request that
    waits to be sent. A pair of sockets, as kazoo makes it, is full after 278 of them, and the event
    loop would wait until a server answers again. A pipe takes 65,536; a request above that fails as
    on a lost connection."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    @classmethod
    def pair(cls) -> tuple[WakePipe, WakePipe]:
        """The ends to read and to write."""
        read, write = os.pipe()
        os.set_blocking(write, False)
        return cls(read), cls(write)

    def fileno(self) -> int:
        """For select; -1 after `close`."""
        return self._descriptor

    def send(self, data: bytes) -> int:
        """Raises: OSError: the pipe is full or closed."""
        return os.write(self._descriptor, data)

    def recv(self, size: int) -> bytes:
        """Blocks while there is nothing. Raises: OSError."""
        return os.read(self._descriptor, size)

    def close(self) -> None:
        """Idempotent."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor != -1:
            os.close(descriptor)
