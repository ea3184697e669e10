"""Heads of runs of entries, and their records, in both forms."""

from __future__ import annotations

from mmap import mmap
from struct import pack
from typing import TYPE_CHECKING

import pytest
from crc32c import crc32c
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

if TYPE_CHECKING:
    from types import ModuleType

same_functions = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
numbers = st.integers(0, 2**62)
LARGE = bytes(range(256)) * 300


def with_checksum(content: bytes) -> bytes:
    return b"\x0e\x01" + pack(">I", crc32c(content)) + content


checked = st.one_of(
    st.binary(max_size=3000), st.integers(0, len(LARGE)).map(lambda size: LARGE[:size])
).map(with_checksum)
bodies_of_records = st.tuples(st.binary(max_size=60), st.binary(max_size=2000))


@given(
    ledger_id=numbers,
    first=numbers,
    confirmed=st.integers(-1, 2**62),
    length=numbers,
    payloads=st.lists(st.binary(max_size=3000) | checked, max_size=6),
    are_intact=st.booleans(),
)
@same_functions
def test_a_body_is_metadata_digest_and_the_payload_itself(
    native: ModuleType,
    ledger_id: int,
    first: int,
    confirmed: int,
    length: int,
    payloads: list[bytes],
    are_intact: bool,
) -> None:
    bodies = native.crc32c_bodies(ledger_id, first, confirmed, length, payloads, are_intact)
    assert len(bodies) == len(payloads)
    for number, (head, payload) in enumerate(bodies):
        length += len(payload)
        metadata = pack(">qqqq", ledger_id, first + number, confirmed, length)
        assert head == metadata + pack(">I", crc32c(metadata + payload))
        assert payload is payloads[number]


@pytest.mark.parametrize("at", [0, 2, 5, 6, 100, 80_000])
def test_a_bit_that_flips_after_the_check_is_found_when_the_entry_is_read(
    native: ModuleType, at: int
) -> None:
    sound = with_checksum(LARGE + LARGE)
    flipped = bytearray(sound)
    flipped[at] ^= 1
    # Without its magic there is no checksum to derive the digest from: it is made from the bytes.
    is_covered = at >= 2
    [(head, payload)] = native.crc32c_bodies(1, 2, 3, 4, [bytes(flipped)], True)
    assert (pack(">I", crc32c(head[:32] + payload)) != head[32:]) == is_covered
    [(head, payload)] = native.crc32c_bodies(1, 2, 3, 4, [bytes(flipped)], False)
    assert pack(">I", crc32c(head[:32] + payload)) == head[32:]


def test_a_payload_without_a_checksum_gets_the_digest_of_its_bytes(native: ModuleType) -> None:
    payloads = [b"", b"\x0e\x01", b"\x0e\x01abc", b"\x0e\x02abcdef", b"neither checksum nor magic"]
    assert native.crc32c_bodies(1, 2, 3, 4, payloads, True) == native.crc32c_bodies(
        1, 2, 3, 4, payloads, False
    )


@given(
    bodies=st.lists(bodies_of_records, max_size=6),
    at=st.integers(3, 40),
    checksum=st.integers(0, 2**32 - 1),
    room=st.integers(-3, 100),
)
@same_functions
def test_records_are_copied_one_after_the_other_and_nothing_else_is_touched(
    native: ModuleType, bodies: list[tuple[bytes, bytes]], at: int, checksum: int, room: int
) -> None:
    records = b"".join(pack(">i", len(h) + len(p)) + h + p for h, p in bodies if h or p)
    into = bytearray(b"." * (at + len(records) + room))
    if room < 0:
        with pytest.raises(ValueError, match="room"):
            native.put_records(bodies, into, at, checksum)
        return
    end = at + len(records)
    assert native.put_records(bodies, into, at, checksum) == (end, crc32c(records, checksum))
    assert into == b"." * at + records + b"." * room


@pytest.mark.parametrize("sizes", [[12_288], [12_287, 1], [40_000, 0, 5], [300, 30_000, 12_240]])
def test_large_records_are_copied_and_summed_in_stretches(
    native: ModuleType, sizes: list[int]
) -> None:
    bodies = [(b"h" * 36, LARGE[:size]) for size in sizes]
    records = b"".join(pack(">i", len(h) + len(p)) + h + p for h, p in bodies)
    into = memoryview(bytearray(len(records)))
    assert native.put_records(bodies, into, 0, 7) == (len(records), crc32c(records, 7))
    assert into == records


@pytest.mark.parametrize(
    "body",
    [None, b"hp", (b"h",), (b"h", b"p", b""), (b"h", "p"), (bytearray(b"h"), b"p"), [b"h", b"p"]],
)
def test_what_is_no_pair_of_bytes_is_no_record(native: ModuleType, body: object) -> None:
    with pytest.raises(ValueError, match="pairs of bytes"):
        native.put_records([(b"h", b"p"), body], bytearray(100), 0, 0)


@pytest.mark.parametrize("at", [-1, 11, 2**62])
def test_records_do_not_go_outside_of_the_buffer(native: ModuleType, at: int) -> None:
    for bodies in ([], [(b"", b"")], [(b"h", b"p")]):
        with pytest.raises(ValueError, match="room"):
            native.put_records(bodies, bytearray(10), at, 0)


def test_a_record_whose_size_has_no_place_in_it_is_refused(native: ModuleType) -> None:
    bodies = [(b"head", bytes(2**31))]
    with mmap(-1, 2**31 + 8) as into, pytest.raises(ValueError, match="room"):
        native.put_records(bodies, into, 0, 0)


@pytest.mark.parametrize("payloads", [[b"one", None], [bytearray(b"one")], [b"one", "two"]])
def test_a_payload_that_is_not_bytes_is_refused(native: ModuleType, payloads: list) -> None:
    with pytest.raises(TypeError, match="expected bytes"):
        native.crc32c_bodies(1, 2, 3, 4, payloads, False)


def test_what_is_no_list_and_too_large_numbers_are_refused(native: ModuleType) -> None:
    with pytest.raises((TypeError, ValueError, OverflowError)):
        native.crc32c_bodies(1, 2, 3, 4, None, False)
    with pytest.raises(Exception, match="int"):
        native.crc32c_bodies(2**64, 2, 3, 4, [b""], False)
