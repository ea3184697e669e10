"""SEND_RECEIPT and MESSAGE, the two commands that are sent once per message, without protobuf.

Both are a few tags with variable-length numbers between them, so they are put together from bytes;
`protocol/tests/test_templates.py` holds them equal, byte for byte, to what protobuf writes.

Layouts (tags in hexadecimal; lengths and numbers are varints):

    SEND_RECEIPT  08 07 3a <len> 08 producer 10 sequence 1a <len> 08 ledger 10 entry 20 highest
    MESSAGE       08 09 4a <len> 08 consumer 12 <len> 08 ledger 10 entry 18 partition
                  [18 redeliveries] [20 ack-set word]* [28 epoch]

As in Pulsar, the partition is always there, the redelivery count only when it is not 0.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final, final

from native.frames import message_run

if TYPE_CHECKING:
    from collections.abc import Sequence

UINT64_MAX: Final = 2**64 - 1
"""As highest sequence id: there is none (what Pulsar sends for unbatched messages)."""

_pack_sizes: Final = Struct(">II").pack
_message_run: Final = message_run
"""Compiled, names of this module are no look-up in a dict."""
_JOINED_BELOW_BYTES: Final = 4096
"""A payload of this size is copied in 0.2 us, which a buffer of its own costs on its way, too."""

_TABLE_SIZE: Final = 1 << 14
_TABLE_MASK: Final = _TABLE_SIZE - 1
_TWO_TABLES: Final = 1 << 28

_LAST: Final = tuple(
    bytes((number,)) if number < 0x80 else bytes((number & 0x7F | 0x80, number >> 7))
    for number in range(_TABLE_SIZE)
)
"""The varint of every number of 14 bits."""

_MORE: Final[list[bytes | None]] = [None] * _TABLE_SIZE
"""Every number of 14 bits as the first two bytes of a longer varint, made when it is needed: a
broker at rest has no such numbers."""

_NEGATIVE_ONE: Final = b"\xff" * 9 + b"\x01"


def _more(number: int) -> bytes:
    made = _MORE[number]
    if made is None:
        made = _MORE[number] = bytes((number & 0x7F | 0x80, number >> 7 | 0x80))
    return made


def varint(value: int) -> bytes:
    """A number as the wire has it; a negative one as its 64-bit two's complement."""
    if 0 <= value < _TABLE_SIZE:
        return _LAST[value]
    if value < 0:
        if value == -1:
            return _NEGATIVE_ONE
        value += 1 << 64
    if value < _TWO_TABLES:
        return _more(value & _TABLE_MASK) + _LAST[value >> 14]
    parts = []
    while value >= _TABLE_SIZE:
        parts.append(_more(value & _TABLE_MASK))
        value >>= 14
    parts.append(_LAST[value])
    return b"".join(parts)


_BYTES: Final = bytes(range(256))
_NO_HIGHEST: Final = varint(UINT64_MAX)
_NO_HIGHEST_FIELD: Final = b"\x20" + _NO_HIGHEST
_NO_HIGHEST_SIZE: Final = len(_NO_HIGHEST_FIELD)

_RECEIPT_HEADS: Final = tuple(
    _pack_sizes(8 + size, 4 + size) + bytes((0x08, 0x07, 0x3A, size)) for size in range(0x80)
)
"""Sizes, type and length of a SEND_RECEIPT, by the size of its content (always below 128)."""


def send_receipt(
    producer_id: int, sequence_id: int, highest_sequence_id: int, ledger_id: int, entry_id: int
) -> bytes:
    """A finished SEND_RECEIPT frame. `highest_sequence_id` is UINT64_MAX (or -1) for none."""
    ledger = varint(ledger_id)
    entry = varint(entry_id)
    content = b"\x08%b\x10%b\x1a%b\x08%b\x10%b\x20%b" % (
        varint(producer_id),
        varint(sequence_id),
        _LAST[2 + len(ledger) + len(entry)],
        ledger,
        entry,
        _NO_HIGHEST if highest_sequence_id == UINT64_MAX else varint(highest_sequence_id),
    )
    return _RECEIPT_HEADS[len(content)] + content


