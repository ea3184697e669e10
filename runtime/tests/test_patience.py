"""Who waits before its next call, without sockets."""

from __future__ import annotations

from math import inf

from runtime.patience import TOGETHER_SECONDS, Patience


def test_those_whose_times_are_near_are_called_together():
    patience = Patience()
    patience.begin(1, 10.0)
    patience.begin(2, 10.0 + TOGETHER_SECONDS)
    patience.begin(3, 10.1)
    assert patience.until == 10.0
    assert patience.ended(10.0) == [1, 2]
    assert len(patience) == 1
    assert patience.until == 10.1
    assert patience.ended(inf) == [3]
    assert not patience


def test_a_shorter_wait_is_found_before_a_longer_one_that_began_earlier():
    patience = Patience()
    patience.begin(1, 20.0)
    patience.begin(2, 10.0)
    patience.begin(3, 30.0)
    assert patience.until == 10.0


def test_input_is_reported_again_only_after_the_call_that_follows_the_wait():
    patience = Patience()
    assert patience.begin(1, 10.0)
    assert patience.is_unreported(1)
    assert not patience.was_ended(1)
    assert patience.ended(10.0) == [1]
    assert patience.is_unreported(1)
    assert patience.was_ended(1)
    assert not patience.was_ended(1)


def test_one_that_is_patient_again_during_its_call_stays_unreported():
    patience = Patience()
    patience.begin(1, 10.0)
    assert patience.ended(10.0) == [1]
    assert not patience.begin(1, 20.0)
    assert not patience.was_ended(1)
    assert patience.until == 20.0


def test_one_that_is_called_for_another_reason_does_not_wait():
    patience = Patience()
    patience.begin(1, 10.0)
    patience.end(1)
    patience.end(1)
    assert not patience
    assert patience.was_ended(1)


def test_one_that_is_read_no_more_leaves_nothing():
    patience = Patience()
    patience.begin(1, 10.0)
    patience.forget(1)
    patience.forget(1)
    assert not patience
    assert not patience.is_unreported(1)
    assert patience.begin(1, 20.0)
