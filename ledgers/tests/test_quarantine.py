from hypothesis import given
from hypothesis import strategies as st

from ledgers.quarantine import Quarantine, QuarantineRules

RULES = QuarantineRules()


def test_five_failures_in_a_minute_are_too_many():
    quarantine = Quarantine(RULES)
    assert [quarantine.on_failure("b", now) for now in (0, 20, 40, 61, 62)] == [False] * 5
    assert quarantine.on_failure("b", 63)
    assert quarantine.avoided(63) == {"b"}
    assert quarantine.avoided(63 + 1799) == {"b"}
    assert quarantine.avoided(63 + 1800) == frozenset()


def test_connections_that_end_together_are_one_failure():
    quarantine = Quarantine(RULES)
    assert not any(quarantine.on_failure("b", 100 + number / 1000) for number in range(16))
    assert quarantine.avoided(101) == frozenset()


def test_it_can_be_turned_off():
    quarantine = Quarantine(QuarantineRules(is_on=False))
    assert not any(quarantine.on_failure("b", number) for number in range(50))


def test_the_ratio_lets_some_go_on_and_counts_them_again():
    quarantine = Quarantine(QuarantineRules(ratio=0.5))
    assert not any(quarantine.on_failure("b", now, 0.5) for now in range(5))
    assert quarantine.avoided(5) == frozenset()
    assert [quarantine.on_failure("b", now, 0.4) for now in range(5, 10)] == [False] * 4 + [True]


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 40)), max_size=80))
def test_a_bookie_is_avoided_only_after_enough_failures_of_its_own(steps):
    quarantine = Quarantine(RULES)
    now = 0
    times = {name: [] for name in "abc"}
    for name, pause in steps:
        now += 1 + pause
        times[name].append(now)
        quarantine.on_failure(name, now)
        for each in quarantine.avoided(now):
            assert len([t for t in times[each] if t > now - 1800 - 60]) >= RULES.failures
