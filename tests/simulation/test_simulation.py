"""Seeds that must pass, and safeguards whose absence must be found.

Each test runs in a process of its own, because the hash seed has to be fixed before it starts.
`docs/testing.md` says how to look at a seed that failed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter

import pytest

SEEDS_PER_TEST = 10
SEEDS = (29, 45, 84)
"""The first seed of each test: of a hundred seeds, these thirty have the most of each rare case.
Each night runs a thousand seeds that no run had before."""
KEPT = {
    65: "a broker kept a topic that it had lost to another one, and refused its broadcast",
    200: "a broker delivered a fenced topic, and stored no acknowledgement of it",
    770: "a topic was read from bookies that had lost their places in its ledger",
    905: "receipts for new messages overtook those for copies of messages in flight",
    1614: "a clock stood still also for a time in which another fault let its machine run",
    2227: "a process that was started while it stopped went on, and a fault waited for ever",
}
"""Seeds that found a fault once, and the fault. Another order of tasks may have come since, so
each fault has a test of its own where it was, too."""
RARE = (
    "a broker gave up all bundles",
    "a crash lost bytes that were not synced",
    "a full bookie was read-only",
    "a read was sent to one more bookie",
    "a recovery replaced a bookie",
    "a start on lost disks was refused",
    "a writer had not enough bookies",
    "a writer replaced a bookie",
    "a writer went on without a bookie",
    "two recoveries of a ledger at once",
)
FOUND_BY = (
    pytest.param("fence", 6, marks=pytest.mark.slow),
    pytest.param("order", 300, marks=pytest.mark.slow),
    ("session", 0),
)
"""Where the search for a missing safeguard begins: at a seed that finds it soon."""
SEARCHED_MAX = 1_000


def run_simulation(*arguments):
    """(exit status, output)."""
    command = [sys.executable, "-m", "tests.simulation", *arguments]
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    ended = subprocess.run(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    return ended.returncode, ended.stdout


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Where the seeds of this module leave their results."""
    return tmp_path_factory.mktemp("simulation") / "results.jsonl"


@pytest.mark.parametrize("first", SEEDS)
def test_seeds(first, results):
    status, output = run_simulation(
        "--from", str(first), "--seeds", str(SEEDS_PER_TEST), "--results", str(results)
    )
    assert status == 0, output


def test_rare_cases_occur(results):
    """A simulation in which they do not says nothing about them. Only seeds that have no result
    yet are run here."""
    for first in SEEDS:
        test_seeds(first, results)
    marks = Counter()
    for line in results.read_text().splitlines():
        marks.update(json.loads(line)["marks"].keys())
    assert [each for each in RARE if not marks[each]] == []


@pytest.mark.parametrize("seed", KEPT)
def test_seeds_that_found_faults(seed):
    status, output = run_simulation("--from", str(seed))
    assert status == 0, output


def test_a_seed_decides_everything():
    outputs = {run_simulation("--from", "7", "--trace")[1].rpartition("\nseed ")[0] for _ in (0, 1)}
    assert len(outputs) == 1


@pytest.mark.parametrize(("safeguard", "first"), FOUND_BY)
def test_a_missing_safeguard_is_found(safeguard, first):
    status, output = run_simulation(
        "--without", safeguard, "--from", str(first), "--seeds", str(SEARCHED_MAX)
    )
    assert status == 0, output
