"""The few scenarios of `smoke.txt`: of the release of Pulsar and of the clients that a run does
not compare whole."""

from __future__ import annotations

from pathlib import Path
from typing import Final

SMOKE: Final = frozenset(
    (client, scenario)
    for client, scenario in (
        line.split()
        for line in Path(__file__).with_suffix(".txt").read_text().splitlines()
        if line[0] != "#"
    )
)
"""Clients and names of scenarios."""
