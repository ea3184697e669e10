"""A few seconds of strangers at the ports with TLS; `python -m tests.bad_input.guarded_fuzz` goes
on for longer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cli.perf.fanout import allow_open_files
from tests.bad_input.guarded_fuzz import ATTACKERS, STRANGE, attack, fuzz
from tests.bad_input.guarded_server import GuardedServer
from tests.bad_input.strangers import HELD_MAX

if TYPE_CHECKING:
    from pathlib import Path

SECONDS = 8.0
ROUNDS_MAX = 8
"""As many as a busy machine needs for half of the kinds."""
HALF_OPEN = 500
KEY_UPDATES = 500
GROWTH_MB_MAX = 200.0
OPEN_FILES = HALF_OPEN + ATTACKERS * HELD_MAX + 500


def test_strangers_are_refused_and_told_nothing_and_others_are_served(tmp_path: Path) -> None:
    allow_open_files(OPEN_FILES)
    server = GuardedServer(tmp_path)
    server.process.start()
    try:
        server.process.wait_ready(240)
        outcome = fuzz(
            server,
            SECONDS,
            half_open_count=HALF_OPEN,
            key_update_count=KEY_UPDATES,
            seed=7,
            settle_seconds=0.0,
        )
        for seed in range(8, 8 + ROUNDS_MAX):
            if len(outcome.attempts) > len(STRANGE) // 2:
                break
            attack(server, SECONDS, seed, outcome)
            outcome.tracebacks = server.process.count_of("Traceback")
        lines = server.process.last_lines(100)
    finally:
        server.process.kill()
        server.process.wait_ended()
    assert outcome.told == [], lines
    assert outcome.is_good, (outcome, lines)
    assert outcome.memory_peak - outcome.memory_calm < GROWTH_MB_MAX
    assert len(outcome.attempts) > len(STRANGE) // 2
