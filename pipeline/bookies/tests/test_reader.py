"""Reading ledgers from bookies: what a job gets, and what it is told."""

import time
from contextlib import contextmanager
from itertools import pairwise

import pytest

from pipeline.bookies.errors import (
    BookiesNotReachable,
    BookieUnavailable,
    EntryDamaged,
    EntryMissing,
    LedgerMissing,
)
from pipeline.bookies.layouts import ledger_layouts
from pipeline.bookies.reader import BookieReader, ReaderConfig
from pipeline.bookies.tests.fake_bookie import FakeBookie, entry, payload_of
from protocol.bookkeeper import messages as m
from protocol.bookkeeper.digests import DigestType
from protocol.bookkeeper.ledger_layout import LedgerLayout, write_set

LEDGER_ID = 5
CALM = ReaderConfig(timeout_seconds=60.0, answer_timeout_seconds=60.0)
"""Nothing is too late, however busy the machine is."""
SHORT = ReaderConfig(timeout_seconds=1.0, answer_timeout_seconds=0.3)
"""For bookies that do not answer."""
GIVING_UP = ReaderConfig(timeout_seconds=4.0, answer_timeout_seconds=60.0)
"""For bookies that refuse."""
LESS_SHORT = ReaderConfig(timeout_seconds=8.0, answer_timeout_seconds=2.0)
"""For a bookie that does not answer beside one that does."""


@contextmanager
def bookies(count, entries=None, size=20):
    made = [FakeBookie() for _ in range(count)]
    for bookie in made:
        if entries is not None:
            bookie.fill(LEDGER_ID, entries, size)
    try:
        yield made
    finally:
        for bookie in made:
            bookie.close()


def layout_of(made, last, write_quorum_size=None, length=0):
    ids = tuple(bookie.bookie_id for bookie in made)
    return LedgerLayout(
        LEDGER_ID,
        write_quorum_size or len(ids),
        DigestType.CRC32C,
        ((0, ids),),
        last,
        length,
    )


def read_all(reader, layout, first, last):
    """The payloads; asserts that runs follow one another without holes."""
    payloads = []
    for run_first, run in reader.read(layout, first, last):
        assert run_first == first + len(payloads)
        payloads += run
    return payloads


def expected(first, last, size=20):
    return [payload_of(entry_id, size) for entry_id in range(first, last + 1)]


def test_every_entry_of_a_range_comes_once_in_order():
    with bookies(1, 1000) as made, BookieReader() as reader:
        layout = layout_of(made, 999)
        assert read_all(reader, layout, 0, 999) == expected(0, 999)
        assert read_all(reader, layout, 500, 500) == expected(500, 500)
        assert read_all(reader, layout, 990, 999) == expected(990, 999)
        assert all(request.flags == 0 for request in made[0].requests), "a reader never fences"


def test_runs_follow_the_size_of_the_entries():
    """Entries of a size not foreseen: answers stay near `run_size_bytes`, whatever is asked."""
    size = 10_000
    config = ReaderConfig(run_size_bytes=64 * 1024)
    with bookies(1, 300, size) as made, BookieReader(config) as reader:
        assert read_all(reader, layout_of(made, 299), 0, 299) == expected(0, 299, size)
        begun = config.runs_in_flight * 64  # before anything was known
        counts = [each.count_max for each in made[0].requests if each.entry_id >= begun]
        assert max(counts) <= 7


def test_an_entry_larger_than_a_run_comes_alone():
    config = ReaderConfig(run_size_bytes=1000)
    with bookies(1, 20, 5_000) as made, BookieReader(config) as reader:
        assert read_all(reader, layout_of(made, 19), 0, 19) == expected(0, 19, 5_000)


def test_several_runs_are_under_way_at_once():
    with bookies(1, 1000) as made, BookieReader(SHORT) as reader:
        made[0].is_silent = True
        with pytest.raises(BookieUnavailable):
            read_all(reader, layout_of(made, 999), 0, 999)
        firsts = sorted({request.entry_id for request in made[0].requests})
        assert firsts == [0, 64, 128, 192]


