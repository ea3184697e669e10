"""A short run of mutated frames beside a client that behaves; the long run is in `fuzz`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.bad_input.fuzz import new_server, run

if TYPE_CHECKING:
    from pathlib import Path

SECONDS = 10.0


def test_mutated_frames_end_in_no_traceback_and_a_neighbour_is_served(tmp_path: Path) -> None:
    server = new_server(tmp_path)
    server.start()
    try:
        server.wait_ready(240)
        outcome = run(server, SECONDS, seed=7, settle_seconds_max=0.0)
        lines = server.last_lines(200)
    finally:
        server.kill()
        server.wait_ended()
    assert outcome.tracebacks == 0, lines
    assert not outcome.broker_ended, lines
    assert outcome.connections > 0
    assert outcome.bystander_messages > 0
