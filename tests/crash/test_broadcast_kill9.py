"""A few rounds of the broadcast crash harness; `python -m tests.crash.broadcast_kill9` for many."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.crash.broadcast_kill9 import Options, Run

if TYPE_CHECKING:
    from pathlib import Path


def test_every_consumer_resumes_at_or_before_its_last_ack_and_misses_nothing(
    tmp_path: Path,
) -> None:
    report = Run(Options(rounds=3, seed=2, flush_seconds=4, directory=tmp_path)).run()

    assert report.violations == [], report.summary()
    assert report.rounds == 3
    assert report.messages_durable > 0
    assert report.acks_sent > 0
