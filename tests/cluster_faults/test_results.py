"""Outcomes accumulate in the file, whoever adds them."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from tests.cluster_faults.results import add_round, read_rounds, summary_of, text_of
from tests.cluster_faults.rounds import STARVED_SECONDS, Outcome, is_starved

if TYPE_CHECKING:
    from pathlib import Path


def outcome(kind: str, seed: int, **fields: Any) -> dict[str, Any]:
    made = Outcome(
        kind, seed, "3/2/2", 100, **{"acknowledged": 10, "read": 12, "doubled": 2} | fields
    )
    return made.as_json()


def test_a_file_grows_and_a_repeated_round_takes_the_place_of_the_former(tmp_path: Path) -> None:
    path = tmp_path / "below" / "results.json"
    assert read_rounds(path) == []
    add_round(path, {"add": 2}, outcome("disk-full", 1, violations=["LOST"]))
    for seed, pause, waited in ((3, 9.5, 8.0), (4, 2.25, 0.5)):
        bounded = outcome(
            "bookie-killed", seed, pause_s=pause, pause_allowed_s=20.0, waited_for_cpu_s=waited
        )
        add_round(path, {"add": 2}, bounded)
    add_round(path, {"add": 2}, outcome("disk-full", 0))
    order = [(each["kind"], each["seed"]) for each in read_rounds(path)]
    assert order == [
        ("bookie-killed", 3),
        ("bookie-killed", 4),
        ("disk-full", 0),
        ("disk-full", 1),
    ]
    found = json.loads(path.read_text())
    assert found["times"] == {"add": 2}
    assert found["kinds"]["disk-full"]["rounds_with_violations"] == 1
    assert found["kinds"]["disk-full"]["instants"] == 2
    assert found["kinds"]["bookie-killed"]["pause_max_s"] == 9.5
    assert found["kinds"]["bookie-killed"]["calm_instants"] == 1
    assert found["kinds"]["bookie-killed"]["calm_pause_max_s"] == 2.25

    add_round(path, {"add": 2}, outcome("disk-full", 1))
    assert len(read_rounds(path)) == 4
    summary = summary_of(read_rounds(path))
    assert summary["disk-full"]["rounds_with_violations"] == 0
    assert summary["disk-full"]["acknowledged"] == 20
    assert "disk-full" in text_of(summary)


def test_several_runs_add_to_one_file(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    with ThreadPoolExecutor(8) as pool:
        for seed in range(40):
            pool.submit(add_round, path, {}, outcome("disk-full", seed))
    assert [each["seed"] for each in read_rounds(path)] == list(range(40))


def test_a_round_is_void_only_by_what_is_not_in_the_file() -> None:
    assert "is_void" not in outcome("disk-full", 1)
    assert not is_starved(STARVED_SECONDS / 2)
    assert is_starved(STARVED_SECONDS)
