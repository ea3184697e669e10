"""Runs of SENDs, in both forms: the columns are what the frames say."""

from __future__ import annotations

from array import array
from struct import pack
from typing import TYPE_CHECKING

import pytest
from crc32c import crc32c
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from native.frames import (
    ARE_CONSECUTIVE,
    ARE_SINGLE,
    PAYLOAD_BYTES_MAX,
    PAYLOAD_BYTES_MIN,
    RUN_BYTES_MAX,
    RUN_MESSAGES_MAX,
)
from native.pure import sends as pure

if TYPE_CHECKING:
    from types import ModuleType

same_functions = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
LIMIT = 100_000
METADATA = b"\x0a\x01p\x10\x05\x18\x07"
"""Producer, sequence id, publish time."""


def varint(value: int) -> bytes:
    encoded = b""
    while value > 0x7F:
        encoded += bytes([value & 0x7F | 0x80])
        value >>= 7
    return encoded + bytes([value])


def payload(
    metadata: bytes = METADATA, content: bytes = b"content", *, checked: bool = True
) -> bytes:
    body = pack(">I", len(metadata)) + metadata + content
    return b"\x0e\x01" + pack(">I", crc32c(body)) + body if checked else body


def frame(payload: bytes, sequence_id: int = 1, producer_id: int = 3, more: bytes = b"") -> bytes:
    send = b"\x08" + varint(producer_id) + b"\x10" + varint(sequence_id) + more
    command = b"\x08\x06\x32" + bytes([len(send)]) + send
    return pack(">II", 4 + len(command) + len(payload), len(command)) + command + payload


def columns(native: ModuleType, data: bytes, start: int = 0, limit: int = LIMIT) -> list[object]:
    """All answers, sequence ids as numbers."""
    found = pure.SendColumns(*native.read_sends(data, start, limit))
    numbers = array("q", found.sequence_ids)
    assert len(numbers) == len(found.payloads)
    assert found.size_bytes == sum(map(len, found.payloads))
    assert (found.producer_id == -1) == (not found.payloads)
    return [*found[:1], list(numbers), *found[2:]]


PAYLOADS = st.one_of(
    st.builds(payload, content=st.binary(max_size=2000), checked=st.booleans()),
    st.binary(min_size=8, max_size=40),
    st.builds(payload, metadata=st.binary(max_size=30)),
    st.just(payload()[:-1] + b"!"),
    st.just(b"\x0e\x02" + payload()),
)
FRAMES = st.one_of(
    st.builds(frame, PAYLOADS, st.integers(0, 300) | st.integers(2**60, 2**64 - 1)),
    st.builds(frame, PAYLOADS, producer_id=st.sampled_from([3, 3, 4, 300])),
    st.builds(frame, PAYLOADS, more=st.sampled_from([b"\x18\x09", b"\x30\x09", b"\x38\x01"])),
    st.just(pack(">II", 8, 4) + b"\x08\x12\x92\x01"),
)


@given(frames=st.lists(FRAMES, max_size=8), cut=st.integers(0, 30), start=st.integers(-1, 3))
@same_functions
def test_any_frames_have_the_same_columns_in_both_forms(
    native: ModuleType, frames: list[bytes], cut: int, start: int
) -> None:
    data = b"".join(frames)
    data = data[: len(data) - cut]
    assert columns(native, data, start) == columns(pure, data, start)


@given(
    frames=st.lists(FRAMES, min_size=1, max_size=4),
    changes=st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), max_size=5),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=300)
def test_damaged_frames_have_the_same_columns_in_both_forms(
    native: ModuleType, frames: list[bytes], changes: list[tuple[int, int]]
) -> None:
    data = bytearray(b"".join(frames))
    for at, value in changes:
        if at < len(data):
            data[at] = value
    assert columns(native, bytes(data)) == columns(pure, bytes(data))


@given(st.binary(max_size=200), st.integers(-5, 210), st.integers(-1, 300))
@same_functions
def test_arbitrary_bytes_have_the_same_columns_in_both_forms(
    native: ModuleType, data: bytes, start: int, limit: int
) -> None:
    assert columns(native, data, start, limit) == columns(pure, data, start, limit)


def test_the_columns_of_a_long_run(native: ModuleType) -> None:
    numbers = [0, 127, 128, 2**40, 2**63 - 1, *range(500)]
    payloads = [payload(content=b"%04d" % number) for number in range(len(numbers))]
    data = b"".join(map(frame, payloads, numbers))
    size = len(payloads[0])
    found = columns(native, b"before" + data + b"after", 6)
    assert found == [3, numbers, payloads, size * len(numbers), size, 1, 6 + len(data)]


def test_a_run_has_a_bound(native: ModuleType) -> None:
    """All messages of a run are handled in one turn of the event loop."""
    each = frame(payload())
    found = columns(native, each * (RUN_MESSAGES_MAX + 1))
    assert (len(found[2]), found[6]) == (RUN_MESSAGES_MAX, RUN_MESSAGES_MAX * len(each))
    assert len(columns(native, each * RUN_MESSAGES_MAX + each[:-1])[2]) == RUN_MESSAGES_MAX
    large = payload(content=bytes(60_000))
    found = columns(native, frame(large) * 6)
    assert (len(found[2]), found[6]) == (5, 5 * len(frame(large)))
    assert RUN_BYTES_MAX <= found[3] < RUN_BYTES_MAX + len(large)


