"""How often a consumer may subscribe."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from broker.limits import subscribe_rates
from broker.limits.subscribe_rates import SubscribeRates, SubscribingConsumer
from broker.tenancy.policies.delivery_rates import SubscribeRate

ONE = SubscribingConsumer("10.0.0.1", "a", 1)


def test_each_consumer_has_a_periods_requests_at_once_and_then_its_rate():
    rates, rate = SubscribeRates(), SubscribeRate(2, 10)
    assert [rates.admits(ONE, rate, 0.0) for _ in range(3)] == [True, True, False]
    assert rates.admits(ONE._replace(name="b"), rate, 0.0)
    assert rates.admits(ONE._replace(consumer_id=2), rate, 0.0)
    assert [rates.admits(ONE, rate, now) for now in (4.9, 5.0, 5.1, 10.0)] == [
        False,
        True,
        False,
        True,
    ]


def test_another_rate_begins_anew_and_none_admits_all():
    rates = SubscribeRates()
    assert rates.admits(ONE, SubscribeRate(1, 30), 0.0)
    assert not rates.admits(ONE, SubscribeRate(1, 30), 1.0)
    assert rates.admits(ONE, SubscribeRate(1, 20), 1.0)
    for none in (SubscribeRate(), SubscribeRate(-1, 30), SubscribeRate(1, 0), SubscribeRate(1, -7)):
        assert all(rates.admits(ONE, none, 1.0) for _ in range(5))


def test_those_counted_are_bounded(monkeypatch):
    monkeypatch.setattr(subscribe_rates, "CONSUMERS_MAX", 2)
    rates, rate = SubscribeRates(), SubscribeRate(1, 30)
    many = [ONE._replace(name=name) for name in "abc"]
    assert all(rates.admits(each, rate, 0.0) for each in many)
    assert not rates.admits(many[1], rate, 0.0)
    assert rates.admits(many[0], rate, 0.0)  # it was forgotten


@given(st.integers(1, 5), st.integers(1, 30), st.lists(st.floats(0, 20), max_size=50))
def test_over_any_window_no_more_than_the_rate_and_one_period(requests, period, pauses):
    rates, rate, now = SubscribeRates(), SubscribeRate(requests, period), 0.0
    admitted = []
    for pause in pauses:
        now += pause
        if rates.admits(ONE, rate, now):
            admitted.append(now)
    for first, start in enumerate(admitted):
        for count, end in enumerate(admitted[first:], 1):
            assert count <= requests * ((end - start) / period + 1) + 1e-6
