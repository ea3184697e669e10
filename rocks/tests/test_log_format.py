"""Any flipped bit is damage, any cut is a torn tail, and neither is taken for the other."""

from __future__ import annotations

from struct import pack

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from rocks.log_format import BLOCK_SIZE, HEADER_SIZE, SECTOR_SIZE, LogDamage, LogScan, mask_crc
from rocks.manifest import BatchOrder, Manifest, UnreadableRecord

LOG_NUMBER = 7


def part(kind, payload, log_number=None):
    covered = bytes([kind]) + (b"" if log_number is None else pack("<I", log_number)) + payload
    return pack("<IH", mask_crc(crc32c(covered)), len(payload)) + covered


def log_of(records):
    """As RocksDB writes it: a part never crosses a block."""
    log = bytearray()
    for record in records:
        first = True
        while True:
            space = BLOCK_SIZE - len(log) % BLOCK_SIZE
            if space < HEADER_SIZE:
                log += bytes(space)
                space = BLOCK_SIZE
            payload, record = record[: space - HEADER_SIZE], record[space - HEADER_SIZE :]
            log += part({(1, 1): 1, (1, 0): 2, (0, 0): 3, (0, 1): 4}[first, not record], payload)
            first = False
            if not record:
                break
    return bytes(log)


def scan_of(log):
    return LogScan(lambda offset, size: log[offset : offset + size], len(log), LOG_NUMBER)


RECORDS = st.lists(
    st.tuples(st.integers(0, 3 * BLOCK_SIZE), st.integers(1, 255)).map(
        lambda drawn: (bytes(range(1, 256)) * (drawn[0] // 255 + 1))[: drawn[0]]
    )
    | st.binary(min_size=0, max_size=60),
    min_size=1,
    max_size=6,
)


@given(RECORDS)
def test_what_is_written_is_read(records):
    scan = scan_of(log_of(records))
    assert [record for _offset, record in scan.records()] == records
    assert not scan.torn


@given(RECORDS, st.data())
def test_a_flipped_bit_is_damage(records, data):
    log = bytearray(log_of(records))
    log[data.draw(st.integers(0, len(log) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(LogDamage):
        list(scan_of(bytes(log)).records())


def test_each_bit_of_small_records_is_told_from_a_torn_tail():
    log = log_of([b"one", b"", b"a longer one of some bytes"])
    for offset in range(len(log)):
        for bit in range(8):
            flipped = bytearray(log)
            flipped[offset] ^= 1 << bit
            with pytest.raises(LogDamage):
                list(scan_of(bytes(flipped)).records())


@given(RECORDS, st.data())
def test_a_cut_leaves_the_records_before_it(records, data):
    log = log_of(records)
    cut = data.draw(st.integers(0, len(log)))
    scan = scan_of(log[:cut])
    found = [record for _offset, record in scan.records()]
    assert found == records[: len(found)]
    whole = log_of(found)
    if scan.torn:
        assert scan.end_offset == len(whole)
        assert scan.dropped_bytes == cut - len(whole) > 0
    else:
        assert len(whole) <= cut < len(whole) + HEADER_SIZE
    assert len(log_of(records[: len(found) + 1])) > cut or found == records


@given(RECORDS, st.integers(1, 3 * SECTOR_SIZE))
def test_reserved_zeros_are_a_torn_tail(records, zeros):
    log = log_of(records)
    scan = scan_of(log + bytes(zeros))
    assert [record for _offset, record in scan.records()] == records
    in_block_end = -len(log) % BLOCK_SIZE < HEADER_SIZE
    assert scan.torn or in_block_end


def test_sectors_that_never_reached_the_disk_are_a_torn_tail():
    log = log_of([b"x" * 100, b"y" * 2000])
    scan = scan_of(log[: 2 * SECTOR_SIZE].ljust(len(log), b"\0"))
    assert [record for _offset, record in scan.records()] == [b"x" * 100]
    assert (scan.torn, scan.end_offset) == (True, 107)
    log = log_of([b"x" * (SECTOR_SIZE - HEADER_SIZE - 3), b"y" * 2000])
    scan = scan_of(log[:SECTOR_SIZE].ljust(len(log), b"\0"))
    assert len(list(scan.records())) == 1
    assert (scan.torn, scan.end_offset) == (True, SECTOR_SIZE - 3)


def test_zeros_in_the_middle_are_damage():
    log = log_of([b"x" * 100, b"y" * 2000, b"z" * 100])
    with pytest.raises(LogDamage):
        list(scan_of(log[:512] + bytes(1024) + log[1536:]).records())


def test_a_record_of_another_log_is_damage():
    assert [r for _o, r in scan_of(part(5, b"mine", LOG_NUMBER)).records()] == [b"mine"]
    with pytest.raises(LogDamage, match="a record of log 6"):
        list(scan_of(part(5, b"an older one", LOG_NUMBER - 1)).records())


def test_batches_follow_one_another_without_a_gap():
    batches = BatchOrder(11)
    batches.follow(pack("<QI", 9, 3) + b"...")
    batches.follow(pack("<QI", 12, 0))
    batches.follow(pack("<QI", 12, 2))
    with pytest.raises(UnreadableRecord, match="sequence 15 instead of 14"):
        batches.follow(pack("<QI", 15, 1))
    with pytest.raises(UnreadableRecord, match="not a batch"):
        batches.follow(b"short")


def test_an_edit_that_cannot_be_understood_is_refused():
    manifest = Manifest()
    manifest.apply(bytes([2, 9, 4, 100]))
    assert (manifest.log_number, manifest.last_sequence) == (9, 100)
    for edit in (bytes([50]), bytes([2]), bytes([1, 30]) + b"short", bytes([200, 1, 1])):
        with pytest.raises(UnreadableRecord):
            manifest.apply(edit)
