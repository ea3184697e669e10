"""Text that is made in pieces and sent in slices: nothing is lost, and all of it is bounded."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.ground.slices import (
    STEPS_PER_SLICE,
)
from broker.http.streaming import (
    SLICE_BYTES,
    accepts_gzip,
    encoded,
    is_large,
    json_array,
    json_map,
    json_pieces,
    slices,
)
from broker.http.topics.topic_json import LedgerSizes
from broker.managed_ledger.ledger_table import LedgerRow


@pytest.mark.parametrize(
    ("value", "accepted"),
    [("gzip", True), ("GZIP, br", True), ("*", True), ("br", False), ("gzip;q=0", False)]
    + [("identity", False), ("gzip; q=0.0, *", False), ("*;q=0, gzip", True)],
)
def test_what_asks_for_gzip(value, accepted):
    assert accepts_gzip([(b"accept-encoding", value.encode())]) is accepted


@given(st.lists(st.text(max_size=200), max_size=200), st.integers(0, 2 * SLICE_BYTES))
def test_slices_are_bounded_and_lose_nothing(pieces, large):
    pieces.append("x" * large)
    made = list(slices(pieces))
    assert "".join(made) == "".join(pieces)
    assert all(0 < len(text) <= SLICE_BYTES for text in made)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=3), inner),
)


@given(_JSON, st.integers(0, 100))
def test_json_in_pieces_is_the_same_json(value, times):
    many = [value] * times
    assert json.loads("".join(json_array(many))) == many
    keyed = {str(number): value for number in range(times)}
    rows = ((key, iter((encoded(each),))) for key, each in keyed.items())
    assert json.loads("".join(json_map(rows))) == keyed
    nested = {"a": {"b": many, "c": keyed}}
    assert json.loads("".join(json_pieces(nested))) == nested
    assert is_large(nested) == (times > 64 or is_large(value))


@given(
    st.lists(st.tuples(st.integers(1, 50), st.integers(0, 20), st.integers(0, 999)), max_size=20),
    st.tuples(st.integers(0, 60), st.integers(-1, 30)),
)
def test_bytes_after_a_position(ledgers, position):
    rows = [
        LedgerRow(ledger_id, entries, size)
        for ledger_id, entries, size in sorted({each[0]: each for each in ledgers}.values())
    ]
    expected = 0
    for row in rows:
        if row.ledger_id > position[0]:
            expected += row.size_bytes
        elif row.ledger_id == position[0] and row.entries:
            left = max(0, row.entries - position[1] - 1)
            expected += row.size_bytes * left // row.entries
    assert LedgerSizes(rows).behind(position) == expected


async def test_steps_of_work_without_text_end_a_slice():
    """Rows that are only counted give others a turn as well."""
    assert list(slices([""] * (3 * STEPS_PER_SLICE))) == [""] * 3