@final
class ReceiptTemplate:
    """SEND_RECEIPTs of one producer for entries of one ledger: what stays the same is put together
    once, and again when a number gets longer. The frames are those of `send_receipt`."""

    __slots__ = ("_entry_size", "_head", "_ledger", "_middle", "_producer", "_size")

    def __init__(self, producer_id: int, ledger_id: int) -> None:
        self._producer = b"\x08%b\x10" % varint(producer_id)
        self._ledger = b"\x08%b\x10" % varint(ledger_id)
        self._size = self._entry_size = -1
        self._head = self._middle = b""

    def append_to(
        self, parts: list[bytes], sequence_id: int, highest_sequence_id: int, entry_id: int
    ) -> None:
        """Append the pieces of a finished frame; nothing is copied before they are joined."""
        sequence, entry = varint(sequence_id), varint(entry_id)
        end = _NO_HIGHEST_FIELD
        if highest_sequence_id != -1:
            end = b"\x20" + varint(highest_sequence_id)
        entry_size = len(entry)
        size = len(sequence) + entry_size + len(end)
        if size != self._size or entry_size != self._entry_size:
            self._prepare(size, entry_size)
        parts.append(self._head)
        parts.append(sequence)
        parts.append(self._middle)
        parts.append(entry)
        parts.append(end)

    def append_run(
        self, parts: list[bytes], sequence_ids: Sequence[int], first_entry_id: int
    ) -> None:
        """As `append_to` for messages without a highest sequence id, in consecutive entries."""
        entry_id = first_entry_id
        for sequence_id in sequence_ids:
            sequence, entry = varint(sequence_id), varint(entry_id)
            entry_size = len(entry)
            size = len(sequence) + entry_size + _NO_HIGHEST_SIZE
            if size != self._size or entry_size != self._entry_size:
                self._prepare(size, entry_size)
            parts.append(self._head)
            parts.append(sequence)
            parts.append(self._middle)
            parts.append(entry)
            parts.append(_NO_HIGHEST_FIELD)
            entry_id += 1

    def append_consecutive(
        self, parts: list[bytes], sequence_id: int, entry_id: int, count: int
    ) -> None:
        """As `append_run` for so many messages whose sequence ids are consecutive, too. Where only
        the last seven bits of both numbers differ, the frames differ in one byte for each of them.
        They are one frame repeated, into which these bytes are put as columns."""
        while count:
            stretch = min(count, 128 - (sequence_id & 127), 128 - (entry_id & 127))
            frame_parts: list[bytes] = []
            self.append_to(frame_parts, sequence_id, -1, entry_id)
            frame = b"".join(frame_parts)
            size = len(frame)
            frames = bytearray(frame) * stretch
            low = sequence_id & 127 | (128 if sequence_id > 127 else 0)
            frames[len(frame_parts[0]) :: size] = _BYTES[low : low + stretch]
            low = entry_id & 127 | (128 if entry_id > 127 else 0)
            at = size - _NO_HIGHEST_SIZE - len(frame_parts[3])
            frames[at::size] = _BYTES[low : low + stretch]
            parts.append(bytes(frames))
            sequence_id += stretch
            entry_id += stretch
            count -= stretch

    def _prepare(self, size: int, entry_size: int) -> None:
        """For frames whose variable parts take `size` bytes, `entry_size` of them the entry id."""
        self._size, self._entry_size = size, entry_size
        self._middle = b"\x1a%b%b" % (_LAST[len(self._ledger) + entry_size], self._ledger)
        content_size = len(self._producer) + len(self._middle) + size
        self._head = _RECEIPT_HEADS[content_size] + self._producer


def _message_id(ledger_id: int, entry_id: int, partition: int) -> bytes:
    """The message id field of a MESSAGE, its tag included."""
    ledger = varint(ledger_id)
    entry = varint(entry_id)
    number = varint(partition)
    size = _LAST[3 + len(ledger) + len(entry) + len(number)]
    return b"\x12%b\x08%b\x10%b\x18%b" % (size, ledger, entry, number)


