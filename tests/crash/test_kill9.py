"""A few rounds of the crash harness; `python -m tests.crash.kill9 --rounds 100` for many."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.crash.kill9 import Options, Run

if TYPE_CHECKING:
    from pathlib import Path


def test_nothing_acked_is_lost_and_nothing_reordered(tmp_path: Path) -> None:
    report = Run(
        Options(rounds=3, seed=3, flush_seconds=2, long_round_share=0.3, directory=tmp_path)
    ).run()

    assert report.violations == [], report.summary()
    assert report.rounds == 3
    assert report.messages_acked > 0
    assert report.holes_checked > 0
