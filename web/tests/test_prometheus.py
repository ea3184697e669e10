"""Histograms on a page of Prometheus."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from runtime.watchdog import LoopWatchdog
from web.prometheus import Page
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


def test_a_loop_that_is_not_watched_has_no_series():
    page = Page()
    add_stall_series(page, None, {})
    assert list(page.pieces()) == []