def _options(redelivery_count: int, ack_set: Sequence[int], consumer_epoch: int | None) -> bytes:
    """The fields of a MESSAGE after its message id."""
    parts = []
    if redelivery_count:
        parts.append(b"\x18" + varint(redelivery_count))
    parts.extend(b"\x20" + varint(word) for word in ack_set)
    if consumer_epoch is not None:
        parts.append(b"\x28" + varint(consumer_epoch))
    return b"".join(parts)


def message_head(
    consumer_id: int,
    ledger_id: int,
    entry_id: int,
    partition: int,
    redelivery_count: int,
    payload_size: int,
    ack_set: Sequence[int] = (),
    consumer_epoch: int | None = None,
) -> bytes:
    """The part of a MESSAGE frame in front of the stored entry, which follows it untouched.

    `payload_size` is the size of the entry, `ack_set` the words of the messages of a batch that are
    still to be delivered (none: all), `partition` the number of the partition or -1.
    """
    consumer = varint(consumer_id)
    if redelivery_count or ack_set or consumer_epoch is not None:
        content = b"\x08%b%b%b" % (
            consumer,
            _message_id(ledger_id, entry_id, partition),
            _options(redelivery_count, ack_set, consumer_epoch),
        )
        return _message_frame(content, payload_size)
    ledger = varint(ledger_id)
    entry = varint(entry_id)
    number = varint(partition)
    id_size = 3 + len(ledger) + len(entry) + len(number)
    size = 3 + len(consumer) + id_size  # always below 128
    return b"%b\x08\x09\x4a%b\x08%b\x12%b\x08%b\x10%b\x18%b" % (
        _pack_sizes(8 + size + payload_size, 4 + size),
        _LAST[size],
        consumer,
        _LAST[id_size],
        ledger,
        entry,
        number,
    )


def _message_frame(content: bytes, payload_size: int) -> bytes:
    size = varint(len(content))
    command_size = 3 + len(size) + len(content)
    return b"%b\x08\x09\x4a%b%b" % (
        _pack_sizes(4 + command_size + payload_size, command_size),
        size,
        content,
    )


def message_run_frames(
    consumer_id: int,
    ledger_id: int,
    entry_ids: list[int],
    partition: int,
    payloads: list[bytes],
    size_bytes: int,
    consumer_epoch: int | None = None,
) -> list[bytes]:
    """The buffers of MESSAGE frames of entries of one ledger, which have neither redelivery counts
    nor ack sets. `size_bytes`: of the payloads. Large ones are not copied: a buffer each, with its
    head before it. Small ones are joined, as the kernel takes one buffer faster than many."""
    if size_bytes >= _JOINED_BELOW_BYTES * len(payloads):
        buffers: list[bytes] = []
        for at, payload in enumerate(payloads):
            buffers.append(
                message_head(
                    consumer_id,
                    ledger_id,
                    entry_ids[at],
                    partition,
                    0,
                    len(payload),
                    (),
                    consumer_epoch,
                )
            )
            buffers.append(payload)
        return buffers
    return [
        _message_run(
            b"\x08" + varint(consumer_id),
            b"\x08%b\x10" % varint(ledger_id),
            b"\x18" + varint(partition),
            epoch_option(consumer_epoch),
            entry_ids,
            payloads,
        )
    ]


def epoch_option(consumer_epoch: int | None) -> bytes:
    """A consumer's epoch as `message_rest` takes it; None: the consumer gave none."""
    return b"" if consumer_epoch is None else b"\x28" + varint(consumer_epoch)


def message_rest(ledger_id: int, entry_id: int, partition: int, options: bytes) -> bytes:
    """The bytes after the consumer's id in the heads of one entry for many consumers
    (`native.broadcast.message_frames`), which have no redelivery count and no ack set. `options` is
    what `epoch_option` makes of a consumer's epoch."""
    return _message_id(ledger_id, entry_id, partition) + options
