"""Figures of a report: percentiles, histogram, stages."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli.perf.report import stage_figures
from cli.perf.samples import Samples, histogram, percentiles, summary
from cli.perf.stage_metrics import stages

weighted = st.lists(st.tuples(st.integers(0, 50), st.integers(1, 20)), min_size=1, max_size=30)


@given(weighted, st.lists(st.integers(1, 1000), min_size=1, max_size=5))
def test_percentiles_are_the_nearest_ranks_of_all_samples(pairs, thousandths):
    everything = sorted(value for value, count in pairs for _ in range(count))
    parts = sorted(part / 1000 for part in thousandths)

    found = percentiles(pairs, parts)

    ranks = [max(1, math.ceil(part * len(everything) - 1e-9)) for part in parts]
    assert found == [everything[rank - 1] for rank in ranks]


def test_without_samples_there_are_no_percentiles():
    assert set(summary([]).values()) == {None}


@given(weighted, st.integers(1, 20))
def test_a_histogram_holds_every_sample(pairs, buckets):
    edges, counts = histogram(pairs, buckets)

    assert len(edges) == buckets + 1
    assert sum(counts) == sum(count for _, count in pairs)
    assert edges[0] == 0
    assert edges[-1] >= max(value for value, _ in pairs) - 1e-9


def test_messages_before_the_measured_ones_and_after_the_end_are_left_out():
    samples = Samples()
    samples.add(0, 9_000_000_000, 5)
    samples.add(1, 1_000_000_000, 2)
    samples.ended = True
    samples.add(1, 7_000_000_000, 1)

    assert samples.weighted_seconds(1) == [(1.0, 2)]


PAGE = """\
# TYPE vela_broadcast_stage_seconds histogram
vela_broadcast_stage_seconds_bucket{topic="t",subscription="s",stage="preparing",le="0.1"} %d
vela_broadcast_stage_seconds_bucket{topic="t",subscription="s",stage="preparing",le="0.2"} %d
vela_broadcast_stage_seconds_bucket{topic="t",subscription="s",stage="preparing",le="+Inf"} %d
vela_broadcast_stage_seconds_sum{topic="t",subscription="s",stage="preparing"} %f
vela_broadcast_stage_seconds_count{topic="t",subscription="s",stage="preparing"} %d
vela_broadcast_stage_seconds_sum{topic="t",subscription="other",stage="preparing"} 77
"""


def test_stages_are_what_was_added_between_two_readings():
    before = stages(PAGE % (90, 90, 90, 1.0, 90), "t", "s")
    after = stages(PAGE % (95, 100, 100, 2.0, 100), "t", "s")

    figures = stage_figures(before, after)

    assert figures == {"preparing": {"mean": pytest.approx(0.1), "p50": 0.1, "p99": 0.2}}


def test_a_server_without_stages_has_none():
    assert stages('pulsar_subscription_back_log{topic="t"} 0\n', "t", "s") == {}
