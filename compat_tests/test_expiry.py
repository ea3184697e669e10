"""What expires by itself is the same on both servers: messages, subscriptions, unused topics.

Both look once a minute at most, so this takes two minutes, nearly all of it waiting. The clients
therefore wait at the same time.
"""

from __future__ import annotations

import traceback
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from typing import TYPE_CHECKING, NamedTuple

import pytest

from compat_tests.clients.builds import go_command, java_command
from compat_tests.clients.driver import ClientAbsent, Driver
from compat_tests.clients.python.expiry import WAIT_SECONDS, expiry
from compat_tests.clients.python.scenario import Stage
from compat_tests.oracle.comparison import ScenarioFailed, Trace
from compat_tests.servers import ORACLE_NAMES, start_servers, wanted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from compat_tests.conftest import Compare
    from compat_tests.oracle.comparison import Player
    from compat_tests.oracle.server_process import ServerProcess
    from compat_tests.servers import Servers

AT_THEIR_OWN_TIME = {
    "messageExpiryCheckIntervalInMinutes": "1",
    "subscriptionExpiryCheckIntervalInMinutes": "1",
    "brokerDeleteInactiveTopicsFrequencySeconds": "1",
    "brokerDeleteInactiveTopicsMaxInactiveDurationSeconds": "3600",
}
SCENARIO = "expiry"

pytestmark = pytest.mark.waits

PROGRAMS: dict[str, Callable[[], list[str]]] = {"java": java_command, "go": go_command}


class Playing(NamedTuple):
    """Both servers, and the first attempt of each client on each of them."""

    servers: Servers
    players: dict[str, Player]
    begun: dict[tuple[str, str], Future[Trace]]
    absent: dict[str, str]


def _in_python(keys_directory: Path) -> Player:
    def play(server: ServerProcess, mark: str) -> Trace:
        stage = Stage(server, SCENARIO, keys_directory, mark)
        try:
            expiry(stage)
        except Exception:
            raise ScenarioFailed(traceback.format_exc(limit=-5), stage.trace) from None
        finally:
            stage.close()
        return stage.trace

    return play


def _in_program(drivers: dict[str, Driver]) -> Player:
    return lambda server, mark: drivers[server.name].play(SCENARIO, server, mark)


@pytest.fixture(scope="module")
def playing(
    tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config, keys_directory: Path
) -> Iterator[Playing]:
    directory = tmp_path_factory.mktemp("expiry")
    players = {"python": _in_python(keys_directory)}
    absent: dict[str, str] = {}
    with ExitStack() as stack:
        for client, command in PROGRAMS.items():
            try:
                built = command()
            except ClientAbsent as missing:
                absent[client] = str(missing)
                continue
            drivers = {
                name: Driver(
                    client,
                    built,
                    directory / f"{client}-{name}.log",
                    keys_directory,
                    2 * WAIT_SECONDS,
                )
                for name in ("vela", *ORACLE_NAMES)
            }
            for driver in drivers.values():
                stack.callback(driver.close)
            players[client] = _in_program(drivers)
        servers = start_servers(directory, wanted(pytestconfig), AT_THEIR_OWN_TIME)
        for server in servers.values():
            stack.callback(server.close)
            stack.callback(server.kill)
        pool = stack.enter_context(ThreadPoolExecutor(len(players) * len(servers)))
        begun = {
            (client, name): pool.submit(play, server, "")
            for client, play in players.items()
            for name, server in servers.items()
        }
        yield Playing(servers, players, begun, absent)


@pytest.mark.standalone
@pytest.mark.parametrize(
    ("client", "scenario"),
    [
        pytest.param(client, SCENARIO, marks=pytest.mark.client(client))
        for client in ("python", *PROGRAMS)
    ],
)
def test_the_same_expires(client: str, scenario: str, playing: Playing, compare: Compare) -> None:
    if client in playing.absent:
        pytest.skip(playing.absent[client])

    def play(server: ServerProcess, mark: str) -> Trace:
        if mark:
            return playing.players[client](server, mark)
        return playing.begun[client, server.name].result()

    compare(client, scenario, playing.servers, play)
