from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap

from broker.managed_ledger.ack_state import BATCH_WORDS_MAX, AckState
from broker.managed_ledger.bit_words import (
    bitmap_ranges,
    bitmap_words,
    range_count,
    words_bitmap,
)
from broker.managed_ledger.ledger_table import LedgerRow, LedgerTable

SIZES = {2: 5, 3: 0, 5: 3, 6: 1, 9: 6}
ENTRIES = [(ledger_id, entry) for ledger_id, count in SIZES.items() for entry in range(count)]


class Model:
    """A set of acked entries and nothing clever."""

    def __init__(self):
        self.acked = set()
        self.left = {}

    def ack(self, position):
        if position in ENTRIES:
            self.acked.add(position)
            self.left.pop(position, None)

    def cumulative(self, position):
        if position <= ENTRIES[-1]:
            for entry in ENTRIES:
                if entry <= position:
                    self.ack(entry)

    def batch(self, position, remaining):
        if position in ENTRIES and position not in self.acked:
            left = self.left.get(position, ~0) & remaining
            self.left[position] = left
            if left == 0:
                self.ack(position)

    def reset(self, position):
        self.acked = {entry for entry in ENTRIES if entry <= position}
        self.left = {}


positions = st.tuples(st.integers(1, 10), st.integers(-1, 6))
actions = st.one_of(
    st.tuples(st.just("ack"), st.one_of(st.sampled_from(ENTRIES), positions)),
    st.tuples(
        st.just("entries"), st.integers(1, 10), st.lists(st.integers(-1, 6), min_size=1, max_size=6)
    ),
    st.tuples(st.just("cumulative"), positions),
    st.tuples(st.just("batch"), st.sampled_from(ENTRIES), st.integers(0, 7)),
    st.tuples(st.just("reset"), st.sampled_from([(2, -1), *ENTRIES])),
)


def new_state():
    table = LedgerTable(LedgerRow(ledger_id, entries) for ledger_id, entries in SIZES.items())
    return AckState(table, (2, -1))


def check(state, model):
    for entry in ENTRIES:
        assert state.is_acked(entry) == (entry in model.acked), entry
        assert state.batch_remaining(entry) == model.left.get(entry)
    unacked = [entry for entry in ENTRIES if entry not in model.acked]
    assert state.backlog_entries() == len(unacked)
    assert all(entry in model.acked for entry in ENTRIES if entry <= state.mark_delete)
    if unacked:
        following = [entry for entry in ENTRIES if entry > state.mark_delete]
        assert following[0] == unacked[0]
    assert state.acked_count == sum(1 for entry in model.acked if entry > state.mark_delete)
    assert state.batch_words == sum((left.bit_length() + 63) // 64 for _, left in state.batches())
    assert state.range_count() == len(state.acked_ranges())
    covered = {e for low, high in state.acked_ranges() for e in ENTRIES if low < e <= high}
    assert covered == {entry for entry in model.acked if entry > state.mark_delete}


@settings(max_examples=300, deadline=None)
@given(st.lists(actions, max_size=30))
def test_state_equals_a_set_of_acked_entries(script):
    state, model = new_state(), Model()
    for name, position, *rest in script:
        if name == "ack":
            state.ack_individual(position)
            model.ack(position)
        elif name == "entries":
            before = set(model.acked)
            changed = state.ack_entries(position, *rest)
            for entry_id in rest[0]:
                model.ack((position, entry_id))
            assert changed == (model.acked != before)
        elif name == "cumulative":
            state.ack_cumulative(position)
            model.cumulative(position)
        elif name == "batch":
            state.ack_batch(position, *rest)
            model.batch(position, *rest)
        else:
            state.reset(position)
            model.reset(position)
        check(state, model)
    restored = AckState(state._table, state.mark_delete)
    restored.restore(
        [(key, words_bitmap(bitmap_words(b))) for key, b in state.acked_bitmaps().items()],
        state.batches(),
    )
    check(restored, model)


def test_partly_acked_entries_are_bounded_in_words():
    """A client says how many messages an entry has: 134 KB for one with one message."""
    table = LedgerTable([LedgerRow(2, 20_000)])
    longest = (1 << 64 * 16_384) - 2
    state = AckState(table, (2, -1))
    entries = [((2, entry_id), longest) for entry_id in range(1_000)]
    state.restore([], entries)
    assert BATCH_WORDS_MAX - 16_384 < state.batch_words <= BATCH_WORDS_MAX
    assert not state.ack_batch((2, 999), longest)
    assert state.batch_remaining((2, 999)) is None
    assert state.ack_batch((2, 0), 0b10)  # less than before
    assert state.ack_batch((2, 999), 0)  # the whole
    assert state.is_acked((2, 999))
    state.ack_cumulative((2, 500))
    assert state.batch_words == 0


def test_an_ack_before_the_tail_exists_is_ignored():
    table = LedgerTable([LedgerRow(1)])
    state = AckState(table, (1, -1))
    assert not state.ack_individual((1, 0))
    assert not state.ack_cumulative((1, 5))
    table.grow(3, 3)
    assert state.ack_individual((1, 2))
    assert state.backlog_entries() == 2
    assert state.ack_individual((1, 1))
    assert state.ack_individual((1, 0))
    assert state.mark_delete == (1, 2)
    assert not state.acked_bitmaps()


def test_what_was_stored_beyond_the_end_is_left_out():
    state = new_state()
    state.restore([(5, BitMap([1, 2, 3, 900])), (77, BitMap([1]))], [((6, 5), 3), ((9, 0), 2)])
    assert state.acked_ranges() == [((5, 0), (5, 2))]
    assert state.batches() == [((9, 0), 2)]


@settings(max_examples=80, deadline=None)
@given(
    st.sets(st.integers(0, 70_000), max_size=50),
    st.lists(st.tuples(st.integers(0, 200_000), st.integers(1, 9_000)), max_size=4),
    st.booleans(),
)
def test_words_and_ranges_of_any_bitmap(values, runs, optimised):
    for start, length in runs:
        values = values | set(range(start, start + length, 1 + length % 2))
    bitmap = BitMap(values)
    if optimised:
        bitmap.run_optimize()
    words = bitmap_words(bitmap)
    assert {
        64 * at + bit for at, word in enumerate(words) for bit in range(64) if word >> bit & 1
    } == values
    assert words_bitmap(words) == bitmap
    ranges = bitmap_ranges(bitmap)
    assert {v for first, last in ranges for v in range(first, last + 1)} == values
    assert len(ranges) == range_count(bitmap)