def test_a_striped_ledger_is_read_from_the_bookies_that_have_each_entry():
    with bookies(3) as made, BookieReader() as reader:
        for entry_id in range(300):
            for at in write_set(entry_id, 3, 2):
                made[at].ledgers.setdefault(LEDGER_ID, {})[entry_id] = entry(
                    LEDGER_ID, entry_id, payload_of(entry_id)
                )
        layout = layout_of(made, 299, write_quorum_size=2)
        assert read_all(reader, layout, 0, 299) == expected(0, 299)
        assert all(len(bookie.requests) == 100 for bookie in made)


def test_a_striped_ledger_is_whole_with_a_bookie_away_or_damaged_copies_on_one():
    with bookies(3) as made, BookieReader(GIVING_UP) as reader:
        for entry_id in range(300):
            for at in write_set(entry_id, 3, 2):
                body = entry(LEDGER_ID, entry_id, payload_of(entry_id))
                damaged = at == 1 and entry_id % 7 == 0
                copy = body[:-1] + b"?" if damaged else body
                made[at].ledgers.setdefault(LEDGER_ID, {})[entry_id] = copy
        layout = layout_of(made, 299, write_quorum_size=2)
        assert read_all(reader, layout, 0, 299) == expected(0, 299)
        made[2].close()
        # Entry 7 is on the bookies 1 and 2.
        with pytest.raises(BookieUnavailable, match=r"entry 5:7: .*digest does not match"):
            read_all(reader, layout, 0, 299)
        assert read_all(reader, layout, 8, 27) == expected(8, 27)


def test_segments_of_a_ledger_are_read_from_their_own_bookies():
    with bookies(2) as made, BookieReader() as reader:
        made[0].fill(LEDGER_ID, 50)
        made[1].fill(LEDGER_ID, 100)
        del made[1].ledgers[LEDGER_ID][0]
        layout = LedgerLayout(
            LEDGER_ID,
            1,
            DigestType.CRC32C,
            ((0, (made[0].bookie_id,)), (50, (made[1].bookie_id,))),
            99,
        )
        assert read_all(reader, layout, 0, 99) == expected(0, 99)


@pytest.mark.parametrize("closes", [False, True])
def test_a_bookie_without_batch_reads_gets_single_reads(closes):
    with bookies(1, 300) as made, BookieReader() as reader:
        made[0].has_batch_reads = False
        made[0].closes_on_batch_reads = closes
        assert read_all(reader, layout_of(made, 299), 0, 299) == expected(0, 299)


def test_a_missing_ledger_is_told_from_a_missing_entry():
    with bookies(2, 10) as made, BookieReader(CALM) as reader:
        with pytest.raises(EntryMissing) as missing:
            read_all(reader, layout_of(made, 20), 5, 12)
        assert (missing.value.ledger_id, missing.value.entry_id) == (LEDGER_ID, 10)
        for bookie in made:
            bookie.ledgers.clear()
        with pytest.raises(LedgerMissing):
            read_all(reader, layout_of(made, 9), 0, 9)


def test_entries_before_the_one_that_fails_are_given():
    with bookies(1, 10) as made, BookieReader(CALM) as reader:
        del made[0].ledgers[LEDGER_ID][7]
        reads = reader.read(layout_of(made, 9), 0, 9)
        assert next(reads) == (0, expected(0, 6))
        with pytest.raises(EntryMissing, match=r"entry 5:7: .*no such entry"):
            next(reads)


def test_a_replica_that_lacks_an_entry_is_made_good_by_another():
    with bookies(2, 100) as made, BookieReader(CALM) as reader:
        for entry_id in (0, 17, 18, 99):
            del made[1].ledgers[LEDGER_ID][entry_id]
        del made[0].ledgers[LEDGER_ID][50]
        assert read_all(reader, layout_of(made, 99), 0, 99) == expected(0, 99)


