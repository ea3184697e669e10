"""Entries whose metadata no client can read.

A broker stores what a producer sends, so such entries exist. A client that gets one gives up its
connection, with all its other producers and consumers, and gets the entry again when it returns. So
every kind of subscription acknowledges it instead, as Pulsar does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

import structlog

if TYPE_CHECKING:
    from protocol.position import Position

_log = structlog.get_logger()


@final
class UnreadableEntries:
    """Tells the operator about the first one of a subscription."""

    __slots__ = ("_subscription", "_told", "_topic")

    def __init__(self, topic: str, subscription: str) -> None:
        self._topic = topic
        self._subscription = subscription
        self._told = False

    def skipped(self, position: Position) -> None:
        """The entry is not delivered."""
        if self._told:
            return
        self._told = True
        _log.warning(
            "skipped an entry without readable metadata; others are not logged",
            topic=self._topic,
            subscription=self._subscription,
            position=position,
        )
