"""Histograms on a page of Prometheus."""

from __future__ import annotations

import gc

import pytest
from prometheus_client.parser import text_string_to_metric_families

from runtime.watchdog import LoopWatchdog
from web.prometheus import BLOCKS_PER_PIECE, LINES_PER_PIECE, Page, label_text
from web.stall_series import add_stall_series


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


def test_a_loop_that_is_not_watched_has_no_series():
    page = Page()
    add_stall_series(page, None, {})
    assert list(page.pieces()) == []
