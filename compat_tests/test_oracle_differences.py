"""A difference between the releases of Pulsar passes if it is listed, and in no other case."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from compat_tests.matrix import DIFFERS, EQUAL, LISTED, Matrix
from compat_tests.oracle.releases import RELEASES
from compat_tests.oracle.server_jars import missing
from compat_tests.oracle_differences import Difference, compared, listed, of_scenario, pairs

if TYPE_CHECKING:
    from pathlib import Path

FOUR, FIVE = RELEASES
OLD_RUN, NEW_RUN = "2026-01-02 at 0123456789", "2026-01-03 at abcdef0123"
NAMES = {version: release.name for version, release in RELEASES.items()}


def one(followed: str) -> Difference:
    return Difference("s", ("java",), {FOUR: ('["n", 4]',), FIVE: ('["n", 5]',)}, followed, "why")


def wrong(vela: int, four: int, five: int, known: list[Difference]) -> dict[str, list[str]]:
    traces = {
        "vela": [["before", 1], ["n", vela]],
        NAMES[FOUR]: [["before", 1], ["n", four]],
        NAMES[FIVE]: [["before", 1], ["n", five]],
    }
    return {" ".join(pair): told for pair, (told, _) in compared(traces, known).items() if told}


def test_pairs_are_vela_with_each_release_and_the_releases_with_each_other():
    assert pairs(["vela", *NAMES.values()]) == [("vela", FOUR), ("vela", FIVE), (FOUR, FIVE)]
    assert pairs(["cluster", NAMES[FIVE]]) == [("vela", FIVE)]
    assert pairs(["vela"]) == []
    assert pairs(list(NAMES.values())) == [(FOUR, FIVE)]


def test_a_difference_of_the_releases_fails_unless_it_is_listed():
    assert wrong(4, 4, 5, []).keys() == {f"vela {FIVE}", f"{FOUR} {FIVE}"}
    assert wrong(4, 4, 5, [one(FOUR)]) == {}
    assert wrong(5, 4, 5, [one(FIVE)]) == {}


def test_vela_must_show_what_the_release_it_follows_shows():
    assert wrong(5, 4, 5, [one(FOUR)]).keys() == {f"vela {FOUR}", f"vela {FIVE}"}
    assert wrong(6, 4, 5, [one(FOUR)]).keys() == {f"vela {FOUR}", f"vela {FIVE}"}


def test_a_listed_difference_that_is_gone_fails():
    told = wrong(4, 4, 4, [one(FOUR)])
    assert told.keys() == {f"vela {FIVE}", f"{FOUR} {FIVE}"}
    assert "no longer differ" in told[f"{FOUR} {FIVE}"][0]


def test_one_release_alone_is_enough_to_judge_vela():
    traces = {"vela": [["n", 4]], NAMES[FIVE]: [["n", 5]]}
    assert compared(traces, [one(FOUR)]) == {("vela", FIVE): ([], False)}
    assert compared(traces, [one(FIVE)])["vela", FIVE][0] != []


def test_a_difference_is_of_its_scenario_and_its_clients():
    known = [one(FOUR)]
    assert of_scenario("java", "s", known) == known
    assert of_scenario("go", "s", known) == []
    assert of_scenario("java", "t", known) == []


def test_the_list_names_a_release_to_follow_and_what_differs():
    for each in listed():
        assert each.followed in RELEASES, each
        assert each.shown[FOUR] != each.shown[FIVE], each
        assert each.clients, each
        assert each.why, each


def test_the_page_shows_what_was_seen_last_and_drops_what_is_gone(tmp_path: Path):
    (tmp_path / "test_one.py").write_text('pytestmark = pytest.mark.client("java")')
    page, titles = tmp_path / "page.md", {"java": "Java 4", "go": "Go 0"}
    before = {
        "java": {
            "gone": {f"vela and {FOUR}": [EQUAL, OLD_RUN]},
            "s": {f"vela and {FIVE}": [DIFFERS, OLD_RUN]},
        }
    }
    page.with_suffix(".json").write_text(json.dumps(before))

    partly = Matrix(page, ("# Page",), titles, tmp_path)
    partly.record("java", "s", {("vela", FOUR): LISTED}, NEW_RUN, again=True)
    partly.record("go", "s", {("vela", FOUR): EQUAL}, NEW_RUN)
    partly.write()
    row = f"| s | java, go | listed (again): java; equal: go | **{DIFFERS}**: java; not run: go |"
    assert row in page.read_text()
    assert "| gone | java | equal | not run | not run |" in page.read_text()
    assert (
        f"* Vela and {FOUR}: 2 of 3 are equal, 1 differ as listed, 0 otherwise."
        f" Results by run: {NEW_RUN} (2); {OLD_RUN} (1).\n"
    ) in page.read_text()

    whole = Matrix(page, ("# Page",), titles, tmp_path)
    whole.expect("java", "s", "test_one.py")
    whole.record("java", "s", {("vela", FIVE): EQUAL}, NEW_RUN)
    whole.write()
    assert "| s | java | listed (again) | equal | not run |" in page.read_text()
    assert "gone" not in page.read_text()


def test_a_run_that_compared_nothing_writes_no_page(tmp_path: Path):
    Matrix(tmp_path / "page.md", ("# Page",), {"java": "Java 4"}, tmp_path).write()
    assert list(tmp_path.iterdir()) == []


def test_a_jar_with_another_checksum_is_fetched_again(tmp_path: Path):
    jars = tmp_path / "jars"
    jars.mkdir()
    for name, content in (("right.jar", b"abc"), ("cut.jar", b"ab")):
        (jars / name).write_bytes(content)
    checksum = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    pinned = tmp_path / "jars.sha256"
    pinned.write_text("".join(f"{checksum}  {each}.jar\n" for each in ("absent", "cut", "right")))
    assert missing(jars, pinned) == ["absent.jar", "cut.jar"]
    assert [path.name for path in jars.iterdir()] == ["right.jar"]
