"""Free loopback ports for a server that has to be told its ports before it starts.

They are taken below the range from which the kernel numbers the client side of connections: a
server that needs seconds to start would otherwise find its port taken by a client's connection.

A port is free until its server listens, which may be long after others have asked for theirs. So
each port that is given out is claimed until this process ends, and no other process of these tests
on this machine is given it. The claim is an abstract Unix socket, which like a port belongs to one
network namespace, and which the kernel removes with the process.
"""

from __future__ import annotations

import random
import socket

LOWEST = 20_000
HIGHEST = 32_000
TRIES_MAX = 1_000

_claims: dict[int, socket.socket] = {}
"""By port. A bookie whose port an earlier bookie of the cluster had is refused for the cookie of
that one, so no port is given twice."""


def free_ports(count: int) -> list[int]:
    """`count` ports without a listener, none of which this process or one that runs was given.

    Raises OSError if none is found.
    """
    return [_free_port() for _ in range(count)]


def _free_port() -> int:
    for _ in range(TRIES_MAX):
        port = random.randint(LOWEST, HIGHEST)
        if port in _claims:
            continue
        claim = socket.socket(socket.AF_UNIX)
        try:
            claim.bind(f"\0vela-tests-port-{port}")
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", port))
        except OSError:
            claim.close()
            continue
        _claims[port] = claim
        return port
    raise OSError(f"no free port found between {LOWEST} and {HIGHEST} in {TRIES_MAX} tries")
