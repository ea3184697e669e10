"""A run of SENDs: what a producer at full speed sends in one chunk, as columns.

An object for each message costs more than to read it. Here consecutive SENDs of one producer
become columns of their numbers and payloads, from the decoder to the receipts. One native call
reads them and verifies their checksums (`native.frames`). Only messages with nothing unusual are in
a run: a small payload whose checksum fits, no chunk, no second sequence id. The first SEND that is
otherwise ends it, and is read and answered by itself (`protocol.send_fields`). A single usual
message between those of other producers becomes a `Send` with `is_verified` set.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Final, TypeVar, final

from native.frames import ARE_CONSECUTIVE, ARE_SINGLE, PAYLOAD_BYTES_MIN, read_sends
from protocol.metadata import count_messages
from protocol.new_messages import NO_SEQUENCE_ID, NewMessages
from protocol.send_fields import Send

if TYPE_CHECKING:
    from collections.abc import Iterator

T = TypeVar("T")

__all__ = ["PAYLOAD_BYTES_MIN", "SendRun", "one_by_one", "read_verified"]

_read_sends: Final = read_sends
"""Compiled, names of this module are no look-up in a dict."""


@final
class SendRun(NewMessages):
    """SENDs of one producer, in their order."""

    __slots__ = ("producer_id",)

    def __init__(
        self,
        producer_id: int,
        sequence_ids: array[int],
        payloads: list[bytes],
        counts: list[int] | None,
        size_bytes: int,
        size_each_bytes: int,
        are_consecutive: bool,
    ) -> None:
        super().__init__(
            sequence_ids, payloads, counts, size_bytes, size_each_bytes, are_consecutive
        )
        self.producer_id = producer_id

    def send(self, index: int) -> Send:
        """One of the messages by itself."""
        return _verified(self.producer_id, self.sequence_ids[index], self.payloads[index])

    def sends(self) -> list[Send]:
        """Each message by itself."""
        return [self.send(index) for index in range(len(self.payloads))]


def read_verified(
    data: bytes, start: int, frame_size_max: int
) -> tuple[SendRun | Send, int, int] | None:
    """The run that begins at `start`, where a frame does, or the only message of one; how many
    messages these are, and where they end. None if the SEND there is unusual."""
    producer_id, numbers, payloads, size_bytes, size_each_bytes, flags, end = _read_sends(
        data, start, frame_size_max
    )
    if not payloads:
        return None
    sequence_ids = array("q", numbers)
    if len(payloads) == 1:
        return _verified(producer_id, sequence_ids[0], payloads[0]), 1, end
    counts = None if flags & ARE_SINGLE else [count_messages(payload) for payload in payloads]
    are_consecutive = flags & ARE_CONSECUTIVE != 0
    run = SendRun(
        producer_id,
        sequence_ids,
        payloads,
        counts,
        size_bytes,
        size_each_bytes,
        are_consecutive,
    )
    return run, len(payloads), end


def _verified(producer_id: int, sequence_id: int, payload: bytes) -> Send:
    send = Send(producer_id, sequence_id, NO_SEQUENCE_ID, False, payload)
    send.is_verified = True
    return send


def one_by_one(frames: Iterator[T | SendRun], waiting: list[Send]) -> Iterator[T | Send]:
    """The frames, without runs: where each message may have to wait. The messages of a run are in
    `waiting` until it is their turn, the next one last. One that the caller puts back there comes
    first in the next call: an iterator around the rest would be one more each time."""
    while True:
        while waiting:
            yield waiting.pop()
        for frame in frames:
            if isinstance(frame, SendRun):
                waiting.extend(reversed(frame.sends()))
                break
            yield frame
        else:
            return
