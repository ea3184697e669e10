"""When a topic whose ledgers fail tries again."""

from __future__ import annotations

import pytest

from bookie.api import Status
from broker.managed_ledger.config import ManagedLedgerConfig
from broker.managed_ledger.roll_attempts import RollAttempts, no_entries
from broker.managed_ledger.roll_pace import RollPace

CONFIG = ManagedLedgerConfig(
    roll_attempts_max=3,
    roll_retry_delay_s=0.5,
    broken_delay_max_s=3.0,
    rolls_per_second_max=100.0,
)


def test_a_few_attempts_are_made_at_once_and_with_pauses():
    attempts = RollAttempts(CONFIG, RollPace(CONFIG))
    pauses = []
    while attempts.is_left:
        pauses.append(attempts.pause_s)
        attempts.failed()
    assert pauses == [0.0, 0.0, 0.5]
    assert attempts.has_failed
    assert not attempts.is_broken


def test_after_those_single_ones_are_made_after_delays_that_double_up_to_a_bound():
    attempts = RollAttempts(CONFIG, RollPace(CONFIG))
    now = 10.0
    delays = []
    for _ in range(5):
        while attempts.is_left:
            assert attempts.pause_s == 0.0 or not attempts.is_broken
            attempts.failed()
        attempts.give_up(now)
        assert attempts.is_broken
        begun = now
        while not attempts.is_due(now):
            now += 0.5
        delays.append(now - begun)
    assert delays == [0.5, 1.0, 2.0, 3.0, 3.0]


def test_a_confirmed_entry_ends_it():
    attempts = RollAttempts(CONFIG, RollPace(CONFIG))
    for _ in range(3):
        attempts.failed()
    attempts.give_up(0.0)
    attempts.succeeded()
    assert not attempts.has_failed
    assert not attempts.is_broken
    for _ in range(3):
        assert attempts.is_left
        attempts.failed()
    assert not attempts.is_left


def test_a_topic_with_a_single_attempt_is_broken_until_an_entry_is_confirmed():
    attempts = RollAttempts(ManagedLedgerConfig(roll_attempts_max=1), RollPace(CONFIG))
    attempts.failed()
    attempts.give_up(0.0)
    assert attempts.is_left
    assert attempts.has_failed


def test_the_advice_is_about_what_failed():
    assert "check the disk" in no_entries(Status.IO_ERROR)
    told = no_entries(Status.NOT_ENOUGH_BOOKIES)
    assert "start more bookies" in told
    assert "disk" not in told


def test_ledgers_that_die_young_are_replaced_ever_less_often():
    attempts = RollAttempts(CONFIG, RollPace(CONFIG))
    pauses = []
    for _ in range(6):
        attempts.succeeded()  # an entry or two found enough bookies
        attempts.ended(entries=9, lived_s=0.1)
        pauses.append(attempts.pause_s)
    assert pauses == [0.0, 0.5, 1.0, 2.0, 3.0, 3.0]
    assert attempts.is_repeated
    attempts.ended(entries=9, lived_s=2.9)  # not as long as the pause before it
    assert attempts.pause_s == 3.0
    attempts.ended(entries=9, lived_s=3.0)
    assert not attempts.is_repeated
    assert attempts.pause_s == 0.0


def test_a_ledger_that_is_replaced_because_it_is_full_ends_the_pauses():
    attempts = RollAttempts(CONFIG, RollPace(CONFIG))
    for _ in range(6):
        attempts.ended(entries=9, lived_s=0.1)
    attempts.succeeded()
    assert attempts.pause_s == 3.0
    attempts.rolled_over()
    assert attempts.pause_s == 0.0
    assert not attempts.is_repeated


def test_the_topics_of_a_broker_take_turns():
    pace = RollPace(ManagedLedgerConfig(rolls_per_second_max=10.0))
    assert [round(pace.wait_s(5.0), 3) for _ in range(4)] == [0.0, 0.1, 0.2, 0.3]
    assert pace.wait_s(60.0) == 0.0


def test_turns_come_closer_while_topics_recover_and_are_far_between_after_a_failure():
    pace = RollPace(CONFIG)
    recovering = [RollAttempts(CONFIG, pace) for _ in range(10_000)]
    for attempts in recovering:
        attempts.failed()
    now = 0.0
    for attempts in recovering:
        now += pace.wait_s(now)
        attempts.succeeded()
    assert now < 11
    recovering[0].failed()
    pace.wait_s(now)
    assert pace.wait_s(now) - pace.wait_s(now) == pytest.approx(-0.01)


def test_topics_that_never_failed_bring_no_turn_closer():
    pace = RollPace(CONFIG)
    for _ in range(100):
        RollAttempts(CONFIG, pace).succeeded()
    pace.wait_s(0.0)
    assert pace.wait_s(0.0) == pytest.approx(0.01)


def test_the_advice_names_the_key_that_lets_ledgers_do_with_fewer_bookies():
    assert "bookkeeper_opportunisticStriping=true" in no_entries(Status.NOT_ENOUGH_BOOKIES)


def test_a_bookie_that_joins_ends_the_delay_of_a_broken_topic_and_the_next_is_short():
    pace = RollPace(CONFIG)
    attempts = RollAttempts(CONFIG, pace)
    for _ in range(3):
        attempts.failed()
        attempts.give_up(10.0)
    assert not attempts.is_due(11.0)
    pace.bookies_joined()
    assert attempts.is_due(11.0)
    attempts.take_up()
    assert attempts.is_repeated  # so it takes a turn of the broker
    attempts.failed()
    attempts.give_up(11.0)
    assert not attempts.is_due(11.4)
    assert attempts.is_due(11.5)


def test_a_bookie_that_joins_brings_no_turn_closer():
    pace = RollPace(CONFIG)
    pace.wait_s(0.0)
    pace.bookies_joined()
    assert pace.wait_s(0.0) == pytest.approx(0.01)
