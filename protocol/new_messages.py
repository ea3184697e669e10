"""Messages that a client has sent and that are not stored yet, whatever protocol it speaks.

A topic takes them from any door. `protocol.send_fields` and `protocol.send_runs` make them of the
frames of Pulsar's protocol, without another object for each message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

NO_SEQUENCE_ID: Final = -1
"""As highest sequence id: the message is no batch with numbers of its own."""


class NewMessage:
    """One message or batch. `payload` has the form in which it is stored: headers, metadata and
    payload, as Pulsar's clients encode them."""

    __slots__ = ("highest_sequence_id", "is_chunk", "is_verified", "payload", "sequence_id")

    def __init__(
        self,
        sequence_id: int,
        highest_sequence_id: int,
        is_chunk: bool,
        payload: bytes,
    ) -> None:
        self.sequence_id = sequence_id
        self.highest_sequence_id = highest_sequence_id
        self.is_chunk = is_chunk
        self.is_verified = False
        """The checksum of the payload was found to fit, if it has one."""
        self.payload = payload


class NewMessages:
    """Messages of one producer, in their order: one item of each column for each of them. The
    checksums are verified, no message is a chunk, and none has a second sequence id."""

    __slots__ = (
        "are_consecutive",
        "counts",
        "message_count",
        "payloads",
        "sequence_ids",
        "size_bytes",
        "size_each_bytes",
    )

    def __init__(
        self,
        sequence_ids: Sequence[int],
        payloads: list[bytes],
        counts: list[int] | None,
        size_bytes: int,
        size_each_bytes: int,
        are_consecutive: bool,
    ) -> None:
        self.sequence_ids = sequence_ids
        self.payloads = payloads
        """As in a NewMessage."""
        self.counts = counts
        """The number of messages in each, by `count_messages`; None: each is one message."""
        self.message_count = len(payloads)
        """Messages in them together, where one that no client gets counts as one."""
        if counts is not None:
            self.message_count = sum([count or 1 for count in counts])
        self.size_bytes = size_bytes
        """The size of all payloads."""
        self.size_each_bytes = size_each_bytes
        """The size of each payload; 0: they differ."""
        self.are_consecutive = are_consecutive
        """Each sequence id is the one before plus 1."""

    def message(self, index: int) -> NewMessage:
        """One of the messages by itself."""
        message = NewMessage(self.sequence_ids[index], NO_SEQUENCE_ID, False, self.payloads[index])
        message.is_verified = True
        return message

    def messages(self) -> list[NewMessage]:
        """Each message by itself."""
        return [self.message(index) for index in range(len(self.payloads))]
