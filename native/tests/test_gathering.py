"""Bytes that are put together little by little are those that were given, and nothing beside."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from native.gathering import GatheredBytes


@given(st.lists(st.tuples(st.binary(max_size=300), st.integers(0, 300), st.integers(0, 300))))
def test_pieces_become_one_object(drawn):
    pieces = [(piece, min(begin, len(piece)), len(piece)) for piece, begin, _ in drawn]
    expected = b"<>" + b"".join(piece[begin:end] for piece, begin, end in pieces)
    gathered = GatheredBytes(len(expected))
    gathered.append(b"<>", 0, 2)
    for piece, begin, end in pieces:
        gathered.append(piece, begin, end)
    whole = gathered.whole()
    assert type(whole) is bytes
    assert whole == expected
    assert hash(whole) == hash(expected)


def test_no_piece_may_go_beyond_its_end_or_that_of_the_whole():
    gathered = GatheredBytes(10)
    gathered.append(b"12345678", 0, 8)
    for piece, begin, end in [(b"123", 0, 3), (b"12", 0, 3), (b"12", -1, 1), (b"12", 2, 1)]:
        with pytest.raises(AssertionError):
            gathered.append(piece, begin, end)
    with pytest.raises(AssertionError):
        gathered.whole()


def test_what_was_handed_out_never_changes():
    gathered = GatheredBytes(4)
    gathered.append(b"0123", 0, 4)
    assert gathered.whole() == b"0123"
    with pytest.raises(AssertionError):
        gathered.append(b"", 0, 0)
    with pytest.raises(AssertionError):
        gathered.whole()


def test_the_place_is_found_once_and_freed_with_the_object():
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        gathered = GatheredBytes(5_000_000)
        tracemalloc.reset_peak()
        begun = tracemalloc.get_traced_memory()[0]
        piece = bytes(1_000_000)
        for _ in range(5):
            gathered.append(piece, 0, len(piece))
        whole = gathered.whole()
        assert tracemalloc.get_traced_memory()[1] - begun < 1_100_000
        assert len(whole) == 5_000_000
        del whole, gathered, piece
        assert tracemalloc.get_traced_memory()[0] - before < 100_000
    finally:
        tracemalloc.stop()
