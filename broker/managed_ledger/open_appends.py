"""Appends of a topic whose outcome is open, and how they end. Pure.

An append is pending once it has a position, and queued while the ledger is replaced. It ends when
its entry is durable (`_take_confirmed`), or when it fails with the reason of the state.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from protocol.errors import BrokerError, ServerError

if TYPE_CHECKING:
    from broker.ground.entry import Entry
    from broker.managed_ledger.context import AppendListener


class AppendState(Enum):
    """The state of the append path of a topic (see `appender`)."""

    OPEN = "Open"
    ROLLING = "Rolling"
    BROKEN = "Broken"
    FENCED = "Fenced"
    TERMINATED = "Terminated"
    CLOSED = "Closed"


class OpenAppends:
    """The open appends of an `Appender`, which is built on this class: a separate object would cost
    memory for every topic, and a call for every group of entries."""

    __slots__ = ("_contexts", "_pending", "_queue", "failure", "listener", "state")

    def __init__(self) -> None:
        self._pending: list[Entry] = []
        self._contexts: list[object] = []
        """Contexts, one for each entry of `_pending`."""
        self._queue: list[tuple[Entry, object]] = []
        self.state = AppendState.CLOSED
        self.failure: BrokerError | None = None
        """Why appends fail now; None: for the reason of `state`."""
        self.listener: AppendListener | None = None

    @property
    def pending_count(self) -> int:
        """Appends whose outcome is not known yet."""
        return len(self._pending) + len(self._queue)

    def _take_confirmed(self, count: int) -> tuple[list[Entry], list[object]]:
        """Take the oldest pending ones, which are durable."""
        pending, contexts = self._pending, self._contexts
        if count == len(pending):
            self._pending, self._contexts = [], []
        else:
            pending, self._pending = pending[:count], pending[count:]
            contexts, self._contexts = contexts[:count], contexts[count:]
        return pending, contexts

    def _refusal(self) -> BrokerError:
        if self.state is AppendState.TERMINATED:
            return BrokerError(ServerError.TopicTerminatedError, "the topic was terminated")
        return BrokerError(
            ServerError.ServiceNotReady, "the topic is being closed: look it up again"
        )

    def _take_pending(self) -> list[tuple[Entry, object]]:
        pending, contexts = self._pending, self._contexts
        self._pending, self._contexts = [], []
        return list(zip(pending, contexts, strict=True))

    def _fail_queued(self) -> None:
        queue, self._queue = self._queue, []
        self._fail_all(queue)

    def _fail_all(self, failed: list[tuple[Entry, object]]) -> None:
        error = self.failure or self._refusal()
        for _, append_context in failed:
            assert self.listener is not None
            self.listener.on_append_failed(append_context, error)
