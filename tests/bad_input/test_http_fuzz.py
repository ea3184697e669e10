"""A few seconds of hostile HTTP; `python -m tests.bad_input.http_fuzz` runs for longer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.bad_input.http_attacks import HOSTILE
from tests.bad_input.http_fuzz import fuzz
from tests.server_process import ServerProcess

if TYPE_CHECKING:
    from pathlib import Path

SECONDS = 8.0
ROUNDS_MAX = 8
"""As many as a busy machine needs for half of the kinds."""
GROWTH_KB_MAX = 200_000


def test_hostile_http_harms_nobody_else(tmp_path: Path) -> None:
    server = ServerProcess(tmp_path)
    server.start()
    try:
        server.wait_ready(240)
        seen: set[str] = set()
        for seed in range(7, 7 + ROUNDS_MAX):
            result, counts = fuzz(server, SECONDS, seed)
            assert not server.has_ended(), server.last_lines()
            assert result.tracebacks == 0, server.last_lines(200)
            assert result.failures == []
            assert result.publishes > 0
            assert result.after_kb - result.before_kb < GROWTH_KB_MAX
            seen.update(counts)
            if len(seen) >= len(HOSTILE) // 2:
                break
        assert len(seen) >= len(HOSTILE) // 2
    finally:
        server.kill()
        server.wait_ended()
