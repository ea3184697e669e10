"""Deadlines of one connection, as data: keep-alive, handshake, stalled output. Pure.

Pulsar's rule: after a silent interval a PING is sent; if another interval passes without a single
byte, the connection is closed. Any byte is a sign of life, not only PONG.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import final


class KeepAliveAction(Enum):
    """The action that is due now."""

    NOTHING = auto()
    SEND_PING = auto()
    CLOSE_SILENT = auto()
    CLOSE_NO_HANDSHAKE = auto()


@final
class KeepAlive:
    """Deadlines of one connection."""

    __slots__ = ("_handshake_deadline", "_interval_seconds", "_ping_sent_at", "received_at")

    def __init__(self, interval_seconds: float, handshake_seconds: float, now: float) -> None:
        self._interval_seconds = interval_seconds
        self.received_at = now
        """When the last bytes arrived."""
        self._ping_sent_at: float | None = None
        self._handshake_deadline: float | None = now + handshake_seconds

    def handshake_done(self) -> None:
        """CONNECT was accepted."""
        self._handshake_deadline = None

    def received(self, now: float) -> None:
        """Bytes have arrived."""
        self.received_at = now
        self._ping_sent_at = None

    def ping_sent(self, now: float) -> None:
        """A PING was sent for another reason (a liveness check): expect an answer."""
        if self._ping_sent_at is None:
            self._ping_sent_at = now

    def received_since(self, moment: float) -> bool:
        """Whether bytes arrived at or after `moment`."""
        return self.received_at >= moment

    def ping_due_while_unread(self, now: float) -> bool:
        """Whether a peer that is not read should be sent a PING, which keeps it from giving up."""
        since = self.received_at if self._ping_sent_at is None else self._ping_sent_at
        if now - since < self._interval_seconds:
            return False
        self._ping_sent_at = now
        return True

    def check(self, now: float) -> KeepAliveAction:
        """Decide; called at least every third of the interval."""
        if self._handshake_deadline is not None:
            if now >= self._handshake_deadline:
                return KeepAliveAction.CLOSE_NO_HANDSHAKE
            return KeepAliveAction.NOTHING
        if self._ping_sent_at is not None:
            if now - self._ping_sent_at >= self._interval_seconds:
                return KeepAliveAction.CLOSE_SILENT
            return KeepAliveAction.NOTHING
        if now - self.received_at >= self._interval_seconds:
            self._ping_sent_at = now
            return KeepAliveAction.SEND_PING
        return KeepAliveAction.NOTHING


@final
class OutputStall:
    """Notices a peer that has output waiting and takes none of it."""

    __slots__ = ("_seconds_max", "_sent_bytes", "_since")

    def __init__(self, seconds_max: float) -> None:
        self._seconds_max = seconds_max
        self._since: float | None = None
        self._sent_bytes = 0

    def check(self, pending_bytes: int, sent_bytes_total: int, now: float) -> bool:
        """Whether the peer has taken nothing since a check at least `seconds_max` ago."""
        if not pending_bytes:
            self._since = None
            return False
        if self._since is None or self._sent_bytes != sent_bytes_total:
            self._since, self._sent_bytes = now, sent_bytes_total
            return False
        return now - self._since >= self._seconds_max
