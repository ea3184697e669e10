"""The page of clusters counts the scenarios that were run, and names what is not equal."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from compat_tests.cluster_results import ClusterResults, page, scenarios_of_clients
from compat_tests.oracle.cluster_layouts import LAYOUTS, Layout
from compat_tests.oracle.vela_bookie import VelaBookie
from compat_tests.oracle.vela_broker import VelaBroker

if TYPE_CHECKING:
    from pathlib import Path

SCENARIOS = {"python": ["reader", "shared", "on-disk"], "java": ["reader"]}
LAYOUT = Layout(
    "Vela 3/2/2", VelaBroker, VelaBookie, (3, 2, 2), {"on-disk": "a cluster has no data directory"}
)


def test_the_page_counts_what_is_equal_and_names_the_rest():
    results = {"one": {"python": {"reader": "equal (again)", "shared": "differs", "gone": "equal"}}}
    text = page(results, SCENARIOS, {"one": LAYOUT})
    assert "| Vela 3/2/2 | 1 of 2 equal | not run |" in text
    assert "- Vela 3/2/2, python: equal (again): `reader`" in text
    assert "- Vela 3/2/2, python: differs: `shared`" in text
    assert "- Vela 3/2/2: `on-disk` is left out: a cluster has no data directory" in text
    assert "gone" not in text


def test_a_scenario_that_was_not_played_does_not_count_as_equal():
    text = page({"one": {"python": {"shared": "equal"}}}, SCENARIOS, {"one": LAYOUT})
    assert "| Vela 3/2/2 | 1 of 2 equal | not run |" in text
    assert "- Vela 3/2/2, python: not run: `reader`" in text


def test_results_of_several_runs_come_together_and_the_newest_counts(tmp_path: Path):
    record = tmp_path / "clusters.json"
    first, second = list(LAYOUTS)[:2]
    ClusterResults(first, record).record("go", "reader", equal=False)
    ClusterResults(first, record).record("go", "reader", equal=True)
    ClusterResults(first, record).record("java", "reader", equal=True, again=True)
    ClusterResults(second, record).record("java", "reader", equal=False)
    assert json.loads(record.read_text()) == {
        first: {"go": {"reader": "equal"}, "java": {"reader": "equal (again)"}},
        second: {"java": {"reader": "differs"}},
    }
    assert LAYOUTS[second].title in record.with_suffix(".md").read_text()


def test_a_run_that_is_continued_plays_what_was_not_equal(tmp_path: Path):
    results = ClusterResults(next(iter(LAYOUTS)), tmp_path / "clusters.json")
    results.record("go", "reader", equal=True, again=True)
    results.record("go", "shared", equal=False)
    assert results.has_equal("go", "reader")
    assert not results.has_equal("go", "shared")
    assert not results.has_equal("go", "failover")
    assert not results.has_equal("java", "reader")


def test_only_scenarios_that_exist_are_left_out():
    names = {name for names in scenarios_of_clients().values() for name in names}
    for layout in LAYOUTS.values():
        assert set(layout.left_out) <= names
