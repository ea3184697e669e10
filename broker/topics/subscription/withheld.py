"""Entries that no client gets.

* Entries whose metadata no client can read. A broker stores what a producer sends, so they exist. A
  client that gets one gives up its connection, with all its other producers and consumers, and gets
  the entry again when it returns.
* Markers, which Pulsar's brokers write for transactions and for replicated subscriptions. They mean
  nothing to a client.
* Entries that the view of the log holds back (`LedgerPort`).

Every kind of subscription acknowledges them instead when their turn comes, as Pulsar does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

import structlog

from protocol.metadata import count_messages, is_marker

if TYPE_CHECKING:
    from broker.ground.entry import Entry

_log = structlog.get_logger()


@final
class WithheldEntries:
    """Tells the operator about the first unreadable one of a subscription. The others are nothing
    unusual."""

    __slots__ = ("_subscription", "_told", "_topic")

    def __init__(self, topic: str, subscription: str) -> None:
        self._topic = topic
        self._subscription = subscription
        self._told = False

    def skipped(self, entry: Entry) -> None:
        """The entry is not delivered."""
        if self._told or is_marker(entry.metadata) or count_messages(entry.data):
            return
        self._told = True
        _log.warning(
            "skipped an entry without readable metadata; others are not logged",
            topic=self._topic,
            subscription=self._subscription,
            position=entry.position,
        )
