"""Bounds shared by all HTTP connections: a number of bytes, and a number of requests per second.

Pure: time is an argument.
"""

from __future__ import annotations

from typing import final


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
