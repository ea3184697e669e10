"""Histograms on a page of Prometheus."""

from __future__ import annotations

import gc

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from runtime.watchdog import LoopWatchdog
from web.prometheus import (
    BLOCKS_PER_PIECE,
    LINES_PER_PIECE,
    Families,
    Family,
    Page,
    add_stall_series,
    label_text,
)


def test_stalls_are_histograms_of_wall_and_cpu_time_by_kind_and_name():
    now = [0.0]
    watchdog = LoopWatchdog(lambda: now[0], lambda: now[0] / 2)
    watchdog.after_io_wait(0.0)
    now[0] += 0.025
    watchdog.called(watchdog.stalls, 0.025)
    page = Page()
    add_stall_series(page, watchdog, {"cluster": "c"})
    families = {
        family.name: family for family in text_string_to_metric_families("".join(page.pieces()))
    }
    assert set(families) == {"vela_event_loop_stall_seconds", "vela_event_loop_stall_cpu_seconds"}
    labels = {"cluster": "c", "kind": "callback", "name": "LoopWatchdog.stalls"}
    wall = {
        sample.labels.get("le", sample.name.rpartition("_")[2]): sample.value
        for sample in families["vela_event_loop_stall_seconds"].samples
        if {**labels, "le": ""} == {**sample.labels, "le": ""}
    }
    assert (wall["0.02"], wall["0.03"], wall["+Inf"], wall["count"]) == (0, 1, 1, 1)
    assert wall["sum"] == 0.025


def page_of(samples, readers):
    page = Page()
    for number in range(samples):
        page.add("numbers", "gauge", "Numbers", label_text({"at": str(number)}), number)
    page.readers = readers
    return page


def lines_of(pieces):
    return [line for piece in pieces for line in piece.splitlines() if line[0] != "#"]


@pytest.mark.parametrize("samples", [0, 1, LINES_PER_PIECE, 10 * LINES_PER_PIECE + 1])
def test_samples_come_in_their_order_in_pieces(samples):
    pieces = list(page_of(samples, 1).pieces())
    assert lines_of(pieces) == [f'numbers{{at="{at}"}} {at}' for at in range(samples)]
    assert all(piece.count("\n") <= LINES_PER_PIECE for piece in pieces)


def test_the_last_reader_frees_a_page_bit_by_bit():
    samples = 5 * BLOCKS_PER_PIECE * LINES_PER_PIECE
    page = page_of(samples, 2)
    first, second = page.pieces(), page.pieces()
    assert len(lines_of(first)) == samples
    assert not page.is_used_up
    pieces = list(second)
    assert len(lines_of(pieces)) == samples
    assert page.is_used_up
    assert pieces[-5:] == [""] * 5


def test_a_reader_that_leaves_keeps_the_page_of_another_one():
    page = page_of(10_000, 2)
    left = page.pieces()
    next(left)
    left.close()
    assert len(lines_of(page.pieces())) == 10_000


def test_the_collector_looks_at_samples_once():
    page = page_of(100 * LINES_PER_PIECE, 1)
    gc.collect()
    [family] = page._families.values()
    assert not any(gc.is_tracked(part) for block in family.blocks for part in block)


PAIR = Families([Family("first", "gauge", "First"), Family("second", "counter", "Second")])
NUMBERS = st.one_of(st.integers(), st.floats().map(abs), st.sampled_from([0, 0.0, 1, 1.0]))
"""A zero without a sign: among equal numbers it is not kept."""


@given(st.lists(st.tuples(NUMBERS, NUMBERS), max_size=3 * LINES_PER_PIECE))
def test_rows_are_the_lines_of_their_samples_with_each_family_in_one_piece(rows):
    page, by_sample = Page(), Page()
    for number, values in enumerate(rows):
        labels = label_text({"at": str(number)})
        page.add_row(PAIR, labels, values)
        for (name, kind, text), value in zip(PAIR.each, values, strict=True):
            by_sample.add(name, kind, text, labels, value)
    page.readers = by_sample.readers = 2
    text = "".join(page.pieces())
    assert text == "".join(by_sample.pieces())
    assert "".join(page.pieces()) == text, "the second reader has the same"


@pytest.mark.parametrize("rows", [1, LINES_PER_PIECE, 3 * LINES_PER_PIECE + 1])
@pytest.mark.parametrize("same", [True, False])
def test_rows_come_in_pieces_of_bounded_length(rows, same):
    page = Page()
    for number in range(rows):
        page.add_row(PAIR, "{}", (0 if same else number, 0.5))
    page.readers = 1
    lines = [len(lines_of([piece])) for piece in page.pieces()]
    assert sum(lines) == 2 * rows
    assert max(lines) <= LINES_PER_PIECE


def test_rows_of_topics_that_nobody_uses_keep_one_number_for_many():
    page = Page()
    for _ in range(10 * LINES_PER_PIECE):
        page.add_row(PAIR, "{}", (0, 1.5))
    blocks = [block for family in page._families.values() for block in family.blocks]
    assert [values for _, values in blocks] == [(0,)] * 10 + [(1.5,)] * 10


def test_the_last_reader_frees_rows_bit_by_bit():
    page = Page()
    for number in range(5 * BLOCKS_PER_PIECE * LINES_PER_PIECE):
        page.add_row(PAIR, label_text({"at": str(number)}), (number, 0))
    page.readers = 1
    assert list(page.pieces())[-10:] == [""] * 10
    assert page.is_used_up


def test_a_row_that_does_not_fit_its_families_is_refused():
    page = Page()
    with pytest.raises(ValueError, match="3 values for 2 families"):
        page.add_row(PAIR, "", (1, 2, 3))


def test_a_loop_that_is_not_watched_has_no_series():
    page = Page()
    add_stall_series(page, None, {})
    assert list(page.pieces()) == []
