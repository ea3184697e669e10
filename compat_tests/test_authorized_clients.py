"""What stock clients may do with each kind of credential and of grant is the same on both servers,
and part of the matrix."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, NamedTuple

import pytest
from passlib.hash import apr_md5_crypt

from compat_tests.authorized_servers import start_authorized
from compat_tests.clients.builds import go_command, java_command
from compat_tests.conftest import drivers_of
from compat_tests.credential_attempts import (
    PASSWORD,
    SCENARIOS,
    CredentialFiles,
    Place,
    check,
    make_tenant,
    play_python,
    prepared,
    write_attempts,
)
from compat_tests.guarded_servers import PROVIDERS
from compat_tests.loopback_issuer import LoopbackIssuer
from compat_tests.oracle.releases import RELEASES
from compat_tests.oracle.server_jars import JARS_VERSION
from compat_tests.servers import wanted
from security.testing.certificates import Authority

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from compat_tests.conftest import Compare, Drivers
    from compat_tests.oracle.comparison import Trace
    from compat_tests.oracle.server_process import ServerProcess
    from compat_tests.servers import Servers

HOST = "127.0.0.1"
OPENID = f"{PROVIDERS.rpartition('.')[0]}.oidc.AuthenticationProviderOpenID"
OF_OPENID = "provider-oauth2"
"""The scenario of that provider, whose jar is not published for 5.0.1."""
PLAYED = pytest.mark.parametrize("scenario", sorted(SCENARIOS))


class Authorized(NamedTuple):
    """Both servers, and what is shown to them."""

    servers: Servers
    files: CredentialFiles


@pytest.fixture(scope="module")
def places(
    tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config
) -> Iterator[Authorized]:
    directory = tmp_path_factory.mktemp("authorized-clients")
    root, stranger = Authority("root"), Authority("stranger")
    users = directory / "htpasswd"
    users.write_text(f"alice:{apr_md5_crypt.hash(PASSWORD)}\nbob:{apr_md5_crypt.hash(PASSWORD)}\n")
    with ExitStack() as stack:
        issuer, foreign = LoopbackIssuer(), LoopbackIssuer()
        stack.callback(issuer.close)
        stack.callback(foreign.close)
        secret = "another one"
        files = CredentialFiles(
            issuer=issuer,
            foreign_issuer=foreign,
            authority=root.write(directory),
            certificate=root.issue("alice", rsa_bits=2048).write(directory, "alice"),
            foreign_certificate=stranger.issue("alice", rsa_bits=2048).write(directory, "foreign"),
            oauth2=issuer.write_credentials("alice", directory / "oauth2.json"),
            wrong_oauth2=issuer.write_credentials("alice", directory / "wrong.json", secret),
        )
        certificate, key = root.issue("broker", HOST, "localhost", rsa_bits=2048).write(
            directory, "server"
        )
        providers = ",".join(f"{PROVIDERS}{each}" for each in ("Token", "Basic", "Tls"))
        more = {
            "authenticationProviders": f"{providers},{OPENID}",
            "authorizationAllowWildcardsMatching": "true",
            "basicAuthConf": str(users),
            "tlsCertificateFilePath": certificate,
            "tlsKeyFilePath": key,
            "tlsTrustCertsFilePath": files.authority,
            **issuer.configuration(),
        }
        without = {JARS_VERSION: {"authenticationProviders": providers}}
        servers = start_authorized(
            directory, wanted(pytestconfig), more, tls=True, of_release=without
        )
        for server in servers.values():
            stack.callback(server.kill)
            make_tenant(server)
        yield Authorized(servers, files)


def play(
    places: Authorized,
    compare: Compare,
    client: str,
    scenario: str,
    run: Callable[[ServerProcess, Place], Trace],
) -> None:
    def on_one(server: ServerProcess, mark: str) -> Trace:
        tls_url = f"pulsar+ssl://{HOST}:{server.configuration['brokerServicePortTls']}"
        place = Place(server, tls_url, places.files, client, f"{client}-{scenario}{mark}")
        prepared(place, scenario)
        trace = run(server, place)
        check(place.attempts, trace)
        return trace

    on = dict(places.servers)
    if scenario == OF_OPENID and on.pop(RELEASES[JARS_VERSION].name, None) and len(on) == 1:
        pytest.skip(f"the OpenID provider of Pulsar {JARS_VERSION} is not published")
    compare(client, scenario, on, on_one)


@pytest.mark.client("python")
@pytest.mark.guarded
@PLAYED
def test_the_python_client_may_do_the_same(
    scenario: str, places: Authorized, compare: Compare
) -> None:
    def run(server: ServerProcess, place: Place) -> Trace:
        return play_python(place.attempts, server.directory / "python-client.log")

    play(places, compare, "python", scenario, run)


def in_program(drivers: Drivers, keys: Path) -> Callable[[ServerProcess, Place], Trace]:
    def run(server: ServerProcess, place: Place) -> Trace:
        directory = keys / server.name
        directory.mkdir(exist_ok=True)
        write_attempts(place.attempts, directory)
        return drivers[server.name].play("attempts", server, keys=directory)

    return run


@pytest.fixture(scope="module")
def java(tmp_path_factory: pytest.TempPathFactory, keys_directory: Path) -> Iterator[Drivers]:
    yield from drivers_of("java", java_command, tmp_path_factory.mktemp("java"), keys_directory)


@pytest.fixture(scope="module")
def go(tmp_path_factory: pytest.TempPathFactory, keys_directory: Path) -> Iterator[Drivers]:
    yield from drivers_of("go", go_command, tmp_path_factory.mktemp("go"), keys_directory)


@pytest.mark.client("java")
@pytest.mark.guarded
@PLAYED
def test_the_java_client_may_do_the_same(
    scenario: str, places: Authorized, java: Drivers, compare: Compare, tmp_path: Path
) -> None:
    play(places, compare, "java", scenario, in_program(java, tmp_path))


@pytest.mark.client("go")
@pytest.mark.guarded
@PLAYED
def test_the_go_client_may_do_the_same(
    scenario: str, places: Authorized, go: Drivers, compare: Compare, tmp_path: Path
) -> None:
    play(places, compare, "go", scenario, in_program(go, tmp_path))
