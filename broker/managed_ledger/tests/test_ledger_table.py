from hypothesis import given, settings
from hypothesis import strategies as st

from broker.managed_ledger.ledger_table import LedgerRow, LedgerTable


@st.composite
def tables(draw):
    """A table some ledgers of which were trimmed, and the entries it holds."""
    sizes = draw(st.lists(st.integers(0, 4), min_size=1, max_size=6))
    gaps = draw(st.lists(st.integers(1, 3), min_size=len(sizes), max_size=len(sizes)))
    ledger_ids = [sum(gaps[: index + 1]) for index in range(len(sizes))]
    table = LedgerTable(
        LedgerRow(ledger_id, entries) for ledger_id, entries in zip(ledger_ids, sizes, strict=True)
    )
    table.drop_front(draw(st.integers(0, len(sizes) - 1)))
    held = [(row.ledger_id, entry) for row in table.rows for entry in range(row.entries)]
    return table, held


positions = st.tuples(st.integers(-1, 20), st.integers(-1, 6))


@settings(deadline=None)
@given(tables(), positions, positions)
def test_arithmetic_equals_counting(made, a, b):
    table, held = made
    assert table.entries_between(a, b) == sum(1 for p in held if a < p <= b)
    assert table.is_valid(a) == (a in held)
    after = [p for p in held if p > a]
    tail = table.tail
    assert table.next_position(a) == (after[0] if after else (tail.ledger_id, tail.entries))
    at_or_after = [p for p in held if p >= a]
    assert table.at_or_after(a) == (
        at_or_after[0] if at_or_after else (tail.ledger_id, tail.entries)
    )
    before = [p for p in held if p < a]
    first = table.first_position
    assert table.previous_position(a) == (before[-1] if before else (first[0], -1))
    assert table.entries == len(held)


@settings(deadline=None)
@given(tables(), positions, st.integers(1, 12))
def test_n_entries_after(made, a, n):
    table, held = made
    after = [p for p in held if p > a]
    expected = after[n - 1] if n <= len(after) else table.last_confirmed
    assert table.position_after_n(a, n) == expected
    before = [p for p in held if p <= a]
    expected = before[-n - 1] if n < len(before) else (table.first_position[0], -1)
    assert table.position_after_n(a, -n) == (expected if held else table.position_after_n(a, -n))


def test_the_last_confirmed_entry_stays_known_over_a_rollover_and_a_trim():
    table = LedgerTable([LedgerRow(3)])
    assert table.last_confirmed == (3, -1)
    table.grow(2, 20)
    assert table.last_confirmed == (3, 1)
    table.open_ledger(7)
    assert table.last_confirmed == (3, 1)
    assert table.next_position((3, 1)) == (7, 0)
    table.drop_front(1)
    assert table.last_confirmed == (3, 1)
    assert table.first_position == (7, 0)
    table.grow(1, 5)
    assert table.last_confirmed == (7, 0)
    assert table.size_bytes == 5


def test_an_empty_ledger_in_the_middle_is_passed_over():
    table = LedgerTable([LedgerRow(1), LedgerRow(2)])
    assert table.at_or_after((1, -1)) == (2, 0)
    assert table.next_position((1, -2)) == (2, 0)


@given(
    st.lists(st.tuples(st.integers(0, 20), st.integers(0, 5_000)), min_size=1, max_size=6),
    st.integers(0, 20_000),
)
def test_the_first_position_with_so_few_bytes_after_it(ledgers, size_bytes):
    rows = [
        LedgerRow(ledger_id, entries, size if entries else 0)
        for ledger_id, (entries, size) in enumerate(ledgers)
    ]
    table = LedgerTable(rows)
    position = table.position_with_bytes_after(size_bytes)
    assert table.bytes_after(position) <= size_bytes
    if table.is_valid(position):
        assert table.bytes_after((position[0], position[1] - 1)) > size_bytes
    else:
        assert table.ordinal(position) == 0
    assert table.bytes_after((-1, -1)) == table.size_bytes
    assert table.bytes_after(table.last_confirmed) == 0
