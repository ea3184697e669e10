"""Results of seeds, one line of JSON each, in a file that later runs continue and add up.

A seed has one result per build, which is a hash of all sources: another build is another run.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
SOURCES = ("bookie", "broker", "ledgers", "metadata", "protocol", "runtime", "tests/simulation")


def build():
    """Equal for equal sources."""
    digest = hashlib.sha256()
    for room in SOURCES:
        for path in sorted((ROOT / room).rglob("*.py")):
            if "tests" not in path.relative_to(ROOT / room).parts:
                digest.update(path.relative_to(ROOT).as_posix().encode())
                digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


class Results:
    """The file. Several processes may append to it."""

    def __init__(self, path):
        self._path = path
        self._build = build()

    def done(self):
        """Seeds that have a result of this build."""
        return {each["seed"] for each in _lines(self._path) if each["build"] == self._build}

    def add(self, report, seconds):
        """The outcome of one run, and the seconds of CPU that it took."""
        line = {
            "seed": report.seed,
            "build": self._build,
            "ok": not report.problems,
            "problems": report.problems[:3],
            "messages": report.messages,
            "faults": report.kinds,
            "marks": report.marks,
            "virtual_seconds": round(report.virtual_seconds, 1),
            "cpu_seconds": round(seconds, 2),
        }
        with self._path.open("a") as file:
            file.write(json.dumps(line) + "\n")


def _lines(path):
    if path.exists():
        for line in path.read_text().splitlines():
            yield json.loads(line)


def summary(path):
    """Lines for people: what all results of a file show together."""
    found = list(_lines(path))
    if not found:
        yield "no results"
        return
    builds = len({each["build"] for each in found})
    failed = [each["seed"] for each in found if not each["ok"]]
    messages = sum(each["messages"] for each in found)
    cpu = sum(each["cpu_seconds"] for each in found)
    yield f"{len(found)} seeds of {builds} builds, {len(failed)} failed: {failed[:20]}"
    yield f"{messages} messages sent, {cpu / len(found):.2f} s of CPU per seed"
    for title, key in (("faults", "faults"), ("marks", "marks")):
        total, seeds = Counter(), Counter()
        for each in found:
            total.update(each[key])
            seeds.update(each[key].keys())
        yield f"{title} ({sum(total.values())}):"
        for name, count in sorted(total.items(), key=lambda one: -one[1]):
            yield f"  {count:>9} in {seeds[name]:>6} seeds: {name}"
