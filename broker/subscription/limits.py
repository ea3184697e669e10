"""The bound on unacknowledged messages of the whole broker, shared by all its subscriptions.

The sum is derived and not counted: each subscription reports its own recomputable number. Over the
limit, subscriptions that hold more than their share stop. They resume when the sum falls below half
the limit, so that they do not alternate quickly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from collections.abc import Callable


@final
class BrokerUnacked:
    """Unacked messages by subscription (any hashable key) against one limit (0: no limit)."""

    __slots__ = ("_held", "_resume", "blocked", "limit", "messages")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.messages = 0
        self.blocked = False
        self._held: dict[object, int] = {}
        self._resume: dict[object, Callable[[], None]] = {}

    def report(self, key: object, messages: int) -> None:
        """The subscription `key` now holds `messages` unacked ones; 0 removes it."""
        before = self._held.pop(key, 0)
        if messages:
            self._held[key] = messages
        self.messages += messages - before
        if not self.limit:
            return
        if self.messages >= self.limit:
            self.blocked = True
        elif self.blocked and self.messages <= self.limit // 2:
            self.blocked = False
            waiting, self._resume = self._resume, {}
            for resume in waiting.values():
                resume()

    def blocks(self, key: object, resume: Callable[[], None]) -> bool:
        """Whether `key` must not send now. If so, `resume` is called once when it may again.

        Subscriptions that hold nothing are still served, so a stuck neighbour does not stop them.
        """
        if not self.blocked or not self._held.get(key):
            return False
        self._resume[key] = resume
        return True

    def forget(self, key: object) -> None:
        """The subscription is closed."""
        self._resume.pop(key, None)
        self.report(key, 0)
