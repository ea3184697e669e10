import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.managed_ledger.ledger_record import LedgerRecord
from broker.managed_ledger.ledger_table import LedgerRow
from broker.topics.follow.source_table import SourceInDoubt, SourceTable


def record(*rows, terminated=None):
    """Rows are ids of ledgers, or (id, entries) of closed ones."""
    made = [
        LedgerRow(row[0], row[1], 10 * row[1], 1) if isinstance(row, tuple) else LedgerRow(row)
        for row in rows
    ]
    return LedgerRecord(made, terminated)


def test_closed_ledgers_are_known_and_the_open_one_as_far_as_it_is_confirmed():
    source = SourceTable()
    assert source.apply(record((1, 10), 4))
    assert source.table.last_confirmed == (1, 9)
    assert source.confirm((4, 2), 30)
    assert source.table.last_confirmed == (4, 2)
    assert source.table.entries == 13
    assert not source.confirm((4, 1), 0)
    assert not source.confirm((1, 5), 0)


def test_a_ledger_that_is_closed_has_all_its_entries_before_its_successor_has_any():
    source = SourceTable()
    source.apply(record(1))
    source.confirm((1, 3), 0)
    assert source.apply(record((1, 6), 2))
    assert source.table.last_confirmed == (1, 5)
    assert not source.confirm((1, 5), 0)
    assert source.confirm((2, 0), 0)
    assert source.table.entries_between((1, 3), (2, 0)) == 3


def test_trimming_moves_the_first_position_and_keeps_the_numbers():
    source = SourceTable()
    source.apply(record((1, 10), (2, 10), 3))
    source.confirm((3, 4), 0)
    before = source.table.ordinal((3, 2))
    assert not source.apply(record((2, 10), 3))
    assert source.table.first_position == (2, 0)
    assert source.table.ordinal((3, 2)) == before
    assert not source.apply(record(3))
    assert source.table.first_position == (3, 0)


def test_a_follower_that_was_away_goes_on_after_everything_it_knew_was_trimmed():
    source = SourceTable()
    source.apply(record(1))
    source.confirm((1, 3), 0)
    assert source.apply(record((7, 2), 9))
    assert source.table.first_position == (7, 0)
    assert source.table.last_confirmed == (7, 1)


def test_the_empty_ledgers_of_a_source_that_was_opened_again_are_no_doubt():
    source = SourceTable()
    source.apply(record((1, 5), 2))
    assert not source.apply(record((1, 5), 3))
    assert source.confirm((3, 0), 0)
    assert source.table.entries == 6


def test_the_end_of_a_terminated_source():
    source = SourceTable()
    source.apply(record(1))
    assert source.apply(record((1, 4), terminated=(1, 3)))
    assert source.is_terminated
    assert not source.confirm((1, 3), 0)


@pytest.mark.parametrize(
    "contradiction",
    [
        lambda source: source.apply(record()),
        lambda source: source.apply(record((1, 2), 2)),
        lambda source: source.apply(record(1, 2)),
        lambda source: source.confirm((9, 0), 0),
        lambda source: (source.apply(record((1, 6), 2)), source.confirm((1, 6), 0)),
        lambda source: (
            source.apply(record((1, 6), terminated=(1, 5))),
            source.confirm((1, 6), 0),
        ),
    ],
)
def test_what_contradicts_itself_is_a_doubt(contradiction):
    source = SourceTable()
    source.apply(record(1))
    source.confirm((1, 3), 0)
    with pytest.raises(SourceInDoubt):
        contradiction(source)


@given(st.data())
def test_however_the_news_arrive_nothing_is_missing_and_nothing_is_counted_twice(data):
    """The source fills ledgers and trims them. Its follower hears of some confirmed entries and of
    some records, late but in order, as a stream and a metadata store tell."""
    sizes = data.draw(st.lists(st.integers(0, 5), min_size=1, max_size=8))
    ledgers = {number + 1: size for number, size in enumerate(sizes)}
    ids = list(ledgers)
    source = SourceTable()
    source.apply(record(1))
    seen = 1
    for newest in ids:
        for entry_id in range(ledgers[newest]):
            if data.draw(st.booleans()):
                if not source.lists(newest):
                    first = data.draw(st.integers(1, newest))
                    closed = [(each, ledgers[each]) for each in range(first, newest)]
                    source.apply(record(*closed, newest))
                source.confirm((newest, entry_id), 1)
                assert source.table.last_confirmed == (newest, entry_id)
        seen = newest
    source.apply(record(*[(each, ledgers[each]) for each in ids[:-1]], seen))
    last = max(((each, size - 1) for each, size in ledgers.items() if size), default=None)
    if last is None or last[0] == seen:
        return
    assert source.table.last_confirmed == last
