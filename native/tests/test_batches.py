"""Batches of both forms. What protobuf reads in the same bytes: `pipeline/tests/test_rows.py`."""

from __future__ import annotations

from struct import pack
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from native.pure import batches as pure
from native.pure.batches import FIELDS, HAS_KEY, HAS_PROPERTIES, IS_NULL, IS_REMOVED, ROW

if TYPE_CHECKING:
    from types import ModuleType

same_functions = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
FLAGS = {HAS_PROPERTIES: 0x0A, IS_REMOVED: 0x20, IS_NULL: 0x48}

messages = st.fixed_dictionaries(
    {
        "payload": st.binary(max_size=300),
        "key": st.none() | st.binary(max_size=200),
        "event_time_ms": st.integers(0, 2**63 - 1),
        "sequence_id": st.integers(0, 2**63 - 1),
        "flags": st.sets(st.sampled_from(sorted(FLAGS))).map(sum),
    }
)


def varint(value: int) -> bytes:
    encoded = b""
    while value > 0x7F:
        encoded += bytes([value & 0x7F | 0x80])
        value >>= 7
    return encoded + bytes([value])


def in_batch(metadata: bytes, payload: bytes) -> bytes:
    return pack(">I", len(metadata)) + metadata + payload


def encoded(message: dict[str, Any]) -> bytes:
    metadata = b"\x18" + varint(len(message["payload"])) + b"\x40" + varint(message["sequence_id"])
    for flag, tag in FLAGS.items():
        if message["flags"] & flag:
            metadata += bytes([tag, 1]) + (b"?" if tag == 0x0A else b"")
    if message["key"] is not None:
        metadata += b"\x12" + varint(len(message["key"])) + message["key"]
    metadata += b"\x28" + varint(message["event_time_ms"]) + b"\x3a\x01o\x30\x00\x50\x01"
    return in_batch(metadata, message["payload"])


def rows_of(native: ModuleType, content: bytes, count: int) -> list[dict[str, int]]:
    table, flags = native.batch_rows(content, count)
    rows = [dict(zip(FIELDS, row, strict=True)) for row in ROW.iter_unpack(table)]
    assert len(rows) == count
    every = 0
    for row in rows:
        every |= row["flags"]
    assert flags == every
    return rows


@given(batch=st.lists(messages, max_size=5))
@same_functions
def test_places_and_values_are_those_of_the_messages(
    native: ModuleType, batch: list[dict[str, Any]]
) -> None:
    content = b"".join([encoded(each) for each in batch])
    end = 0
    rows = rows_of(native, content, len(batch))
    for index, (row, message) in enumerate(zip(rows, batch, strict=True)):
        assert row["index"] == index
        assert row["metadata"] == end + 4
        assert content[row["payload"] : row["payload_end"]] == message["payload"]
        assert row["event_time_ms"] == message["event_time_ms"]
        assert content[row["key"] : row["key_end"]] == (message["key"] or b"")
        assert row["flags"] == message["flags"] | HAS_KEY * (message["key"] is not None)
        assert end <= row["key"] <= row["key_end"] <= row["payload"] <= row["payload_end"]
        end = row["payload_end"]


@given(batch=st.lists(messages, min_size=1, max_size=3), data=st.data())
@same_functions
def test_damage_is_seen_alike(
    native: ModuleType, batch: list[dict[str, Any]], data: st.DataObject
) -> None:
    content = bytearray(b"".join([encoded(each) for each in batch]))
    place = data.draw(st.integers(0, len(content) - 1))
    content[place] = data.draw(st.integers(0, 255))
    cut = bytes(content[: data.draw(st.integers(0, len(content)))])
    count = data.draw(st.integers(0, len(batch) + 1))
    assert native.batch_rows(cut, count) == pure.batch_rows(cut, count)


@given(content=st.binary(max_size=60), count=st.integers(-1, 4))
@example(content=b"\xff\xff\xff\xff" + b"\x18\x00" * 4, count=1)
@example(content=b"\x00\x00\x00\x02\x18\x00" * 2, count=3)
@same_functions
def test_any_bytes_are_seen_alike(native: ModuleType, content: bytes, count: int) -> None:
    assert native.batch_rows(content, count) == pure.batch_rows(content, count)


@pytest.mark.parametrize(
    "metadata",
    [
        b"",
        b"\x40\x01",
        b"\x18\x00\x30\x01",
        b"\x18\x00\x58\x01",
        b"\x18\x00\x28" + b"\xff" * 9 + b"\x01",
        b"\x18\xff\xff\xff\xff\x0f",
        b"\x18\x00\x98\x01\x00",
        b"\x18\x00\x12\x03ab",
        b"\x18\x00\x12",
        b"\x18\x80",
        b"\x18\x05",
    ],
    ids=[
        "nothing",
        "no size of the payload",
        "key in base64",
        "unknown field",
        "time of 64 bits",
        "size of 32 bits",
        "tag of two bytes",
        "key past the end",
        "tag at the end",
        "unfinished number",
        "payload past the end",
    ],
)
def test_what_is_not_usual_is_left_to_protobuf(native: ModuleType, metadata: bytes) -> None:
    usual = in_batch(b"\x18\x00", b"")
    assert native.batch_rows(in_batch(metadata, b"abcd"), 1) is None
    assert native.batch_rows(usual + in_batch(metadata, b"abcd"), 2) is None


def test_the_last_of_a_repeated_field_counts(native: ModuleType) -> None:
    metadata = b"\x18\x09\x12\x01a\x48\x01\x12\x01b\x48\x00\x18\x02"
    (row,) = rows_of(native, in_batch(metadata, b"xy"), 1)
    assert (row["payload_end"] - row["payload"], row["flags"]) == (2, HAS_KEY)
    assert row["key_end"] - row["key"] == 1


@pytest.mark.parametrize(
    ("content", "count"), [(b"", -1), (b"", 1), (b"", 2**62), (b"\x00" * 5, 1)]
)
def test_counts_without_room_are_refused(native: ModuleType, content: bytes, count: int) -> None:
    assert native.batch_rows(content, count) is None
    assert native.batch_rows(b"", 0) == (b"", 0)
