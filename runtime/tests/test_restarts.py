"""Restarts are at once, then ever slower up to a bound, and at once again after a calm time."""

from hypothesis import given
from hypothesis import strategies as st

from runtime.restarts import RestartRules, Restarts

RULES = RestartRules(first_delay_seconds=0.5, delay_seconds_max=4.0, calm_seconds=60.0)


def test_a_child_that_ends_again_and_again_waits_longer_each_time():
    restarts, now, delays = Restarts(RULES, 0.0), 0.0, []
    for _ in range(7):
        restarts.started(now)
        now += 1.0
        delays.append(restarts.ended(now))
        now += delays[-1]
    assert delays == [0.0, 0.5, 1.0, 2.0, 4.0, 4.0, 4.0]
    restarts.started(now)
    assert restarts.ended(now + 60.0) == 0.0
    assert restarts.count == 8


@given(runs=st.lists(st.floats(0.0, 200.0), min_size=1, max_size=50))
def test_a_child_is_always_started_again_within_the_bound(runs):
    restarts, now, starts = Restarts(RULES, 0.0), 0.0, []
    for ran in runs:
        restarts.started(now)
        starts.append(now)
        delay = restarts.ended(now + ran)
        assert 0.0 <= delay <= RULES.delay_seconds_max
        now += ran + delay
    for start in starts:
        in_a_minute = sum(start <= each < start + 60.0 for each in starts)
        assert in_a_minute <= 5 + 60.0 / RULES.delay_seconds_max
