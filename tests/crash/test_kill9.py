"""A few rounds of the crash harness; `python -m tests.crash.kill9 --rounds 100` for many."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.crash.kill9 import Options, Report, Run, stuck_producers
from tests.crash.load import stays_unacked

if TYPE_CHECKING:
    from pathlib import Path


def test_nothing_acked_is_lost_and_nothing_reordered(tmp_path: Path) -> None:
    report = Run(
        Options(rounds=3, seed=3, flush_seconds=4, long_round_share=0.3, directory=tmp_path)
    ).run()

    assert report.violations == [], report.summary()
    assert report.rounds == 3
    assert report.messages_acked > 0
    assert report.holes_checked > 0


def test_the_summary_tells_rounds_messages_acks_holes_and_restart_times() -> None:
    report = Report(
        seed=7,
        rounds=2,
        kills={"load": 2},
        ready_seconds=[1.0, 9.0, 2.0],
        messages_acked=1000,
        messages_read=1004,
        duplicates_of_unacked=4,
        acks_given=800,
        holes_checked=50,
    )
    told = report.summary()
    assert "2 rounds" in told
    assert "2.00 s (median), 9.00 s (longest)" in told
    assert "1000 messages acked" in told
    assert "800 acknowledgements, 50 messages in ack holes" in told
    assert "everything held" in told
    assert report.as_json()["ready_seconds_median"] == 2.0
    assert report.as_json()["ready_seconds_max"] == 9.0


def test_a_producer_that_has_sent_everything_is_not_called_stuck() -> None:
    assert stuck_producers([5, 950, 7], [6, 950, 7], 1000) == [2]


def test_the_first_entry_stays_unacked_so_that_no_ledger_is_removed() -> None:
    holes: set[tuple[int, int]] = set()
    entries = [(1, number) for number in range(200)]
    left = [entry for entry in entries if stays_unacked(entry, holes)]
    assert left[0] == entries[0]
    assert 1 < len(left) < len(entries) / 4
    assert left == [entry for entry in entries if stays_unacked(entry, holes)]  # after a restart
