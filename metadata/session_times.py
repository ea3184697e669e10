"""The times of sessions between a metadata store and the processes that share it. Pure.

Both sides count from messages: the server from a message's arrival, the client from the time at
which it sent the last message that was answered. That is never later, but may be only just earlier.
The client therefore ends the session a twelfth of the timeout before the server may. That time
allows for busy threads and a busy event loop: all users of the session are notified, and their
operations end. A client thus knows that its session is over before the server gives its ephemeral
nodes to others.

The margin is a share of the timeout, because a deployment that needs more time has a longer timeout
anyway. ZooKeeper's usual shortest timeout, 4 s, leaves 0.33 s; the default of 30 s leaves 2.5 s. In
parts of the timeout: in doubt after 8/12; an owner that closes its topics after a sixth of it in
doubt does so at 10/12, and finishes under the session if it needs less than 1/12; over at 11/12.

Times are seconds on one monotonic scale.
"""

from __future__ import annotations

from typing import Final, final

from metadata.store import SessionState

_PING_SHARE: Final = 1 / 3
_DOUBT_SHARE: Final = 2 / 3
_END_SHARE: Final = 11 / 12


@final
class Lease:
    """A session as its client sees it."""

    __slots__ = ("sent_at", "timeout_seconds")

    def __init__(self, timeout_seconds: float, sent_at: float) -> None:
        """`sent_at`: when the request was sent that the server answered with this session."""
        self.timeout_seconds = timeout_seconds
        self.sent_at = sent_at

    def answered(self, sent_at: float) -> None:
        """A request that was sent at this time was answered."""
        self.sent_at = max(self.sent_at, sent_at)

    def state(self, now: float, *, is_connected: bool) -> SessionState:
        """LOST is final, whatever is answered afterwards: do not call `answered` then."""
        if now >= self.ends_at:
            return SessionState.LOST
        if not is_connected or now >= self.doubtful_at:
            return SessionState.IN_DOUBT
        return SessionState.LIVE

    @property
    def ping_at(self) -> float:
        """The server wants to hear something by now."""
        return self.sent_at + self.timeout_seconds * _PING_SHARE

    @property
    def doubtful_at(self) -> float:
        """The connection is dead: nothing was answered for two thirds of the timeout. A quarter is
        left for the users of the session to stop."""
        return self.sent_at + self.timeout_seconds * _DOUBT_SHARE

    @property
    def ends_at(self) -> float:
        """The session is over for its client. The server may end it after the whole timeout."""
        return self.sent_at + self.timeout_seconds * _END_SHARE


@final
class HeldSession:
    """A session as its server sees it."""

    __slots__ = ("heard_at", "is_over", "nodes", "process_id", "timeout_seconds", "token", "writes")

    def __init__(
        self, token: bytes, timeout_seconds: float, heard_at: float, process_id: int
    ) -> None:
        self.token = token
        """Known to its client only."""
        self.timeout_seconds = timeout_seconds
        self.heard_at = heard_at
        self.process_id = process_id
        self.nodes: set[str] = set()
        """Paths of its ephemeral nodes."""
        self.writes = 0
        """Writes that were begun and are not finished."""
        self.is_over = False
        """No request takes effect any more."""


@final
class HeldSessions:
    """All sessions of a server that are not over."""

    def __init__(self, sessions_max: int) -> None:
        self._by_token: dict[bytes, HeldSession] = {}
        self._sessions_max = sessions_max

    def __len__(self) -> int:
        return len(self._by_token)

    def begin(
        self, token: bytes, timeout_seconds: float, now: float, process_id: int
    ) -> HeldSession | None:
        """A new session; None: there are as many as may be."""
        if len(self._by_token) >= self._sessions_max:
            return None
        session = HeldSession(token, timeout_seconds, now, process_id)
        self._by_token[token] = session
        return session

    def resume(self, token: bytes, now: float) -> HeldSession | None:
        """The session with this token, unless its time is over."""
        session = self._by_token.get(token)
        if session is None or now >= session.heard_at + session.timeout_seconds:
            return None
        session.heard_at = max(session.heard_at, now)
        return session

    def given_up(self, token_hex: str) -> HeldSession | None:
        """The session whose client says that it is over, if it is there."""
        try:
            return self._by_token.get(bytes.fromhex(token_hex))
        except ValueError:
            return None

    def end(self, session: HeldSession) -> None:
        """It is over."""
        session.is_over = True
        self._by_token.pop(session.token, None)

    def expired(self, now: float) -> list[HeldSession]:
        """The sessions that were silent for their timeout."""
        return [
            session
            for session in self._by_token.values()
            if now >= session.heard_at + session.timeout_seconds
        ]

    def of_process(self, process_id: int) -> list[HeldSession]:
        """The sessions that a process began."""
        return [each for each in self._by_token.values() if each.process_id == process_id]

    def all(self) -> list[HeldSession]:
        """All of them."""
        return list(self._by_token.values())

    def grant(self, seconds: float) -> None:
        """The server could not listen for so long, so it cannot have heard from any client."""
        for session in self._by_token.values():
            session.heard_at += seconds
