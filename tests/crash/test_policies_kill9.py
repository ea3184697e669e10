"""A few rounds; `python -m tests.crash.policies_kill9 --rounds 100` for many."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.crash.policies_kill9 import Options, Policy, Run

if TYPE_CHECKING:
    from pathlib import Path


def test_policies_are_those_answered_or_those_asked_for_after_a_kill(tmp_path: Path) -> None:
    report = Run(Options(rounds=2, seed=5, directory=tmp_path)).run()
    assert report.violations == [], report.summary()
    assert report.rounds == 2
    assert report.answered > 0


def test_a_value_that_was_neither_answered_nor_asked_for_is_a_violation() -> None:
    policy = Policy("t/maxProducers", answered=4, asked=5)
    assert [policy.may_be(each) for each in (4, 5, 6, None)] == [True, True, False, False]
    policy.asked = None
    assert [policy.may_be(each) for each in (4, 5)] == [True, False]
