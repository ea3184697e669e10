"""The stock Python client sees the same on both servers."""

from __future__ import annotations

import traceback
from typing import TYPE_CHECKING

import pytest

from compat_tests.clients.python import SCENARIOS
from compat_tests.clients.python.scenario import Stage
from compat_tests.oracle.comparison import ScenarioFailed, Trace

if TYPE_CHECKING:
    from pathlib import Path

    from compat_tests.conftest import Compare
    from compat_tests.oracle.server_process import ServerProcess
    from compat_tests.servers import Servers

pytestmark = pytest.mark.client("python")

ON_SHARED = [name for name, entry in SCENARIOS.items() if not entry.own_server]
ON_OWN = [name for name, entry in SCENARIOS.items() if entry.own_server]


def _compare(name: str, servers: Servers, keys_directory: Path, compare: Compare) -> None:
    def play(server: ServerProcess, mark: str) -> Trace:
        stage = Stage(server, name, keys_directory, mark)
        try:
            SCENARIOS[name].play(stage)
        except Exception:
            raise ScenarioFailed(traceback.format_exc(limit=-5), stage.trace) from None
        finally:
            stage.close()
        return stage.trace

    compare("python", name, servers, play)


@pytest.mark.parametrize("scenario", ON_SHARED)
def test_the_same_is_seen(
    scenario: str, servers: Servers, keys_directory: Path, compare: Compare
) -> None:
    _compare(scenario, servers, keys_directory, compare)


@pytest.mark.parametrize("scenario", ON_OWN)
def test_the_same_is_seen_over_a_restart(
    scenario: str, own_servers: Servers, keys_directory: Path, compare: Compare
) -> None:
    _compare(scenario, own_servers, keys_directory, compare)