def test_a_damaged_copy_is_made_good_by_another_and_told_when_there_is_none():
    with bookies(2, 100) as made, BookieReader(CALM) as reader:
        body = made[1].ledgers[LEDGER_ID][42]
        made[1].ledgers[LEDGER_ID][42] = body[:-1] + b"?"
        layout = layout_of(made, 99)
        assert read_all(reader, layout, 0, 99) == expected(0, 99)
        del made[0].ledgers[LEDGER_ID][42]
        with pytest.raises(EntryDamaged, match=r"entry 5:42: .*digest does not match") as damaged:
            read_all(reader, layout, 0, 99)
        assert damaged.value.entry_id == 42


def test_another_entry_than_asked_for_is_damage():
    with bookies(1, 3) as made, BookieReader(CALM) as reader:
        made[0].ledgers[LEDGER_ID][1] = made[0].ledgers[LEDGER_ID][2]
        with pytest.raises(EntryDamaged, match="asked for entry 5:1, got 5:2"):
            read_all(reader, layout_of(made, 2), 0, 2)


def test_a_bookie_that_is_away_proves_nothing():
    with bookies(2, 10) as made, BookieReader(GIVING_UP) as reader:
        layout = layout_of(made, 20)
        made[0].close()
        assert read_all(reader, layout, 0, 9) == expected(0, 9)
        with pytest.raises(BookieUnavailable, match="refused"):
            read_all(reader, layout, 10, 10)


def test_a_silent_bookie_is_left_for_another():
    with bookies(2, 10) as made, BookieReader(LESS_SHORT) as reader:
        made[1].is_silent = True
        assert read_all(reader, layout_of(made, 9), 0, 9) == expected(0, 9)


def test_nobody_who_answers_is_an_error_within_the_timeout():
    with bookies(1, 10) as made, BookieReader(SHORT) as reader:
        made[0].is_silent = True
        with pytest.raises(BookieUnavailable, match=r"no answer in 0\.3 s"):
            read_all(reader, layout_of(made, 9), 0, 9)


def test_a_broken_connection_is_opened_again():
    with bookies(1, 1000) as made, BookieReader(ReaderConfig(run_size_bytes=2000)) as reader:
        made[0].connections_to_drop = 2
        made[0].answers_before_close = 7
        layout = layout_of(made, 999, length=20_000)
        assert read_all(reader, layout, 0, 999) == expected(0, 999)


def test_an_overloaded_bookie_is_asked_again():
    with bookies(1, 100) as made, BookieReader() as reader:
        refusals = iter([m.TOO_MANY_REQUESTS] * 3)
        made[0].status_of = lambda request: next(refusals, m.OK)
        assert read_all(reader, layout_of(made, 99), 0, 99) == expected(0, 99)


def test_a_failing_disk_is_no_proof():
    with bookies(1, 100) as made, BookieReader(GIVING_UP) as reader:
        made[0].status_of = lambda request: m.IO_ERROR
        with pytest.raises(BookieUnavailable, match="status 101"):
            read_all(reader, layout_of(made, 99), 0, 99)


def test_a_slow_job_is_no_silent_bookie():
    with bookies(1, 1000) as made:
        config = ReaderConfig(
            timeout_seconds=2.0, answer_timeout_seconds=1.0, run_size_bytes=2000, runs_in_flight=1
        )
        with BookieReader(config) as reader:
            reads = reader.read(layout_of(made, 999, length=20_000), 0, 999)
            payloads = list(next(reads)[1])
            time.sleep(2.5)  # the job's own work
            for _, run in reads:
                payloads += run
            assert payloads == expected(0, 999)


