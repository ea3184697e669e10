"""The oldest and the newest stock Java clients see the same on all servers, as the pinned one does.

They run the scenarios that need no server of their own. The few of `smoke.txt` run always, the
others only without `-m 'not slow'`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from compat_tests.clients.builds import (
    JAVA_CLIENTS,
    JAVA_SCENARIOS,
    java_command_with,
    scenario_names,
)
from compat_tests.conftest import drivers_of, player
from compat_tests.smoke import SMOKE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from compat_tests.conftest import Compare, Drivers
    from compat_tests.servers import Servers

LAST_IDS = "it has no Consumer.getLastMessageIds"
TOPIC_POLICIES = "it has no PulsarAdmin.topicPolicies"
NO_DELAY_MAX = "its policies have no longest delay of a message"
LEFT_OUT: dict[str, dict[str, str]] = {
    "java-2.8.4": {
        "backlog-quota-of-age": TOPIC_POLICIES,
        "backlog-quota-with-eviction": TOPIC_POLICIES,
        "behaviour-of-a-topic": TOPIC_POLICIES,
        "connector-driver-partitions": LAST_IDS,
        "connector-driver-seeks-beyond-the-end": LAST_IDS,
        "connector-driver-triggers": LAST_IDS,
        "deduplication": TOPIC_POLICIES,
        "dispatch-rate": TOPIC_POLICIES,
        "last-message-id": LAST_IDS,
        "limits-of-unacknowledged": TOPIC_POLICIES,
        "policies-of-namespaces": NO_DELAY_MAX,
        "policies-of-topics": NO_DELAY_MAX,
        "producer-access-modes": "it has no ProducerAccessMode.ExclusiveWithFencing",
        "publish-rate": TOPIC_POLICIES,
    },
    "java-4.2.4": {},
    "java-5.0.1": {},
}
"""Scenarios that a client cannot run on any server, and why."""


def marks(client: str, scenario: str) -> list[pytest.MarkDecorator]:
    always = (client, scenario) in SMOKE
    return [pytest.mark.client(client), *([] if always else [pytest.mark.slow])]


PLAYED = [
    pytest.param(client, scenario, marks=marks(client, scenario))
    for client in JAVA_CLIENTS
    for scenario in scenario_names(JAVA_SCENARIOS)
    if scenario not in LEFT_OUT[client]
]


@pytest.fixture(scope="session")
def client(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    keys_directory: Path,
) -> Iterator[tuple[str, Drivers]]:
    """The name of one, and its programs."""
    name: str = request.param
    directory = tmp_path_factory.mktemp(name)
    version = JAVA_CLIENTS[name]
    for drivers in drivers_of(name, lambda: java_command_with(version), directory, keys_directory):
        yield name, drivers


@pytest.mark.parametrize(("client", "scenario"), PLAYED, indirect=["client"])
def test_the_same_is_seen(
    client: tuple[str, Drivers], scenario: str, servers: Servers, compare: Compare
) -> None:
    name, drivers = client
    compare(name, scenario, servers, player(drivers, scenario))
