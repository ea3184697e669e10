"""The bounds of the HTTP server, in one place: their values, and the counts that all connections
share. Each says what happens when it is reached.

Pure: time is an argument.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final


@final
@dataclass(frozen=True, slots=True)
class HttpLimits:
    """Bounds of all HTTP connections; times in seconds."""

    connections_max: int = 2_048
    """0 = no bound. At the bound the connection that has waited longest for a request is closed, or
    else that with the slowest client. If no client is slow, the new one is answered with 503."""
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


@final
class ByteBudget:
    """Bytes of unfinished requests and of answers that clients have not received yet."""

    __slots__ = ("_held", "_max", "_requests")

    def __init__(self, bytes_max: int) -> None:
        self._max = bytes_max
        self._requests = 0
        self._held = 0

    @property
    def held(self) -> int:
        """Bytes in use."""
        return self._held

    def take_for_request(self, size: int) -> bool:
        """Requests may hold half of the budget, so that answers can always be sent."""
        if self._requests + size > self._max // 2 or self._held + size > self._max:
            return False
        self._requests += size
        self._held += size
        return True

    def give_for_request(self, size: int) -> None:
        """The request has been handled."""
        self._requests -= size
        self._held -= size
        assert self._held >= self._requests >= 0

    def take_for_answer(self, size: int) -> bool:
        """A piece of an answer is about to be sent. One piece always fits, however large."""
        if self._held > self._requests and self._held + size > self._max:
            return False
        self._held += size
        return True

    def give_for_answer(self, size: int) -> None:
        """The client has received the piece, or it was dropped."""
        self._held -= size
        assert self._held >= self._requests


@final
class RequestRate:
    """A token bucket that holds one second of requests; 0 per second: no bound."""

    __slots__ = ("_per_second", "_tokens", "_updated_at")

    def __init__(self, per_second: float, now: float) -> None:
        self._per_second = per_second
        self._tokens = max(1.0, per_second)
        self._updated_at = now

    def admits(self, now: float) -> bool:
        """Whether one more request is within the rate. If so it is counted."""
        if not self._per_second:
            return True
        gained = (now - self._updated_at) * self._per_second
        self._tokens = min(max(1.0, self._per_second), self._tokens + gained)
        self._updated_at = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True
