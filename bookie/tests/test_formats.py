"""The journal and entry log formats: what is written is read, and only torn bytes are dropped."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookie import entry_log_format as log_fmt
from bookie import journal_format as fmt
from bookie.errors import Corruption
from bookie.tests.conftest import whole

SALT = 0x1122334455667788
records = st.lists(
    st.builds(whole, st.integers(0, 9), st.integers(0, 99), st.binary(max_size=700)),
    min_size=1,
    max_size=5,
)


def journal_of(groups, alignment=512, flags=fmt.FLAG_PREVIOUS_SYNCED):
    """(file, starts of groups)."""
    data = fmt.encode_header(alignment, SALT)
    starts = []
    for sequence, group in enumerate(groups):
        starts.append(len(data))
        start = len(data)
        written = b"".join(fmt.pack_length(len(record)) + record for record in group)
        checksum = fmt.group_checksum(written, SALT)
        group = bytearray(written).ljust(len(written) + fmt.GROUP_EXTRA_BYTES + alignment, b"x")
        end = fmt.put_group_end(group, len(written), start, sequence, alignment, flags, checksum)
        data += group[:end]
        assert len(data) % alignment == 0
    return data, starts


def scan(data, start=0):
    header = fmt.decode_header(data[:512], "f")
    journal = fmt.JournalScan("f", lambda o, n: data[o : o + n], len(data), header, start)
    return journal, [list(group) for group in journal.groups()]


@given(st.lists(records, max_size=4), st.sampled_from([512, 4096]), st.integers(0, 5000))
def test_groups_come_back_whatever_zeros_follow(groups, alignment, zeros):
    data, _starts = journal_of(groups, alignment)
    journal, found = scan(data + bytes(zeros))
    assert found == groups
    assert journal.end is fmt.ScanEnd.CLEAN
    assert journal.end_offset == len(data)


@given(st.lists(records, min_size=1, max_size=3), st.data())
def test_a_torn_last_group_is_dropped_whole_and_nothing_else(groups, data):
    content, starts = journal_of(groups)
    cut = data.draw(st.integers(starts[-1], len(content) - 4))
    torn = content[:cut] + bytes(data.draw(st.sampled_from([0, 1000])))
    if torn.startswith(content):
        return  # what was cut off was zeros, so nothing is torn
    journal, found = scan(torn)
    assert found == groups[:-1]
    assert journal.end_offset == starts[-1]
    if any(torn[starts[-1] :]):
        assert journal.end is fmt.ScanEnd.TORN
        assert journal.dropped_bytes > 0


@given(st.lists(records, min_size=2, max_size=4), st.data())
def test_damage_before_a_good_group_is_damage(groups, data):
    content, starts = journal_of(groups)
    victim = data.draw(st.integers(0, len(groups) - 2))
    at = data.draw(st.integers(starts[victim], starts[victim + 1] - 1))
    broken = bytearray(content)
    broken[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises(Corruption) as caught:
        scan(bytes(broken))
    assert caught.value.offset == starts[victim]


@given(st.lists(records, min_size=1, max_size=3), st.data())
def test_a_last_group_that_lacks_a_sector_is_torn(groups, data):
    """The power goes: of the sectors of the last write any may be missing."""
    content, starts = journal_of(groups)
    sectors = range(starts[-1], len(content), 512)
    torn = bytearray(content)
    for at in data.draw(st.sets(st.sampled_from(sectors), min_size=1)):
        torn[at : at + 512] = bytes(512)
    if torn == content:
        return
    journal, found = scan(bytes(torn))
    assert found == groups[:-1]
    if any(torn[starts[-1] :]):
        assert journal.end is fmt.ScanEnd.TORN


def body_without_zeros(blob):
    return whole(1, 0, b"x" + blob.replace(b"\0", b"."))


full = st.lists(st.binary(max_size=2000).map(body_without_zeros), min_size=1, max_size=4)


@given(st.lists(full, min_size=1, max_size=3), st.data())
def test_a_flipped_bit_in_the_last_group_is_damage(groups, data):
    """It was acknowledged: dropping it as a torn tail would lose it without a word."""
    content, starts = journal_of(groups)
    bit = data.draw(st.integers(8 * starts[-1], 8 * len(content) - 1))
    broken = bytearray(content)
    broken[bit // 8] ^= 1 << bit % 8
    with pytest.raises(Corruption) as caught:
        scan(bytes(broken))
    assert caught.value.offset == starts[-1]


@pytest.mark.parametrize("size_bytes", [0, 2, 400, 500, 700, 1500])
def test_a_flipped_bit_in_the_head_of_the_padding_is_damage(size_bytes):
    """Also one that makes the padding end within its own zeros, or at another sector."""
    content, starts = journal_of([[whole(1, 0)], [body_without_zeros(b"x" * size_bytes)]])
    head = content.index(b"\xff\xff\xff\x00", starts[-1] + 37 + size_bytes)
    for bit in range(8 * head, 8 * head + 64):
        broken = bytearray(content)
        broken[bit // 8] ^= 1 << bit % 8
        with pytest.raises(Corruption) as caught:
            scan(bytes(broken))
        assert caught.value.offset == starts[-1]


def test_a_flipped_bit_in_the_header_is_damage_or_changes_nothing():
    for previous in (None, (SALT + 1, 1 << 20)):
        header_flips(fmt.encode_header(512, SALT, previous), previous)


def header_flips(content, previous):
    header = fmt.decode_header(content, "f")
    assert header.previous == previous
    for bit in range(8 * 512):
        broken = bytearray(content)
        broken[bit // 8] ^= 1 << bit % 8
        if bit < 8 * 48:
            with pytest.raises(Corruption):
                fmt.decode_header(bytes(broken), "f")
        else:
            assert fmt.decode_header(bytes(broken), "f") == header


def test_without_sync_a_missing_sector_before_a_good_group_is_a_power_loss():
    content, starts = journal_of([[whole(1, 0)], [whole(1, 1)], [whole(1, 2)]], flags=0)
    broken = bytearray(content)
    broken[starts[1] : starts[1] + 512] = bytes(512)
    journal, found = scan(bytes(broken))
    assert found == [[whole(1, 0)]]
    assert journal.end is fmt.ScanEnd.TORN


def test_a_payload_that_looks_like_a_trailer_is_a_payload():
    fake, _starts = journal_of([[whole(1, 0)], [whole(1, 1)]])
    groups = [[whole(2, 0, bytes(444) + fake)], [whole(2, 1, b"x" * 3000)]]
    content, starts = journal_of(groups)
    journal, found = scan(content[: starts[1] + 700])
    assert found == groups[:1]
    assert journal.end is fmt.ScanEnd.TORN


def plain_journal(entries, tail=b""):
    """As BookKeeper writes it: no marker in the header, zeros as padding content."""
    data = b"BKLG" + (5).to_bytes(4, "big") + bytes(504)
    for record in entries:
        data += fmt.pack_length(len(record)) + record
    data += fmt.pack_length(-0x100) + fmt.pack_length(92) + bytes(92)
    return data + tail


def test_a_journal_of_bookkeeper_is_read_the_plain_way():
    entries = [whole(1, 0), fmt.encode_fence(1), whole(2, 5, b"y" * 999)]
    assert scan(plain_journal(entries, bytes(5000)))[1] == [[e] for e in entries]
    journal, found = scan(plain_journal(entries, fmt.pack_length(500) + b"cut"))
    assert found == [[e] for e in entries]
    assert journal.end is fmt.ScanEnd.TORN
    with pytest.raises(Corruption):
        scan(plain_journal(entries, fmt.pack_length(-7)))


def test_java_skips_our_trailer_as_padding():
    content, starts = journal_of([[whole(1, 0)], [whole(1, 1)]])
    as_java = content[:8] + bytes(504) + content[512:]
    assert scan(as_java)[1] == [[whole(1, 0)], [whole(1, 1)]]
    assert starts[0] == 512


def test_headers():
    assert fmt.decode_header(bytes(512), "f") is None
    assert fmt.decode_header(b"", "f") is None
    with pytest.raises(Corruption, match="not a journal header"):
        fmt.decode_header(b"junk" * 128, "f")


@given(st.dictionaries(st.integers(0, 1 << 40), st.integers(1, 1 << 40), max_size=30))
def test_ledgers_map_round_trip(ledgers):
    data = log_fmt.encode_ledgers_map(ledgers)
    assert log_fmt.decode_ledgers_map(data, len(ledgers)) == ledgers
    assert log_fmt.decode_ledgers_map(data, len(ledgers) + 1) is None


@given(st.binary(max_size=200), st.integers(-5, 100))
def test_a_garbage_ledgers_map_is_never_believed(data, count):
    found = log_fmt.decode_ledgers_map(data, count)
    assert found is None or len(found) == count


def test_large_ledgers_map_is_split():
    ledgers = dict.fromkeys(range(25000), 7)
    assert log_fmt.decode_ledgers_map(log_fmt.encode_ledgers_map(ledgers), 25_000) == ledgers
