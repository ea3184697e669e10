"""When audits are due, and when failed repairs are tried again."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from autorecovery.schedule import BACK_OFF_MAX_S, AuditSchedule, BackOff

DAY = 86_400


def schedule(delay=0, registered=("a", "b", "c")):
    made = AuditSchedule(DAY, delay, 0.0)
    made.on_registered(frozenset(registered), 0.0)
    made.on_audit_begun(0.0)
    return made


def test_the_first_audit_is_at_the_start_and_then_after_the_interval():
    made = AuditSchedule(DAY, 0, 5.0)
    made.on_registered(frozenset("a"), 6.0)
    assert made.next_audit() <= 6.0
    made.on_audit_begun(6.0)
    assert made.next_audit() == 6.0 + DAY


def test_a_lost_bookie_is_audited_at_once_without_a_delay():
    made = schedule()
    made.on_registered(frozenset("ab"), 10.0)
    assert made.next_audit() == 10.0


def test_a_single_lost_bookie_has_the_delay_to_come_back():
    made = schedule(delay=60)
    made.on_registered(frozenset("ab"), 10.0)
    assert made.next_audit() == 70.0
    made.on_registered(frozenset("abc"), 20.0)
    assert made.next_audit() >= DAY


def test_a_second_lost_bookie_ends_the_wait():
    made = schedule(delay=60)
    made.on_registered(frozenset("ab"), 10.0)
    made.on_registered(frozenset("a"), 30.0)
    assert made.next_audit() == 30.0


def test_nothing_is_audited_while_no_bookie_is_registered():
    """All sessions end together with ZooKeeper; every ledger would be marked."""
    made = schedule()
    made.on_registered(frozenset(), 10.0)
    assert made.next_audit() == math.inf
    made.on_registered(frozenset("a"), 11.0)
    assert made.next_audit() == 10.0


def test_writing_the_delay_again_asks_for_an_audit():
    made = schedule(delay=60)
    made.on_delay(60, 10.0)
    assert made.next_audit() == 10.0


def test_another_delay_counts_for_a_bookie_that_is_waited_for():
    made = schedule(delay=60)
    made.on_registered(frozenset("ab"), 10.0)
    made.on_delay(30, 20.0)
    assert made.next_audit() == 50.0


@given(
    st.lists(
        st.tuples(st.frozensets(st.sampled_from("abcd"), min_size=1), st.booleans()), max_size=20
    ),
    st.integers(0, 100),
)
def test_every_lost_bookie_is_audited_within_the_delay_unless_it_comes_back(steps, delay):
    made = AuditSchedule(DAY, delay, 0.0)
    registered = frozenset("abcd")
    made.on_registered(registered, 0.0)
    made.on_audit_begun(0.0)
    waiting: dict[str, float] = {}
    now = 0.0
    for again, passes in steps:
        if passes and made.next_audit() < now + DAY / 2:
            now = max(now, made.next_audit())
            made.on_audit_begun(now)
            waiting.clear()
        now += 1.0
        waiting = {each: at for each, at in waiting.items() if each not in again}
        waiting |= dict.fromkeys(registered - again, now)
        registered = again
        made.on_registered(again, now)
        for lost_at in waiting.values():
            assert made.next_audit() <= lost_at + delay


def test_a_repair_that_fails_is_tried_ever_more_rarely_and_never_given_up():
    back_off = BackOff()
    now = 0.0
    pauses = []
    assert back_off.on_failure(7, now)
    for _ in range(15):
        assert back_off.is_waiting(7, now)
        pauses.append(back_off.next_at() - now)
        now = back_off.next_at()
        assert not back_off.is_waiting(7, now)
        assert not back_off.on_failure(7, now)
    assert pauses == sorted(pauses)
    assert pauses[-1] == BACK_OFF_MAX_S


def test_another_bookie_is_a_reason_to_try_again_at_once():
    back_off = BackOff()
    for _ in range(5):
        back_off.on_failure(7, 0.0)
    back_off.on_bookies_changed(1.0)
    assert not back_off.is_waiting(7, 1.0)


def test_a_ledger_left_to_its_writer_is_not_a_failure():
    back_off = BackOff()
    back_off.wait_until(7, 30.0)
    back_off.on_bookies_changed(1.0)
    assert back_off.is_waiting(7, 29.0)
    assert not back_off.is_waiting(7, 30.0)
    assert back_off.on_failure(7, 30.0)


def test_delays_are_counted_and_those_that_ended_early_too():
    made = schedule(delay=60)
    assert (made.audits_delayed, made.delays_cancelled) == (0, 0)
    made.on_registered(frozenset("ab"), 10.0)
    made.on_registered(frozenset("abc"), 20.0)
    assert (made.audits_delayed, made.delays_cancelled) == (1, 1)
    made.on_registered(frozenset("ab"), 30.0)
    made.on_registered(frozenset("a"), 40.0)
    assert (made.audits_delayed, made.delays_cancelled) == (2, 2)
    made.on_audit_begun(40.0)
    made.on_registered(frozenset("abc"), 50.0)
    made.on_registered(frozenset("ab"), 60.0)
    made.on_audit_begun(120.0)
    made.on_registered(frozenset("abc"), 130.0)
    assert (made.audits_delayed, made.delays_cancelled) == (3, 2)
