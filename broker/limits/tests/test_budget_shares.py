"""The division of a budget among brokers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.limits.budget_shares import FLOOR, Usage, shares

USAGES = st.dictionaries(
    st.sampled_from("abcdef"), st.builds(Usage, st.floats(0, 3), st.booleans()), min_size=1
)


@given(USAGES)
def test_the_parts_add_up_to_the_whole_and_nobody_gets_nothing(usages):
    parts = shares(usages)
    assert sum(parts.values()) == pytest.approx(1)
    assert min(parts.values()) >= FLOOR / len(usages) * 0.999


@given(USAGES)
def test_who_waits_gets_at_least_as_much_as_any_other(usages):
    parts = shares(usages)
    held = [parts[name] for name, usage in usages.items() if usage.is_held]
    if held:
        assert min(held) >= max(parts.values()) - 1e-9
        assert min(held) >= 1 / len(usages) - 1e-9


def test_a_broker_alone_has_all():
    assert shares({"a": Usage()}) == {"a": 1.0}
    assert shares({}) == {}


def test_those_that_wait_divide_what_a_calm_one_leaves():
    parts = shares({"a": Usage(0.1), "b": Usage(0.5, is_held=True), "c": Usage(0.2, is_held=True)})
    assert parts["b"] == parts["c"] == pytest.approx((1 - parts["a"]) / 2)
    assert 0.1 < parts["a"] < 0.2


def test_a_broker_that_uses_more_than_an_equal_part_gives_to_one_that_waits():
    parts = shares({"a": Usage(0.9), "b": Usage(0.1, is_held=True)})
    assert parts == {"a": pytest.approx(0.5), "b": pytest.approx(0.5)}
