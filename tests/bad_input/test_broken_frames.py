"""Unfinished frames take bounded memory, and give it back; the long run is in `broken_frames`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.bad_input.broken_frames import MESSAGE_BYTES, run
from tests.server_process import VELA, ServerProcess

if TYPE_CHECKING:
    from pathlib import Path

CONNECTIONS = 60
BOUND_MB = 32
GROWTH_MB_MAX = 110
"""The bound, a receive of a megabyte for each of those that come at once, and what malloc keeps;
60 unfinished messages of 5 MB would be 300."""


def test_connections_broken_within_large_frames_take_bounded_memory(tmp_path: Path) -> None:
    config = tmp_path / "small.conf"
    config.write_text(f"maxUnfinishedFramesSizeInMB={BOUND_MB}\n")
    server = ServerProcess(tmp_path, f"{VELA} --config {config}")
    server.start()
    try:
        server.wait_ready(240)
        outcome = run(server, CONNECTIONS, MESSAGE_BYTES)
    finally:
        server.kill()
        server.wait_ended()
    assert outcome.tracebacks == 0
    assert outcome.resident_peak - outcome.resident_before < GROWTH_MB_MAX, outcome
