"""The stock Java client sees the same on both servers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from compat_tests.clients.builds import JAVA_SCENARIOS, scenario_names
from compat_tests.conftest import player

if TYPE_CHECKING:
    from compat_tests.conftest import Compare, Drivers
    from compat_tests.servers import Servers

pytestmark = pytest.mark.client("java")

ON_SHARED = scenario_names(JAVA_SCENARIOS)
ON_OWN = scenario_names(JAVA_SCENARIOS, "own-server")


@pytest.mark.parametrize("scenario", ON_SHARED)
def test_the_same_is_seen(
    scenario: str, servers: Servers, java_drivers: Drivers, compare: Compare
) -> None:
    compare("java", scenario, servers, player(java_drivers, scenario))


@pytest.mark.slow
@pytest.mark.parametrize("scenario", ON_OWN)
def test_the_same_is_seen_over_a_restart(
    scenario: str, own_servers: Servers, java_drivers: Drivers, compare: Compare
) -> None:
    compare(
        "java",
        scenario,
        own_servers,
        player(java_drivers, scenario),
    )
