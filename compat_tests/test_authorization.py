"""Who may do what, on both servers: every route and every command, by callers of several rights."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from compat_tests.authorization_differences import OF_RELEASES, why_different
from compat_tests.authorization_probes import ask_all_commands, ask_all_endpoints
from compat_tests.authorized_servers import start_authorized
from compat_tests.revocation_probes import change_super_users, play_all

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from compat_tests.authorization_probes import Table
    from compat_tests.oracle.releases import Release
    from compat_tests.oracle.server_process import ServerProcess
    from compat_tests.servers import Servers, Wanted


@pytest.fixture(scope="module")
def authorized(tmp_path_factory: pytest.TempPathFactory, beside: Wanted) -> Iterator[Servers]:
    servers = start_authorized(tmp_path_factory.mktemp("authorized"), beside)
    yield servers
    for server in servers.values():
        server.kill()


def compared(
    servers: Servers, release: Release, ask: Callable[[ServerProcess, str], Table], mark: str
) -> list[str]:
    """What differs without a reason, one line for each cell, and what is listed and equal."""
    with ThreadPoolExecutor(2) as pool:
        vela, oracle = pool.map(lambda server: ask(server, mark), servers.values())
    assert vela.keys() == oracle.keys()
    listed = OF_RELEASES.get(release.version, {})
    gone = {what for what, _variant in vela} & listed.keys()
    told: list[str] = []
    for (what, variant), row in vela.items():
        for caller, cell in row.items():
            other = oracle[what, variant][caller]
            why = why_different(release.version, what, cell, other)
            if why == "":
                told.append(f"{what} [{variant}] for {caller}: {cell!r}, Pulsar {other!r}")
            elif why is not None and why == getattr(listed.get(what), "why", None):
                gone.discard(what)
    return told + [f"{what} does not differ any more: take it off the list" for what in gone]


def test_every_command_is_refused_to_those_whom_pulsar_refuses_it(
    authorized: Servers, release: Release
):
    told = compared(authorized, release, ask_all_commands, "of-commands")
    assert not told, "\n".join(told)


def test_every_route_is_refused_to_those_whom_pulsar_refuses_it(
    authorized: Servers, release: Release
):
    told = compared(authorized, release, ask_all_endpoints, "of-routes")
    assert not told, "\n".join(told)


def test_a_revoked_grant_ends_what_is_open_as_on_pulsar(authorized: Servers):
    with ThreadPoolExecutor(2) as pool:
        vela, oracle = pool.map(
            lambda server: play_all(server, "of-revocation"), authorized.values()
        )
    administrators = "other administrators"
    assert vela.pop(administrators)["admin"][0] == "CLOSE_PRODUCER"
    assert oracle.pop(administrators)["admin"][0] == "nothing"  # before policies change, too
    assert vela == oracle


def test_super_users_change_while_the_server_runs(authorized: Servers):
    told = {name: change_super_users(server) for name, server in authorized.items()}
    assert told == {name: ["401", "passed", "401"] for name in authorized}