def test_a_read_that_is_left_early_does_not_disturb_the_next():
    config = ReaderConfig(run_size_bytes=2000)
    with bookies(1, 1000) as made, BookieReader(config) as reader:
        layout = layout_of(made, 999, length=20_000)
        for _ in range(5):
            for _, run in reader.read(layout, 0, 999):
                assert run[0] == payload_of(0)
                break
        assert read_all(reader, layout, 0, 999) == expected(0, 999)


def test_one_read_at_a_time():
    with bookies(1, 1000) as made, BookieReader(ReaderConfig(run_size_bytes=2000)) as reader:
        layout = layout_of(made, 999, length=20_000)
        reads = reader.read(layout, 0, 999)
        next(reads)
        with pytest.raises(RuntimeError, match="one read at a time"):
            next(reader.read(layout, 0, 999))
        reads.close()


@pytest.mark.parametrize(("first", "last"), [(-1, 5), (5, 4), (0, 10)])
def test_a_range_that_is_not_in_the_ledger_is_refused(first, last):
    layout = LedgerLayout(LEDGER_ID, 1, DigestType.CRC32C, ((0, ("127.0.0.1:1",)),), 9)
    with pytest.raises(ValueError, match="entr"):
        next(BookieReader().read(layout, first, last))


TEXT = (
    "LedgerMetadata{formatVersion=3, ensembleSize=1, writeQuorumSize=1, ackQuorumSize=1, "
    "state=%s, digestType=CRC32C, password=OMITTED, ensembles={0=[%s]}, customMetadata={}}"
)


def test_layouts_come_from_internal_stats():
    closed = TEXT % ("CLOSED, length=100, lastEntryId=9", "h:3181")
    rows = [
        {"ledgerId": 1, "offloaded": True, "metadata": "whatever"},
        {"ledgerId": 2, "offloaded": False, "metadata": closed},
        {"ledgerId": 4, "offloaded": False, "metadata": TEXT % ("OPEN", "h:3181")},
    ]
    layouts = ledger_layouts({"ledgers": rows})
    assert [*layouts] == [2, 4]
    assert layouts[2].last_entry_id == 9
    assert layouts[4].last_entry_id is None
    assert layouts[4].bookies_of(0) == ("h:3181",)


@pytest.mark.parametrize(
    "bookie_id", ["vela-embedded", "h:", "h:0", "h:70000", ":1", "a/b:1", "bk-0"]
)
def test_a_server_that_names_no_addresses_is_told_apart(bookie_id):
    row = {"ledgerId": 2, "offloaded": False, "metadata": TEXT % ("OPEN", bookie_id)}
    with pytest.raises(BookiesNotReachable, match="set bookiePort"):
        ledger_layouts({"ledgers": [row]})
    with pytest.raises(BookiesNotReachable, match="metadata=true"):
        ledger_layouts({"ledgers": [{"ledgerId": 2}]})


def test_a_ledger_that_was_made_during_the_answer_is_left_out_and_spoils_no_other():
    rows = [{"ledgerId": 1, "metadata": TEXT % ("OPEN", "h:3181")}, {"ledgerId": 2}]

    assert list(ledger_layouts({"ledgers": rows})) == [1]


def test_pauses_grow_and_are_bounded():
    from pipeline.bookies.ledger_read import PAUSE_SECONDS_MAX, LedgerRead, ReadLimits

    layout = LedgerLayout(LEDGER_ID, 1, DigestType.CRC32C, ((0, ("h:1",)),), 9)
    work = LedgerRead(layout, 0, 9, ReadLimits(timeout_seconds=1000), 0.0)
    now, waits = 0.0, []
    for _ in range(10):
        assert work.take(now) == []
        assert [request.bookie_id for request in work.requests(now)] == ["h:1"]
        work.on_lost("h:1", "away", now)
        assert work.requests(now) == []
        waits.append(work.wait_until(now) - now)
        now = work.wait_until(now)
    assert all(a <= b for a, b in pairwise(waits))
    assert waits[-1] == pytest.approx(PAUSE_SECONDS_MAX)
