"""Which servers a run compares, and their start: Vela, and real Pulsar of one or each release."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from compat_tests.oracle.cluster_layouts import LAYOUTS
from compat_tests.oracle.pulsar_server import PulsarServer
from compat_tests.oracle.releases import RELEASES, Release
from compat_tests.oracle.server_process import ServerProcess
from compat_tests.oracle.vela_server import VelaServer

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

Servers = Mapping[str, ServerProcess]
"""By name: `vela`, or `cluster` in its place, and the names of releases."""

BOTH: Final = "both"
ORACLE_NAMES: Final = tuple(release.name for release in RELEASES.values())


@dataclass(frozen=True)
class Wanted:
    """Which servers a run is of."""

    vela: bool
    releases: tuple[Release, ...]
    """Of real Pulsar; none when the oracles are left out."""
    cluster: str | None = None
    """The cluster in the place of Vela standalone."""

    @property
    def is_comparison(self) -> bool:
        """Whether there are servers to compare."""
        return self.vela and bool(self.releases)


def wanted(config: pytest.Config) -> Wanted:
    """What the options ask for."""
    wanted_oracle, only = config.getoption("--oracle"), config.getoption("--only-server")
    releases = tuple(RELEASES.values()) if wanted_oracle == BOTH else (RELEASES[wanted_oracle],)
    return Wanted(
        vela=only != "pulsar",
        releases=() if only == "vela" else releases,
        cluster=config.getoption("--cluster"),
    )


def oracle(
    directory: Path, release: Release, configuration: dict[str, str] | None = None
) -> PulsarServer:
    """A server of one release beside others, not started yet."""
    return PulsarServer(directory / release.name, configuration, release=release, name=release.name)


def start_servers(
    directory: Path, wanted: Wanted, configuration: dict[str, str] | None = None
) -> Servers:
    """The servers that are wanted, with the same configuration."""
    servers: dict[str, ServerProcess] = {}
    if wanted.vela:
        if wanted.cluster is None:
            servers["vela"] = VelaServer(directory / "vela", configuration)
        else:
            layout = LAYOUTS[wanted.cluster]
            servers["cluster"] = layout.server(directory / "cluster", configuration)
    for release in wanted.releases:
        servers[release.name] = oracle(directory, release, configuration)
    start_all(servers)
    return servers


def start_all(servers: Servers) -> None:
    """Start them at the same time; all are closed if one does not come up."""
    try:
        with ThreadPoolExecutor(len(servers)) as pool:
            starts = [pool.submit(server.start) for server in servers.values()]
        for start in starts:
            start.result()
    except BaseException:
        for server in servers.values():  # another one may be up
            server.close()
        raise
