"""An entry log read without its index: every intact entry is found, and its end is classified."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bookie import entry_log_format as fmt
from bookie.entry_log_scan import CHECKED_BYTES_MIN, LogScan
from bookie.tests.conftest import whole
from protocol.bookkeeper.digests import Digest, DigestType

PAYLOADS = st.lists(st.binary(max_size=80) | st.just(bytes(700)), min_size=1, max_size=8)


def record(body):
    return len(body).to_bytes(4, "big") + body


def records_of(payloads):
    return [record(whole(7, entry_id, payload)) for entry_id, payload in enumerate(payloads)]


def scan_of(log, start=0):
    return LogScan(lambda offset, size: log[offset : offset + size], start, len(log))


def ids(found):
    return [entry_id for _ledger_id, entry_id, _offset, _length in found]


@given(PAYLOADS)
def test_whole_logs_are_intact_to_the_end(payloads):
    log = b"".join(records_of(payloads)) + fmt.encode_ledgers_map({7: 100})
    scan = scan_of(log)
    assert ids(scan.intact) == list(range(len(payloads)))
    assert (scan.intact_end, scan.strays, scan.torn) == (len(log), [], False)
    for ledger_id, entry_id, offset, length in scan.intact:
        assert log[offset : offset + length] == whole(ledger_id, entry_id, payloads[entry_id])


@given(PAYLOADS, st.data())
def test_a_cut_log_is_torn(payloads, data):
    records = records_of(payloads)
    log = b"".join(records)
    cut = data.draw(st.integers(len(log) - len(records[-1]) + 1, len(log) - 1))
    zeros = data.draw(st.sampled_from([0, 5000])) if cut < len(log) - len(records[-1]) + 4 else 0
    scan = scan_of(log[:cut] + bytes(zeros))
    assert ids(scan.intact) == list(range(len(payloads) - 1))
    assert scan.intact_end == len(log) - len(records[-1])
    assert scan.torn or zeros


@given(PAYLOADS, st.data())
def test_a_flipped_bit_hides_one_entry_and_is_no_torn_tail(payloads, data):
    records = records_of(payloads)
    log = bytearray(b"".join(records))
    damaged = data.draw(st.integers(0, len(records) - 1))
    start = sum(map(len, records[:damaged]))
    log[start + data.draw(st.integers(0, len(records[damaged]) - 1))] ^= 1 << data.draw(
        st.integers(0, 7)
    )
    scan = scan_of(bytes(log))
    assert ids(scan.intact) == list(range(damaged))
    assert ids(scan.strays) == list(range(damaged + 1, len(records)))
    assert scan.intact_end == start
    assert not scan.torn


def test_zeros_to_the_end_are_torn():
    log = b"".join(records_of([b"one", b"two"]))
    scan = scan_of(log + bytes(10_000))
    assert (len(scan.intact), scan.intact_end, scan.torn) == (2, len(log), True)


def test_entries_whose_digest_needs_a_key_are_not_called_torn():
    payload = b"signed"
    head = Digest(DigestType.HMAC, b"secret").head(7, 0, -1, len(payload), payload)
    scan = scan_of(record(head + payload))
    assert (scan.intact, scan.torn) == ([], False)


def test_a_crc32_is_as_good_as_a_crc32c():
    payload = b"older"
    head = Digest(DigestType.CRC32).head(7, 0, -1, len(payload), payload)
    assert ids(scan_of(record(head + payload)).intact) == [0]


def test_a_payload_that_looks_like_heads_of_records_bounds_the_search():
    """Numbers of 8 bytes, as telemetry has them: a torn record of 5 MB took minutes at a start."""
    payload = b"".join((number % 200).to_bytes(8, "little") for number in range(1 << 17))
    log = b"".join(records_of([b"before", payload]))[:-100]
    checked = []

    def is_intact(body):
        checked.append(len(body))
        return len(checked) == 1

    scan = LogScan(lambda at, size: log[at : at + size], 0, len(log), is_intact)
    assert ids(scan.intact) == [0]
    assert sum(checked) <= CHECKED_BYTES_MIN + len(log)
    assert not scan.torn, "it has not been searched to its end"
    assert scan.damaged_bytes == len(log) - scan.intact_end
