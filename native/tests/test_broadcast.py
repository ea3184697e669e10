"""Strips of messages and runs of acknowledgements, in both forms."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from native.pure import broadcast as pure

if TYPE_CHECKING:
    from types import ModuleType

IDS = [0, 1, 127, 128, 16_383, 16_384, 2**32, 2**63, 2**64 - 1]


def numbers(*values: int) -> array[int]:
    return array("i", values)


def varint(value: int) -> bytes:
    groups = [value >> shift & 0x7F for shift in range(0, max(1, value.bit_length()), 7)]
    return bytes([*(group | 0x80 for group in groups[:-1]), groups[-1]])


def head_of(kind: int, field: int, content: bytes, payload_size: int = 0) -> bytes:
    """A frame with a command of which only one field of length `content` follows the type."""
    command = bytes((0x08, kind, field, len(content))) + content
    sizes = (4 + len(command) + payload_size, len(command))
    return b"".join(size.to_bytes(4, "big") for size in sizes) + command


def test_each_frame_of_a_strip_has_its_consumers_id(native: ModuleType) -> None:
    rest, data = b"\x12\x02\x08\x05", b"entry"
    slots = numbers(8, 0, 3, 3, 1, 2, 4, 5, 6, 7)
    frames = native.message_frames(slots, array("Q", IDS), rest, data)
    contents = [b"\x08" + varint(IDS[slot]) + rest for slot in slots]
    assert frames[::2] == [head_of(9, 0x4A, content, len(data)) for content in contents]
    assert frames[1::2] == [data] * len(slots)
    assert native.message_frames(numbers(), array("Q"), rest, data) == []


def test_the_largest_rest_and_payload_keep_their_sizes(native: ModuleType) -> None:
    data = bytes(70_000)
    [head, same] = native.message_frames(numbers(0), array("Q", [2**64 - 1]), bytes(100), data)
    assert same is data
    assert int.from_bytes(head[:4], "big") == 4 + int.from_bytes(head[4:8], "big") + len(data)
    assert int.from_bytes(head[4:8], "big") == len(head) - 8 == 4 + head[11]
    with pytest.raises(ValueError, match="too much"):
        native.message_frames(numbers(0), array("Q", [1]), bytes(101), data)


@pytest.mark.parametrize("slot", [-1, 3, 2**31 - 1, -(2**31)])
def test_a_slot_outside_of_a_column_is_refused(native: ModuleType, slot: int) -> None:
    with pytest.raises(IndexError):
        native.message_frames(numbers(0, slot), array("Q", [1, 2, 3]), b"", b"")
    with pytest.raises(IndexError):
        native.update_slots(numbers(0, slot), array("q", [1, 2, 3]), 1, 1, 0)


def test_slots_are_set_and_counted(native: ModuleType) -> None:
    column = array("q", [5, -6, 7, 8])
    assert native.update_slots(numbers(3, 0, 1), column, 0, 20, 2) == (20, 24)
    assert list(column) == [22, 24, 7, 20]
    assert native.update_slots(numbers(1, 2), column, 1, -10, 0) == (-3, 14)
    assert list(column) == [22, 14, -3, 20]
    assert native.update_slots(numbers(), column, 1, 0, 0) == (2**63 - 1, -(2**63))


def acks(consumers: list[int], position: tuple[int, int]) -> list[bytes]:
    ledger, entry = position
    content = b"\x08%b\x10%b" % (varint(ledger), varint(entry))
    tail = b"\x10\x00\x1a%c%b" % (len(content), content)
    return [head_of(10, 0x52, b"\x08" + varint(each) + tail) for each in consumers]


def tail_of(ack: bytes, consumer_size: int) -> bytes:
    return ack[13 + consumer_size :]


def test_a_run_of_acks_gives_the_numbers_of_its_consumers(native: ModuleType) -> None:
    table = array("i", range(1000, 21_000))
    consumers = [0, 127, 128, 16_383, 16_384, 19_999, 5]
    frames = acks([7 + each for each in consumers], (3, 200))
    tail = tail_of(frames[0], 1)
    data = b"start" + b"".join(frames)
    found, end = native.take_acks(data, 5, tail, 7, table)
    assert list(array("i", found)) == [1000 + each for each in consumers]
    assert end == len(data)
    again, end = native.take_acks(data[:-1], 5, tail, 7, table)
    assert (again, end) == (found[:-4], len(data) - len(frames[-1]))
    assert native.take_acks(data, len(data), tail, 7, table) == (b"", len(data))


def test_a_run_ends_at_an_unknown_consumer(native: ModuleType) -> None:
    table = array("i", [4, -1, 6])
    for consumer, known in ((2**64 - 1, False), (9, False), (10, True), (11, False), (13, False)):
        frames = acks([12, consumer], (3, 4))
        found, end = native.take_acks(b"".join(frames), 0, tail_of(frames[0], 1), 10, table)
        assert list(array("i", found)) == ([6, 4] if known else [6])
        assert end == len(frames[0]) * (1 + known)


def test_a_long_run_is_taken_whole(native: ModuleType) -> None:
    frames = acks(list(range(5000)), (3, 4))
    found, end = native.take_acks(
        b"".join(frames), 0, tail_of(frames[0], 1), 0, array("i", range(5000))
    )
    assert list(array("i", found)) == list(range(5000))
    assert end == sum(map(len, frames))


@given(
    frames=st.lists(st.sampled_from(acks([0, 1, 300, 2**63], (3, 4))), max_size=4),
    damage=st.lists(st.tuples(st.integers(0, 120), st.integers(0, 255)), max_size=3),
    cut=st.integers(0, 30),
    start=st.integers(-3, 40),
    tail_size=st.integers(0, 120),
    first=st.sampled_from((0, 1, 2**64 - 3)),
)
def test_both_forms_take_the_same_of_any_bytes(
    extension: ModuleType,
    frames: list[bytes],
    damage: list[tuple[int, int]],
    cut: int,
    start: int,
    tail_size: int,
    first: int,
) -> None:
    whole = bytearray(b"".join(frames))
    tail = tail_of(acks([1], (3, 4))[0], 1)
    tail = tail[:tail_size] if tail_size < 20 else (tail * 9)[:tail_size]
    for at, byte in damage:
        if at < len(whole):
            whole[at] = byte
    data = bytes(whole[: max(0, len(whole) - cut)])
    table = array("i", [7, 8, -1, *range(400)])
    taken = extension.take_acks(data, start, tail, first, table)
    assert taken == pure.take_acks(data, start, tail, first, table)
