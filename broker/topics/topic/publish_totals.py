"""Counts and rates of what was published to a topic since it was loaded. Pure.

Producers count for themselves, so that a message costs no second count. The totals are the sum over
those that are there and those that have left.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from broker.topics.topic.producer import Producer


@final
class PublishTotals:
    """See the module docstring."""

    __slots__ = (
        "_bytes_before",
        "_chunks_before",
        "_messages_before",
        "_producers",
        "_window_bytes",
        "_window_messages",
        "bytes_per_second",
        "messages_per_second",
    )

    def __init__(self, producers: Mapping[str, Producer]) -> None:
        """`producers`: those that are there, also in the future."""
        self._producers = producers
        self._messages_before = 0
        self._bytes_before = 0
        self._chunks_before = 0
        self._window_messages = 0
        self._window_bytes = 0
        self.messages_per_second = 0.0
        """In the last window."""
        self.bytes_per_second = 0.0

    def messages(self) -> int:
        """Messages published since the topic was loaded."""
        live = self._producers.values()
        return self._messages_before + sum(producer.messages_in for producer in live)

    def size_bytes(self) -> int:
        """Bytes published since the topic was loaded."""
        live = self._producers.values()
        return self._bytes_before + sum(producer.bytes_in for producer in live)

    def has_chunks(self) -> bool:
        """Whether a chunk was published since the topic was loaded."""
        return self._chunks_before > 0 or any(each.chunks_in for each in self._producers.values())

    def left(self, producer: Producer) -> None:
        """It is not among the producers any more."""
        self._messages_before += producer.messages_in
        self._bytes_before += producer.bytes_in
        self._chunks_before += producer.chunks_in

    def end_window(self, seconds: float) -> None:
        """End a window this many seconds after the last one ended."""
        messages, size_bytes = self.messages(), self.size_bytes()
        self.messages_per_second = (messages - self._window_messages) / seconds
        self.bytes_per_second = (size_bytes - self._window_bytes) / seconds
        self._window_messages, self._window_bytes = messages, size_bytes
