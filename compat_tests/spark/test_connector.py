"""Jobs of the stock Spark connector see the same on both servers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from compat_tests.conftest import player
from compat_tests.spark.scenarios import SCENARIOS

if TYPE_CHECKING:
    from compat_tests.conftest import Compare, Drivers
    from compat_tests.servers import Servers

pytestmark = pytest.mark.client("spark")

ON_SHARED = [name for name, entry in SCENARIOS.items() if not entry.own_server]
ON_OWN = [name for name, entry in SCENARIOS.items() if entry.own_server]


@pytest.mark.parametrize("scenario", ON_SHARED)
def test_the_same_is_seen(
    scenario: str, servers: Servers, spark_drivers: Drivers, compare: Compare
) -> None:
    compare("spark", scenario, servers, player(spark_drivers, scenario))


@pytest.mark.parametrize("scenario", ON_OWN)
def test_the_same_is_seen_over_a_restart(
    scenario: str, own_servers: Servers, spark_drivers: Drivers, compare: Compare
) -> None:
    compare(
        "spark",
        scenario,
        own_servers,
        player(spark_drivers, scenario),
    )
