"""Tenure: the time under one session with the metadata store, in which a broker may store.

A broker that was stopped beyond its session finds messages in its sockets when it goes on. It could
store them before it hears that the session is over, because nothing fences its ledgers until
another broker opens them. So each run of appends and each group of durable entries is preceded by a
look at the clock of the session.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from metadata.store import SessionState

if TYPE_CHECKING:
    from metadata.store import MetadataStore


@final
class Tenure:
    """One for all topics that were opened under the same session."""

    __slots__ = ("_has_ended", "_store")

    def __init__(self, store: MetadataStore) -> None:
        self._store = store
        self._has_ended = False

    def end(self) -> None:
        """The session was reported lost. The next one does not revive this tenure."""
        self._has_ended = True

    @property
    def is_over(self) -> bool:
        """Whether nothing may be stored or acknowledged any more. True may precede `end`."""
        return self._has_ended or self._store.session_state is SessionState.LOST
