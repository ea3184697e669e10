"""Scenarios are found under the names the matrix shows, each once."""

from __future__ import annotations

import pytest

from compat_tests.clients.registry import Registry


def test_a_scenario_is_found_by_its_name_and_two_of_a_name_are_refused():
    registry: Registry[list[str]] = Registry()

    @registry.scenario("restart", own_server=True)
    def restart(stage: list[str]) -> None:
        stage.append("played")

    stage: list[str] = []
    registry.entries["restart"].play(stage)
    assert stage == ["played"]
    assert registry.entries["restart"].own_server
    with pytest.raises(AssertionError, match="two scenarios are called restart"):
        registry.scenario("restart")(restart)
