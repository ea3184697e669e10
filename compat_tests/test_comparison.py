"""A scenario that failed on the oracle alone is run once more and reported; no other is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from compat_tests.oracle.comparison import (
    REPETITION_MARK,
    ScenarioFailed,
    Trace,
    difference,
    play_on_all,
)
from compat_tests.oracle.server_process import ServerFailed, ServerProcess

if TYPE_CHECKING:
    from pathlib import Path


class Server(ServerProcess):
    """A server without a process; `up` is whether it is there."""

    def __init__(self, directory: Path, name: str, is_oracle: bool) -> None:
        super().__init__(directory, broker_port=1, web_port=1)
        self.name = name
        self.is_oracle = is_oracle
        self.up = True
        self.is_useful = True
        self.starts_again = True

    def command(self) -> list[str]:
        return []

    def environment(self) -> dict[str, str]:
        return {}

    def working_directory(self) -> Path:
        return self.directory

    def is_running(self) -> bool:
        return self.up

    def is_ready(self) -> bool:
        return self.is_useful

    def start(self) -> None:
        if not self.starts_again:
            raise ServerFailed("no room")
        self.up = self.is_useful = True


@pytest.fixture
def both(tmp_path: Path) -> dict[str, Server]:
    return {
        "vela": Server(tmp_path / "vela", "vela", is_oracle=False),
        "pulsar": Server(tmp_path / "pulsar", "pulsar", is_oracle=True),
    }


class Play:
    """Tells the topic's name; fails on one server, at the attempts of these numbers."""

    def __init__(self, fails_on: str, *attempts: int) -> None:
        self.fails_on = fails_on
        self.attempts = attempts
        self.marks: dict[str, list[str]] = {"vela": [], "pulsar": []}

    def __call__(self, server: ServerProcess, mark: str) -> Trace:
        marks = self.marks[server.name]
        marks.append(mark)
        if server.name == self.fails_on and len(marks) in self.attempts:
            raise ScenarioFailed(f"failure {len(marks)}", [])
        return [["topic", f"persistent://public/default/t{mark}"]]


def test_a_failure_of_the_oracle_is_played_again_on_other_topics_and_told(both: dict[str, Server]):
    play = Play("pulsar", 1)
    outcomes = play_on_all(both, play)
    assert play.marks == {name: ["", REPETITION_MARK] for name in both}
    assert difference(outcomes) is None
    assert outcomes["pulsar"].failure_before == "failure 1"
    assert outcomes["vela"].failure_before is None


def test_it_is_played_again_only_once_and_both_failures_are_told(both: dict[str, Server]):
    play = Play("pulsar", 1, 2)
    told = difference(play_on_all(both, play))
    assert len(play.marks["pulsar"]) == 2
    assert told is not None
    assert "failure 1" in told
    assert "failure 2" in told


def test_a_failure_of_vela_is_a_failure(both: dict[str, Server]):
    play = Play("vela", 1)
    told = difference(play_on_all(both, play))
    assert play.marks == {"vela": [""], "pulsar": [""]}
    assert told is not None
    assert "failure 1" in told


def test_a_failure_of_vela_beside_one_of_the_oracle_is_not_played_again(both: dict[str, Server]):
    marks: list[str] = []

    def play(server: ServerProcess, mark: str) -> Trace:
        marks.append(mark)
        raise ScenarioFailed(f"{server.name} failed", [])

    told: Any = difference(play_on_all(both, play))
    assert marks == ["", ""]
    assert "vela failed" in told
    assert "pulsar failed" in told


def test_a_failure_of_vela_at_the_second_time_is_a_failure(both: dict[str, Server]):
    def play(server: ServerProcess, mark: str) -> Trace:
        if server.is_oracle is not bool(mark):
            raise ScenarioFailed(f"{server.name} failed", [])
        return [["seen", 1]]

    told: Any = difference(play_on_all(both, play))
    assert "on vela the scenario failed" in told


@pytest.mark.parametrize("other", ["vela", "pulsar"])
def test_a_difference_is_not_played_again(both: dict[str, Server], other: str):
    marks: list[str] = []

    def play(server: ServerProcess, mark: str) -> Trace:
        marks.append(mark)
        return [["seen", server.name == other]]

    assert difference(play_on_all(both, play)) is not None
    assert marks == ["", ""]


def test_an_oracle_that_is_down_is_brought_up_before(both: dict[str, Server]):
    def play(server: ServerProcess, mark: str) -> Trace:
        if server.is_oracle and not mark:
            both["pulsar"].up = False
            raise ScenarioFailed("the server is gone", [])
        assert both["pulsar"].up or not server.is_oracle
        return [["seen", 1]]

    assert difference(play_on_all(both, play)) is None


def test_an_oracle_that_runs_and_is_of_no_use_is_started_again(both: dict[str, Server]):
    def play(server: ServerProcess, mark: str) -> Trace:
        if server.is_oracle and not mark:
            both["pulsar"].is_useful = False
            raise ScenarioFailed("no bookie", [])
        assert both["pulsar"].is_useful or not server.is_oracle
        return [["seen", 1]]

    assert difference(play_on_all(both, play)) is None


def test_an_oracle_that_does_not_come_up_again_is_told_with_what_came_before(
    both: dict[str, Server],
):
    both["pulsar"].starts_again = False

    def play(server: ServerProcess, mark: str) -> Trace:
        if server.is_oracle:
            both["pulsar"].up = False
            raise ScenarioFailed("the server is gone", [])
        return [["seen", 1]]

    told: Any = difference(play_on_all(both, play))
    assert "no room" in told
    assert "the server is gone" in told
