"""Free loopback ports for a server that has to be told its ports before it starts.

They are taken below the range from which the kernel numbers the client side of connections: a
server that needs seconds to start would otherwise find its port taken by a client's connection.
"""

from __future__ import annotations

import random
import socket

LOWEST = 20_000
HIGHEST = 32_000
TRIES_MAX = 1_000


def free_ports(count: int) -> list[int]:
    """`count` different ports without a listener; held open together so that they differ."""
    held: list[socket.socket] = []
    try:
        for _ in range(TRIES_MAX):
            if len(held) == count:
                return [probe.getsockname()[1] for probe in held]
            probe = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            try:
                probe.bind(("127.0.0.1", random.randint(LOWEST, HIGHEST)))
            except OSError:
                probe.close()
            else:
                held.append(probe)
        raise OSError(f"no {count} free ports between {LOWEST} and {HIGHEST}")
    finally:
        for probe in held:
            probe.close()
