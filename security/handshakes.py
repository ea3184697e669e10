"""What all TLS connections of a port share: bounds on handshakes that are not finished, and counts.

A stranger can begin handshakes and never finish them. One costs what OpenSSL keeps for it and the
bytes that it has sent. The sum is bounded; above it, those handshakes are given up in which nothing
has moved for longest (`runtime.held_bytes`). The server of the connection bounds their time, as it
does for a silent connection without TLS.
"""

from __future__ import annotations

from typing import Final, final

from runtime.held_bytes import HeldBytes

HANDSHAKE_BYTES_MAX: Final = 64 * 1024
"""Bytes that a client may send before its handshake is finished: a hello and a chain of
certificates."""
BEGUN_BYTES: Final = 48 * 1024
"""The memory that OpenSSL keeps for a handshake that has begun, with its buffers."""
UNFINISHED_BYTES_MAX: Final = 256 * 1024 * 1024
DECRYPTED_BYTES_MAX: Final = 256 * 1024
"""The most that one connection decrypts in a turn."""


@final
class Handshakes:
    """See the module docstring."""

    __slots__ = ("failed_total", "finished_total", "scratch", "unfinished")

    def __init__(self, unfinished_bytes_max: int = UNFINISHED_BYTES_MAX) -> None:
        self.unfinished = HeldBytes(unfinished_bytes_max)
        self.finished_total = 0
        self.failed_total = 0
        self.scratch = memoryview(bytearray(DECRYPTED_BYTES_MAX))
        """Where connections decrypt, one after the other."""

    def series(self) -> list[tuple[str, str, str, int]]:
        """For Prometheus: name, type, help text, value."""
        return [
            (
                "vela_tls_handshakes_finished_total",
                "counter",
                "Handshakes of clients with TLS that were finished",
                self.finished_total,
            ),
            (
                "vela_tls_handshakes_failed_total",
                "counter",
                "Handshakes of clients with TLS that failed or were given up",
                self.failed_total,
            ),
            (
                "vela_tls_handshakes_unfinished_bytes",
                "gauge",
                "Bytes that count as held for handshakes that are not finished",
                self.unfinished.held_bytes,
            ),
        ]
