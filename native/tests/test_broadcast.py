"""Strips of messages and runs of acknowledgements, in both forms."""

from __future__ import annotations

import time
from array import array
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from native.pure import broadcast as pure

if TYPE_CHECKING:
    from types import ModuleType

    from native.broadcast import AckTable

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
    heads = native.message_heads(slots, array("Q", IDS), rest, len(data))
    assert heads == b"".join(frames[::2])
    assert native.message_heads(numbers(), array("Q"), rest, len(data)) == b""


def test_the_largest_rest_and_payload_keep_their_sizes(native: ModuleType) -> None:
    data = bytes(70_000)
    [head, same] = native.message_frames(numbers(0), array("Q", [2**64 - 1]), bytes(100), data)
    assert same is data
    assert int.from_bytes(head[:4], "big") == 4 + int.from_bytes(head[4:8], "big") + len(data)
    assert int.from_bytes(head[4:8], "big") == len(head) - 8 == 4 + head[11]
    with pytest.raises(ValueError, match="too much"):
        native.message_frames(numbers(0), array("Q", [1]), bytes(101), data)
    with pytest.raises(ValueError, match="too much"):
        native.message_heads(numbers(0), array("Q", [1]), bytes(101), 1)


def test_a_payload_whose_size_has_no_place_in_a_frame_is_refused(native: ModuleType) -> None:
    with pytest.raises(ValueError, match="31 bits"):
        native.message_frames(numbers(0), array("Q", [1]), b"", bytes(2**32))
    for size in (-1, 2**31):
        with pytest.raises(ValueError, match="31 bits"):
            native.message_heads(numbers(0), array("Q", [1]), b"", size)


@pytest.mark.parametrize("slot", [-1, 3, 2**31 - 1, -(2**31)])
def test_a_slot_outside_of_a_column_is_refused(native: ModuleType, slot: int) -> None:
    with pytest.raises(IndexError):
        native.message_frames(numbers(0, slot), array("Q", [1, 2, 3]), b"", b"")
    with pytest.raises(IndexError):
        native.message_heads(numbers(0, slot), array("Q", [1, 2, 3]), b"", 0)
    with pytest.raises(IndexError):
        native.update_slots(numbers(0, slot), array("q", [1, 2, 3]), 1, 1, 0)


def test_slots_are_set_and_counted(native: ModuleType) -> None:
    column = array("q", [5, -6, 7, 8])
    assert native.update_slots(numbers(3, 0, 1), column, 0, 20, 2) == (20, 24)
    assert list(column) == [22, 24, 7, 20]
    assert native.update_slots(numbers(1, 2), column, 1, -10, 0) == (-3, 14)
    assert list(column) == [22, 14, -3, 20]
    assert native.update_slots(numbers(), column, 1, 0, 0) == (2**63 - 1, -(2**63))
    assert native.update_slots(numbers(2, 0, 2), column, 1, 0, 0) == (-3, 22)
    assert native.update_slots(numbers(2, 2, 0, 2), column, 1, 5, 0) == (2, 27)  # each time counts
    assert list(column) == [27, 14, 12, 20]
    assert native.update_slots(numbers(3, 3), column, 0, 9, 0) == (9, 9)
    with pytest.raises(IndexError):
        native.update_slots(numbers(0, 3, -1, 2), column, 1, 1, 0)
    assert list(column) == [28, 14, 12, 10]


def acks(consumers: list[int], position: tuple[int, int]) -> list[bytes]:
    ledger, entry = position
    content = b"\x08%b\x10%b" % (varint(ledger), varint(entry))
    tail = b"\x10\x00\x1a%c%b" % (len(content), content)
    return [head_of(10, 0x52, b"\x08" + varint(each) + tail) for each in consumers]


def tail_of(ack: bytes, consumer_size: int) -> bytes:
    return ack[13 + consumer_size :]


def table_of(native: ModuleType, numbers: dict[int, int]) -> AckTable:
    table: AckTable = native.ack_table()
    for consumer, number in numbers.items():
        table.put(consumer, number)
    return table


def test_a_run_of_acks_gives_the_numbers_of_its_consumers(native: ModuleType) -> None:
    consumers = [7, 134, 127, 128, 16_383, 16_384, 20_006, 12, *IDS[6:]]
    table = table_of(native, {each: 1000 + at for at, each in enumerate(consumers)})
    frames = acks(consumers, (3, 200))
    tail = tail_of(frames[0], 1)
    data = b"start" + b"".join(frames)
    found, end = table.take(data, 5, tail)
    assert list(array("i", found)) == list(range(1000, 1000 + len(consumers)))
    assert end == len(data)
    again, end = table.take(data[:-1], 5, tail)
    assert (again, end) == (found[:-4], len(data) - len(frames[-1]))
    assert table.take(data, len(data), tail) == (b"", len(data))


def test_a_run_ends_at_an_unknown_consumer(native: ModuleType) -> None:
    table = table_of(native, {10: 4, 12: 6, 13: 2**31 - 1})
    table.remove(13)
    for consumer, known in ((2**64 - 1, False), (9, False), (10, True), (11, False), (13, False)):
        frames = acks([12, consumer], (3, 4))
        found, end = table.take(b"".join(frames), 0, tail_of(frames[0], 1))
        assert list(array("i", found)) == ([6, 4] if known else [6])
        assert end == len(frames[0]) * (1 + known)


