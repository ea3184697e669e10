"""The bounds of the HTTP server, in one place. Each says what happens when it is reached."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final


@final
@dataclass(frozen=True, slots=True)
class HttpLimits:
    """Bounds of all HTTP connections; times in seconds."""

    connections_max: int = 2_048
    """0 = no bound. At the bound the connection that has waited longest for a request is closed. If
    all are busy, the new one is answered with 503."""
    head_bytes_max: int = 8_192
    """Size of a request line with its headers. A larger one is answered with 431 and closed."""
    buffered_bytes_max: int = 64 * 1024 * 1024
    """Bytes of unfinished requests and of answers not yet taken, over all connections. Requests may
    hold half of it. Above it requests are answered with 503."""
    request_seconds_max: float = 30.0
    """Deadline of the head of a request, and again of its body; then 408 and closed."""
    idle_seconds_max: float = 60.0
    """An idle kept connection is closed after this."""
    answer_seconds_max: float = 120.0
    """Time for which a client may delay one answer by not reading; then it is closed."""
    requests_per_second_max: float = 0.0
    """Over all connections; 0 = no bound. Above it requests are answered with 429."""
