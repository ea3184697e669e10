"""Free loopback ports for a server that has to be told its ports before it starts."""

from __future__ import annotations

import socket


def free_ports(count: int) -> list[int]:
    """`count` different ports nobody listens on now; held open together so that they differ."""
    held: list[socket.socket] = []
    try:
        for _ in range(count):
            probe = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            probe.bind(("127.0.0.1", 0))
            held.append(probe)
        return [probe.getsockname()[1] for probe in held]
    finally:
        for probe in held:
            probe.close()
