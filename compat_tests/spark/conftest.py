"""Fixtures of the Spark comparison: servers of its own and one Spark program per server."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from compat_tests.conftest import drivers_of
from compat_tests.servers import start_servers, wanted
from compat_tests.spark.environment import spark_command

if TYPE_CHECKING:
    from collections.abc import Iterator

    from compat_tests.conftest import Drivers
    from compat_tests.servers import Servers

# Ledgers of few entries, so that every stream reads over their ends, and nothing is trimmed
# unless a scenario asks for it in a namespace of its own. The bookie is there to be read from.
CONFIGURATION = {
    "managedLedgerMaxEntriesPerLedger": "25",
    "managedLedgerMinLedgerRolloverTimeMinutes": "0",
    "defaultRetentionTimeInMinutes": "-1",
    "defaultRetentionSizeInMB": "-1",
    "bookiePort": "0",
}
SCENARIO_TIMEOUT_SECONDS = 240.0


@pytest.fixture(scope="session")
def servers(
    tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config
) -> Iterator[Servers]:
    """Both servers, up for the whole run; scenarios that stop one come last."""
    started = start_servers(
        tmp_path_factory.mktemp("spark-servers"),
        wanted(pytestconfig),
        CONFIGURATION,
    )
    yield started
    for server in started.values():
        server.stop()


@pytest.fixture
def own_servers(servers: Servers) -> Servers:
    """The same pair, brought up again if the last scenario left one down."""
    for server in servers.values():
        if not server.is_running():
            server.start()
    return servers


@pytest.fixture(scope="session")
def spark_drivers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Drivers]:
    """The Spark program, one process per server."""
    directory = tmp_path_factory.mktemp("spark")
    yield from drivers_of("spark", spark_command, directory, directory, SCENARIO_TIMEOUT_SECONDS)