def raw_frame(command: bytes, payload: bytes) -> bytes:
    return pack(">II", 4 + len(command) + len(payload), len(command)) + command + payload


def raw_send(content: bytes) -> bytes:
    return raw_frame(b"\x08\x06\x32" + bytes([len(content)]) + content, payload())


@pytest.mark.parametrize(
    "odd",
    [
        raw_frame(b"\x08\x06\x32", b"\xff" + payload()),
        raw_frame(b"\x08\x07\x32\x04\x08\x03\x10\x01", payload()),
        raw_frame(b"\x08\x06\x32\x04\x08\x03\x10\x01\x48\x01", payload()),
        frame(payload(), more=b"\x18\x01" * 29),
        frame(payload(), more=b"\x20\x01"),
        raw_send(b"\x10\x01"),
        raw_send(b"\x08\x03"),
        frame(payload(content=bytes(PAYLOAD_BYTES_MAX))),
        frame(bytes(PAYLOAD_BYTES_MIN - 1)),
        frame(payload(), producer_id=4),
        frame(b"\x0e\x02" + payload()),
    ],
    ids=[
        "command without room for its start",
        "another command",
        "field after the SEND",
        "command of more than 64 bytes",
        "unknown field",
        "no producer",
        "no sequence id",
        "payload too large",
        "payload too small",
        "another producer",
        "metadata of a broker",
    ],
)
def test_what_is_no_usual_send_of_the_producer_ends_the_run(native: ModuleType, odd: bytes) -> None:
    usual = frame(payload())
    assert columns(native, usual + odd + usual)[6] == len(usual)


def test_the_largest_usual_send_is_taken_and_no_frame_above_the_limit(native: ModuleType) -> None:
    bare = len(payload(content=b""))
    largest = frame(
        payload(content=bytes(PAYLOAD_BYTES_MAX - bare)), 2**63 - 1, more=b"\x18\x01" * 24
    )
    assert int.from_bytes(largest[4:8], "big") == 64
    assert columns(native, largest, limit=len(largest))[6] == len(largest)
    assert columns(native, largest, limit=len(largest) - 1)[6] == 0
    usual = frame(payload())
    assert columns(native, usual + largest, limit=len(usual))[6] == len(usual)


def test_a_checksum_that_does_not_fit_ends_the_run(native: ModuleType) -> None:
    sound = payload(content=bytes(900))
    for at in (2, 6, len(sound) - 1):
        damaged = bytearray(sound)
        damaged[at] ^= 1
        data = frame(sound) * 2 + frame(bytes(damaged)) + frame(sound)
        assert columns(native, data)[2:] == [
            [sound] * 2,
            2 * len(sound),
            len(sound),
            1,
            2 * len(frame(sound)),
        ]


@pytest.mark.parametrize(
    ("metadata", "is_single"),
    [
        (METADATA, 1),
        (
            METADATA
            + b"\x32\x01k\x48\x09\x60\x01\x82\x01\x01v\x88\x01\x01\x92\x01\x01o\x98\x01\x05",
            1,
        ),
        (METADATA + b"\x58\x02", 0),  # a batch
        (METADATA + b"\x22\x00", 0),  # a property that is none
        (METADATA + b"\xa0\x01\x01", 0),  # a marker
        (METADATA[:-2], 0),
        (METADATA + b"\x10" + b"\xff" * 9 + b"\x01", 0),
        (b"", 0),
    ],
)
def test_only_what_surely_is_one_message_need_not_be_counted(
    native: ModuleType, metadata: bytes, is_single: int
) -> None:
    each = payload(metadata, bytes(20))
    assert columns(native, frame(each))[5] & ARE_SINGLE == is_single
    assert columns(native, frame(payload()) + frame(each))[5] & ARE_SINGLE == is_single
    assert columns(native, frame(each) + frame(payload()))[5] & ARE_SINGLE == is_single


def test_sizes_that_differ_are_no_size(native: ModuleType) -> None:
    one, other = payload(), payload(content=b"longer content")
    assert columns(native, frame(one) * 2)[4] == len(one)
    assert columns(native, frame(one) + frame(other) + frame(one))[4] == 0
    assert columns(native, frame(one) + frame(other) * 2)[4] == 0


@pytest.mark.parametrize(
    ("numbers", "are_consecutive"),
    [([5], True), ([0, 1, 2], True), ([2**63 - 2, 2**63 - 1], True), ([1, 1], False)]
    + [([1, 2, 4], False), ([3, 2], False), ([2**63 - 1, 0], False)],
)
def test_consecutive_sequence_ids_are_noticed(
    native: ModuleType, numbers: list[int], are_consecutive: bool
) -> None:
    data = b"".join(frame(payload(), number) for number in numbers)
    assert columns(native, data)[5] == ARE_SINGLE | ARE_CONSECUTIVE * are_consecutive


def test_what_is_not_bytes_is_refused(native: ModuleType) -> None:
    for data in (bytearray(frame(payload())), memoryview(b""), None):
        with pytest.raises(TypeError, match="bytes"):
            native.read_sends(data, 0, LIMIT)
