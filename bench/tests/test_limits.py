"""What the benchmark of limits makes of its samples."""

from __future__ import annotations

import pytest

from bench.backlog_bounds import LIMIT_BYTES, POLICIES, Bound
from bench.limits import BYTES, CASES, MESSAGES, Case, Sample, document, held

CASE = Case("a", 100, MESSAGES)


def samples(*taken: int) -> list[Sample]:
    return [Sample(100.0 + 5 * number, each) for number, each in enumerate(taken)]


def test_a_limit_that_is_held_is_off_by_nothing():
    result = held("vela", CASE, samples(70, 570, 1_070, 1_570))
    assert (result.seconds, result.per_second, result.is_met) == (15.0, 100.0, True)
    assert result.off == pytest.approx(0)
    assert result.off_in_worst_window == pytest.approx(0)


def test_the_worst_window_shows_what_the_whole_time_hides():
    result = held("vela", CASE, samples(0, 0, 0, 1_000, 2_000))
    assert result.off == pytest.approx(0)
    assert abs(result.off_in_worst_window) == pytest.approx(1)


def test_a_rate_more_than_two_percent_off_is_missed():
    assert not held("vela", CASE, samples(0, 511, 1_022)).is_met
    assert not held("vela", CASE, samples(0, 489, 978)).is_met
    assert held("vela", CASE, samples(0, 509, 1_018)).is_met


def test_a_policy_limits_the_unit_of_its_case_alone():
    assert Case("m", 5, MESSAGES).policy == {
        "publishThrottlingRateInMsg": 5,
        "publishThrottlingRateInByte": -1,
    }
    assert Case("b", 5, BYTES).policy == {
        "publishThrottlingRateInMsg": -1,
        "publishThrottlingRateInByte": 5,
    }


def test_the_page_says_what_was_missed():
    results = [held(server, CASES[0], samples(0, 1_000)) for server in ("vela", "pulsar")]
    bounds = [
        Bound("vela", POLICIES[0], LIMIT_BYTES),
        Bound("pulsar", POLICIES[0], 2 * LIMIT_BYTES),
    ]
    assert document(results, bounds, "Measured here.").count("**missed**") == 3


def test_a_backlog_two_percent_over_its_quota_is_the_most_and_a_small_one_shows_nothing():
    def is_met(share: float) -> bool:
        return Bound("vela", POLICIES[0], int(share * LIMIT_BYTES)).is_met

    assert is_met(1.019)
    assert not is_met(1.021)
    assert not is_met(0.5)
