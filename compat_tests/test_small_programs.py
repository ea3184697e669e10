"""The clients of frameworks and the Rust crate see the same on all servers: a few messages sent and
received, and some refused once; a reader of the crate goes back."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest

from compat_tests.clients.builds import FRAMEWORKS, framework_command, rust_command
from compat_tests.conftest import drivers_of, player
from compat_tests.smoke import SMOKE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from compat_tests.conftest import Compare, Drivers
    from compat_tests.servers import Servers

SCENARIOS = ("round-trip", "redelivery")
MORE_SCENARIOS = {"rust": ("seek",)}
PROGRAMS = {name: partial(framework_command, name) for name in FRAMEWORKS} | {"rust": rust_command}


def marks(client: str, scenario: str) -> list[pytest.MarkDecorator]:
    always = (client, scenario) in SMOKE
    return [pytest.mark.client(client), *([] if always else [pytest.mark.slow])]


PLAYED = [
    pytest.param(client, scenario, marks=marks(client, scenario))
    for client in PROGRAMS
    for scenario in (*SCENARIOS, *MORE_SCENARIOS.get(client, ()))
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
    for drivers in drivers_of(name, PROGRAMS[name], directory, keys_directory):
        yield name, drivers


@pytest.mark.parametrize(("client", "scenario"), PLAYED, indirect=["client"])
def test_the_same_is_seen(
    client: tuple[str, Drivers], scenario: str, servers: Servers, compare: Compare
) -> None:
    name, drivers = client
    compare(name, scenario, servers, player(drivers, scenario))
