"""Keeps measurements, scenario by scenario, in one JSON file that grows with every round.

Invariants: a scenario's record holds rounds of one commit and one way of running Vela only; a
record that is not complete never takes the place of a complete one; the file on disk is always
whole, because it is written beside its place and renamed into it.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from bench.machine_speed import MachineSpeed

if TYPE_CHECKING:
    from pathlib import Path

Figures = dict[str, float]
SERVERS = ("vela", "pulsar")


@dataclass(frozen=True)
class Origin:
    """Rounds are put together only if they have this in common."""

    commit: str
    vela: str
    """How Vela ran: with compiled hot modules, or from the sources."""
    rounds_wanted: int
    servers: tuple[str, ...] = SERVERS
    """What was measured side by side."""


@dataclass
class Record:
    """The rounds of one scenario. `failed` tells of those that showed an error and do not count."""

    origin: Origin
    date: str
    rounds: dict[str, list[Figures]] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)
    seconds: float = 0.0
    speeds: list[MachineSpeed] = field(default_factory=list)
    """Of the machine, before each attempt. Records from before 2026-11-28 have none."""

    def count(self, server: str) -> int:
        """Rounds of a server that count."""
        return len(self.rounds.get(server, []))

    @property
    def is_complete(self) -> bool:
        """Whether all servers have the rounds wanted."""
        wanted = self.origin.rounds_wanted
        return all(self.count(server) >= wanted for server in self.origin.servers)

    @property
    def is_comparable(self) -> bool:
        """Whether there is something of all servers."""
        return all(self.count(server) for server in self.origin.servers)


def record_from_json(data: dict[str, Any]) -> Record:
    """The inverse of `asdict`. Files from before other servers were measured name none."""
    origin = {"servers": SERVERS, **data["origin"]}
    return Record(
        **{
            **data,
            "origin": Origin(**{**origin, "servers": tuple(origin["servers"])}),
            "speeds": [MachineSpeed(**speed) for speed in data.get("speeds", [])],
        }
    )


class Results:
    """Complete records by scenario, and unfinished ones beside them."""

    def __init__(self, path: Path, order: list[str]) -> None:
        self.path = path
        self._order = order
        self.finished: dict[str, Record] = {}
        self.unfinished: dict[str, Record] = {}
        if path.is_file():
            kept = json.loads(path.read_text())
            for into, key in ((self.finished, "scenarios"), (self.unfinished, "unfinished")):
                for name, data in kept.get(key, {}).items():
                    into[name] = record_from_json(data)

    def has(self, name: str, origin: Origin) -> bool:
        """Whether a complete record of this origin is there."""
        done = self.finished.get(name)
        return done is not None and done.origin == origin

    def begin(self, name: str, origin: Origin, date: str, resume: bool) -> Record:
        """The record to add rounds to: with `resume` the unfinished one of this origin."""
        begun = self.unfinished.get(name)
        if resume and begun is not None and begun.origin == origin:
            return begun
        record = self.unfinished[name] = Record(origin, date)
        return record

    def finish(self, name: str) -> bool:
        """Put a complete record in the place of the earlier one; whether it was complete."""
        if not self.unfinished[name].is_complete:
            return False
        self.finished[name] = self.unfinished.pop(name)
        return True

    def shown(self) -> dict[str, Record]:
        """In the order of the table: the finished ones, and those never finished before."""
        both = {**self.unfinished, **self.finished}
        names = [name for name in self._order if name in both]
        return {name: both[name] for name in names + sorted(set(both) - set(names))}

    def save(self, **more: object) -> None:
        """Write the file; `more` is put before the records."""
        data = {
            **more,
            "scenarios": {name: asdict(record) for name, record in self.finished.items()},
            "unfinished": {name: asdict(record) for name, record in self.unfinished.items()},
        }
        self.path.parent.mkdir(parents=True, exist_ok=True)
        beside = self.path.with_suffix(".json.part")
        beside.write_text(json.dumps(data, indent=1) + "\n")
        os.replace(beside, self.path)