def test_a_run_ends_at_an_ack_of_another_entry_or_command(native: ModuleType) -> None:
    [usual] = acks([1], (3, 4))
    tail = tail_of(usual, 1)
    [other_entry] = acks([1], (3, 5))
    [larger_entry] = acks([1], (3, 500))
    for odd in (other_entry, larger_entry, head_of(9, 0x4A, b"\x08\x01" + tail)):
        table = table_of(native, {1: 5})
        assert table.take(usual + odd + usual, 0, tail) == (numbers(5).tobytes(), len(usual))


def test_an_id_with_more_bytes_than_it_needs_ends_a_run(native: ModuleType) -> None:
    [usual] = acks([1], (3, 4))
    tail = tail_of(usual, 1)
    for padded in (b"\x81\0", b"\x81\x80\0", b"\x81" + b"\x80" * 8 + b"\x02", b"\x81" * 10):
        frame = head_of(10, 0x52, b"\x08" + padded + tail)
        table = table_of(native, {1: 5})
        assert table.take(usual + frame, 0, tail) == (numbers(5).tobytes(), len(usual))
        assert table.take(frame, 0, tail) == (b"", 0)


def test_a_long_run_is_taken_whole(native: ModuleType) -> None:
    consumers = list(range(0, 80_000, 16))
    frames = acks(consumers, (3, 4))
    table = table_of(native, {each: each // 16 for each in consumers})
    found, end = table.take(b"".join(frames), 0, tail_of(frames[0], 1))
    assert list(array("i", found)) == list(range(5000))
    assert end == sum(map(len, frames))


def test_a_table_refuses_what_is_no_number(native: ModuleType) -> None:
    table = native.ack_table()
    for number in (-1, 2**31):
        with pytest.raises(OverflowError):
            table.put(1, number)
    assert len(table) == 0


ANY_ID = st.one_of(
    st.integers(0, 40),
    st.sampled_from(IDS),
    st.integers(0, 40).map(lambda each: each << 48),
    st.integers(0, 2**64 - 1),
)


@given(st.lists(st.tuples(ANY_ID, st.integers(0, 9)), max_size=200), st.lists(ANY_ID, max_size=200))
def test_a_table_knows_what_was_put_and_not_removed(
    extension: ModuleType, put: list[tuple[int, int]], removed: list[int]
) -> None:
    for native in (pure, extension):
        table, expected = native.ack_table(), dict(put)
        for consumer, number in put:
            table.put(consumer, number)
        for at, consumer in enumerate(removed):
            table.remove(consumer)
            expected.pop(consumer, None)
            if at % 3 == 0:
                table.put(consumer + 1 & 2**64 - 1, at)
                expected[consumer + 1 & 2**64 - 1] = at
        assert len(table) == len(expected)
        for consumer in {each for each, _ in put} | set(removed):
            [frame] = acks([consumer], (3, 4))
            found, _ = table.take(frame, 0, frame[13 + len(varint(consumer)) :])
            known = expected.get(consumer)
            assert list(array("i", found)) == ([] if known is None else [known])


def test_the_memory_of_a_table_follows_its_consumers_whatever_their_ids(
    extension: ModuleType,
) -> None:
    """It was a table by id, so that only ids near to each other had a place in it."""
    for distance in (1, 16, 64, 2**20, 2**48 + 1):
        table = extension.ack_table()
        empty = table.__sizeof__()
        for at in range(10_000):
            table.put(at * distance % 2**64, at)
        assert table.__sizeof__() - empty <= 10_000 * 4 * 16
        for at in range(10_000):
            table.remove(at * distance % 2**64)
        assert (len(table), table.__sizeof__()) == (0, empty)


@pytest.mark.parametrize("shift", range(0, 51, 5))
def test_ids_that_share_many_bits_are_found_as_fast_as_others(
    extension: ModuleType, shift: int
) -> None:
    """Ids are chosen by strangers. With places by their lowest bits, each of these would be looked
    for among all others."""

    def seconds_for(consumers: list[int]) -> float:
        spent = []
        for _ in range(5):
            table = extension.ack_table()
            begun = time.process_time()
            for at, consumer in enumerate(consumers):
                table.put(consumer, at)
            spent.append(time.process_time() - begun)
        return min(spent)

    others = seconds_for(list(range(8_000)))
    assert seconds_for([at << shift for at in range(8_000)]) < 20 * others


@given(
    frames=st.lists(st.sampled_from(acks([0, 1, 300, 2**63], (3, 4))), max_size=12),
    damage=st.lists(st.tuples(st.integers(0, 120), st.integers(0, 255)), max_size=3),
    cut=st.integers(0, 30),
    start=st.integers(-3, 40),
    tail_size=st.integers(0, 120),
)
def test_both_forms_take_the_same_of_any_bytes(
    extension: ModuleType,
    frames: list[bytes],
    damage: list[tuple[int, int]],
    cut: int,
    start: int,
    tail_size: int,
) -> None:
    whole = bytearray(b"".join(frames))
    tail = tail_of(acks([1], (3, 4))[0], 1)
    tail = tail[:tail_size] if tail_size < 20 else (tail * 9)[:tail_size]
    for at, byte in damage:
        if at < len(whole):
            whole[at] = byte
    data = bytes(whole[: max(0, len(whole) - cut)])
    known = {0: 7, 1: 8, 300: 9, 2**63: 10} | {each: each for each in range(3, 256)}
    taken = table_of(extension, known).take(data, start, tail)
    assert taken == table_of(pure, known).take(data, start, tail)
