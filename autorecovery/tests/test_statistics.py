"""Counts, sums and quantiles."""

from hypothesis import given
from hypothesis import strategies as st

from autorecovery.statistics import RECENT_MAX, Distribution


def filled(values):
    distribution = Distribution()
    for value in values:
        distribution.add(value)
    return distribution


def test_nothing_measured_is_0():
    empty = Distribution()
    assert (empty.count, empty.total, empty.quantile(0.5)) == (0, 0.0, 0.0)


def test_quantiles_are_numbers_that_were_measured():
    distribution = filled(range(1, 101))
    assert (distribution.count, distribution.total) == (100, 5050)
    assert [distribution.quantile(each) for each in (0.01, 0.5, 0.99, 1.0)] == [1, 50, 99, 100]


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=50), st.floats(0.01, 1))
def test_at_least_the_fraction_is_not_above_the_quantile(values, fraction):
    quantile = filled(values).quantile(fraction)
    assert quantile in values
    assert sum(value <= quantile for value in values) >= fraction * len(values) - 1e-9


def test_only_the_last_numbers_count_for_quantiles():
    distribution = filled([*range(1_000_000, 1_000_000 + RECENT_MAX), *([1] * RECENT_MAX)])
    assert distribution.quantile(1.0) == 1
    assert distribution.count == 2 * RECENT_MAX
