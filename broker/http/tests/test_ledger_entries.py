"""How many entries lie between two positions, compared with a walk over all of them."""

from hypothesis import given
from hypothesis import strategies as st

from broker.http.topics.internal_json import LedgerEntries
from broker.managed_ledger.ledger_table import LedgerRow

LEDGERS = st.dictionaries(st.integers(0, 12), st.integers(0, 6), max_size=8)


@given(LEDGERS, st.data())
def test_entries_between_positions_are_those_that_are_there(ledgers, data):
    rows = [LedgerRow(number, ledgers[number], 0, 0) for number in sorted(ledgers)]
    there = [(row.ledger_id, entry) for row in rows for entry in range(row.entries)]
    places = there + [(ledger_id, -1) for ledger_id in range(13)]
    after = data.draw(st.sampled_from(places))
    until = data.draw(st.sampled_from(places))
    assert LedgerEntries(rows).between(after, until) == sum(after < each <= until for each in there)


def test_a_read_position_at_the_end_counts_as_an_entry():
    entries = LedgerEntries([LedgerRow(3, 5, 0, 0), LedgerRow(7, 2, 0, 0)])
    assert entries.between((3, 1), (7, 2)) == 3 + 3
    assert entries.between((1, 9), (7, 0)) == 5 + 1
    assert entries.between((7, 1), (7, 1)) == 0
