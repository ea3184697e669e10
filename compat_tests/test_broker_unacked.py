"""The limit on unacknowledged messages of a broker is the same on both servers.

Takes twelve minutes, nearly all of it waiting for real Pulsar to look for the first time.
"""

from __future__ import annotations

import traceback
from typing import TYPE_CHECKING

import pytest

from compat_tests.clients.python.broker_unacked import CONFIGURATION, broker_unacked
from compat_tests.clients.python.scenario import Stage
from compat_tests.oracle.comparison import ScenarioFailed, Trace, play_on_all
from compat_tests.oracle_differences import what_differs
from compat_tests.servers import start_servers, wanted

if TYPE_CHECKING:
    from pathlib import Path

    from compat_tests.oracle.server_process import ServerProcess


@pytest.mark.slow
@pytest.mark.standalone
def test_who_holds_more_than_a_share_of_the_limit_waits(
    tmp_path: Path, pytestconfig: pytest.Config, keys_directory: Path
) -> None:
    def play(server: ServerProcess, mark: str) -> Trace:
        stage = Stage(server, "broker-unacked", keys_directory, mark)
        try:
            broker_unacked(stage)
        except Exception:
            raise ScenarioFailed(traceback.format_exc(limit=-5), stage.trace) from None
        finally:
            stage.close()
        return stage.trace

    servers = start_servers(tmp_path, wanted(pytestconfig), CONFIGURATION)
    try:
        told = what_differs("python", "broker-unacked", play_on_all(servers, play))
        assert not told, "\n".join(told)
    finally:
        for server in servers.values():
            server.kill()
            server.close()
