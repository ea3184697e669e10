"""A token bucket never gives more than its rate and its burst allow, and never less."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.token_bucket import TokenBucket

RATES = st.sampled_from([0.5, 1.0, 10.0, 1_000.0, 1_000_000.0])
SMALL = 1e-6


def test_another_rate_keeps_the_debt_and_no_more_tokens_than_its_burst():
    bucket = TokenBucket(10, 10, 0.0)
    bucket.take(30, 0.0)
    bucket.use(100, 100, 1.0)
    assert bucket.tokens(1.0) == -10
    assert bucket.tokens(2.1) == pytest.approx(100)
    bucket.use(5, 5, 3.0)
    assert bucket.tokens(3.0) == 5


@given(
    rate=RATES,
    burst=st.floats(1, 5_000),
    events=st.lists(st.tuples(st.floats(0, 3), st.floats(0.1, 5_000)), max_size=60),
)
def test_over_any_window_no_more_is_taken_than_rate_and_burst_allow(
    rate: float, burst: float, events: list[tuple[float, float]]
):
    bucket, now = TokenBucket(rate, burst, 0.0), 0.0
    taken: list[tuple[float, float]] = []
    for pause, wanted in events:
        now += pause
        amount = min(wanted, burst)
        if bucket.seconds_until(amount, now) == 0:
            bucket.take(amount, now)
            taken.append((now, amount))
    for first, (start, _) in enumerate(taken):
        total = 0.0
        for end, amount in taken[first:]:
            total += amount
            assert total <= (rate * (end - start) + burst) * (1 + SMALL) + SMALL


@given(rate=RATES, amounts=st.lists(st.floats(0.1, 5_000), min_size=1, max_size=30))
def test_who_waits_as_long_as_told_takes_it_all_at_the_rate(rate: float, amounts: list[float]):
    bucket, now = TokenBucket(rate, rate, 0.0), 0.0
    for amount in amounts:
        now += bucket.seconds_until(amount, now)
        assert bucket.seconds_until(amount, now) == pytest.approx(0, abs=1e-6)
        bucket.take(amount, now)
    # Nothing is lost either: at the end no time was spent with a full bucket.
    owed = sum(amounts) - amounts[-1] - rate
    assert now <= max(0.0, owed + max(amounts)) / rate + 1 + SMALL


def test_more_than_the_burst_waits_for_a_full_bucket_and_leaves_a_debt():
    bucket = TokenBucket(10, 10, 0.0)
    bucket.take(1, 0.0)
    assert bucket.seconds_until(25, 0.0) == pytest.approx(0.1)
    bucket.take(25, 0.1)
    assert bucket.tokens(0.1) == pytest.approx(-15)
    assert bucket.seconds_until(1, 0.1) == pytest.approx(1.6)


def test_a_clock_that_stands_still_or_goes_back_gives_nothing():
    bucket = TokenBucket(10, 10, 5.0)
    bucket.take(10, 5.0)
    assert bucket.tokens(5.0) == 0
    assert bucket.tokens(4.0) == 0
    assert bucket.tokens(5.1) == pytest.approx(1)
