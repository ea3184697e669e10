"""Fixtures of the comparison: the servers, the client programs, and the matrix at the end.

The servers start once per run, side by side. Scenarios that stop or kill a server get a second
set, so that a server which does not come back spoils nothing else.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from compat_tests.clients.builds import go_command, java_command
from compat_tests.clients.driver import SCENARIO_TIMEOUT_SECONDS, ClientAbsent, Driver
from compat_tests.cluster_results import ClusterResults
from compat_tests.matrix import CLIENT_TITLES, DIFFERS, EQUAL, LISTED, MATRICES, this_run
from compat_tests.oracle.cluster_layouts import LAYOUTS
from compat_tests.oracle.comparison import Player, failures, lines, play_on_all
from compat_tests.oracle.distribution import OracleAbsent
from compat_tests.oracle.releases import FIRST, RELEASES
from compat_tests.oracle.zookeeper_server import ZooKeeperServer
from compat_tests.oracle_differences import compared, of_scenario, pairs, to_list
from compat_tests.servers import BOTH, ORACLE_NAMES, Servers, start_servers, wanted
from compat_tests.smoke import SMOKE

if TYPE_CHECKING:
    from pathlib import Path

    from compat_tests.oracle.releases import Release
    from compat_tests.oracle.server_process import ServerProcess
    from compat_tests.oracle_differences import Pair
    from compat_tests.servers import Wanted

# Their assertions tell what differs.
pytest.register_assert_rewrite("compat_tests.migration")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--only-server",
        choices=("vela", "pulsar"),
        help="run the scenarios on one server only; nothing is compared and no matrix is written",
    )
    parser.addoption(
        "--oracle",
        choices=(*RELEASES, BOTH),
        default=FIRST.version,
        help="the release of real Pulsar to compare with, or both at once, which are then also"
        f" compared with each other (default {FIRST.version})",
    )
    parser.addoption(
        "--cluster",
        choices=tuple(LAYOUTS),
        help="play the scenarios of clients on this cluster in the place of Vela standalone, and no"
        " other tests",
    )
    parser.addoption(
        "--resume",
        action="store_true",
        help="with --cluster: only the scenarios that the record does not have as equal yet",
    )
    parser.addoption(
        "--record",
        action="store_true",
        help="put the results into docs/compatibility.json and -spark.json, and write their pages",
    )
    parser.addoption(
        "--oracle-required",
        action="store_true",
        help="where real Pulsar cannot be had, the tests that need it fail and are not skipped",
    )


@pytest.fixture(scope="session")
def servers(
    tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config
) -> Iterator[Servers]:
    """All servers, up for the whole run."""
    started = start_servers(tmp_path_factory.mktemp("servers"), wanted(pytestconfig))
    yield started
    _end(started, lambda server: server.stop())


@pytest.fixture(scope="session")
def own_servers_of_session(
    tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config
) -> Iterator[Servers]:
    started = start_servers(tmp_path_factory.mktemp("own-servers"), wanted(pytestconfig))
    yield started
    _end(started, lambda server: server.kill())


def _end(servers: Servers, action: Callable[[ServerProcess], object]) -> None:
    """End all of them; then fail if one had ended by itself."""
    told = [
        f"{ended} while nothing was asked of it:\n{server.log_tail()}"
        for server in servers.values()
        if (ended := server.how_it_ended()) is not None
    ]
    with ExitStack() as stack:  # one that does not end leaves none of the others running
        for server in servers.values():
            stack.callback(server.close)
            stack.callback(action, server)
    assert not told, "\n".join(told)


@pytest.fixture
def own_servers(own_servers_of_session: Servers) -> Servers:
    """A set that scenarios may stop and kill; brought up again if the last one left it down."""
    for server in own_servers_of_session.values():
        if not server.is_running():
            server.kill()  # reap it, if it ended by itself
            server.start()
    return own_servers_of_session


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    """One for all clusters below paths of their own, which nobody stops. Tests that stop ZooKeeper,
    or give it TLS, and members of Pulsar, which want its root, have one of their own."""
    server = ZooKeeperServer(tmp_path_factory.mktemp("zookeeper"))
    server.start()
    yield server
    server.kill()


@pytest.fixture(scope="session")
def keys_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh RSA key pair for the encryption scenarios: public.pem and private.pem."""
    directory = tmp_path_factory.mktemp("keys")
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    (directory / "private.pem").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.TraditionalOpenSSL,
            serialization.NoEncryption(),
        )
    )
    (directory / "public.pem").write_bytes(
        key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
    )
    return directory


Drivers = Mapping[str, Driver]


def drivers_of(
    client: str,
    command: Callable[[], list[str]],
    directory: Path,
    keys: Path,
    timeout_seconds: float = SCENARIO_TIMEOUT_SECONDS,
) -> Iterator[Drivers]:
    """A client's program, one process per server."""
    try:
        built = command()
    except ClientAbsent as absent:
        pytest.skip(str(absent))
    drivers = {
        server: Driver(client, built, directory / f"{client}-{server}.log", keys, timeout_seconds)
        for server in ("vela", "cluster", *ORACLE_NAMES)
    }
    yield drivers
    for driver in drivers.values():
        driver.close()


@pytest.fixture(scope="session")
def java_drivers(
    tmp_path_factory: pytest.TempPathFactory, keys_directory: Path
) -> Iterator[Drivers]:
    """The Java program, one process per server."""
    yield from drivers_of("java", java_command, tmp_path_factory.mktemp("java"), keys_directory)


@pytest.fixture(scope="session")
def go_drivers(tmp_path_factory: pytest.TempPathFactory, keys_directory: Path) -> Iterator[Drivers]:
    """The Go program, one process per server."""
    yield from drivers_of("go", go_command, tmp_path_factory.mktemp("go"), keys_directory)


def player(drivers: Drivers, scenario: str) -> Player:
    """Has the program of the server run the scenario."""
    return lambda server, mark: drivers[server.name].play(scenario, server, mark)


Compare = Callable[[str, str, Servers, Player], None]


@pytest.fixture
def compare(pytestconfig: pytest.Config) -> Compare:
    """Run a scenario on every server, put the result into the matrix, fail on a difference."""
    cluster = pytestconfig.getoption("--cluster")

    def play_and_compare(client: str, scenario: str, on: Servers, play: Player) -> None:
        outcomes = play_on_all(on, play)
        again = [each.failure_before for each in outcomes.values() if each.failure_before]
        for why in again:
            what = f"{client} {scenario} was run again, because the oracle failed: {why}"
            warnings.warn(what, RuntimeWarning, stacklevel=2)
        if len(on) == 1:  # shown by `pytest -s`
            print("", *lines(next(iter(outcomes.values())).trace), sep="\n")
        told = failures(outcomes)
        traces = {name: outcome.trace for name, outcome in outcomes.items()}
        results: dict[Pair, str] = dict.fromkeys(pairs(list(on)), DIFFERS)
        if not told:
            for pair, (wrong, is_same) in compared(traces, of_scenario(client, scenario)).items():
                results[pair] = DIFFERS if wrong else EQUAL if is_same else LISTED
                told += wrong
        if cluster is not None:
            is_equal = DIFFERS not in results.values()
            ClusterResults(cluster).record(client, scenario, is_equal, again=bool(again))
        elif results:
            MATRICES[client].record(client, scenario, results, this_run(), again=bool(again))
            if told:
                told += to_list(client, scenario, traces)
        if told:
            pytest.fail(f"{client} {scenario}\n" + "\n".join(told), pytrace=False)

    return play_and_compare


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test of one release of real Pulsar beside Vela runs with each that is wanted."""
    if "release" in metafunc.fixturenames:
        metafunc.parametrize(
            "release",
            wanted(metafunc.config).releases or [FIRST],
            ids=lambda release: release.version,
            scope="session",
        )


@pytest.fixture(scope="session")
def beside(pytestconfig: pytest.Config, release: Release) -> Wanted:
    """Vela and one release. Skips the test where one of the two is left out."""
    chosen = wanted(pytestconfig)
    if not chosen.is_comparison:
        pytest.skip("there is nothing to compare with")
    return replace(chosen, releases=(release,), cluster=None)


def matrix_name(scenario: str, guarded: tuple[str, str] | None = None) -> str:
    """Of a scenario, with the algorithm of the tokens if it is played for several."""
    return scenario if guarded is None else f"{scenario}-{guarded[0].lower()}"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    cluster = config.getoption("--cluster")
    if cluster is not None:
        _choose_for_cluster(cluster, config, items)
    for item in items:
        scenario = getattr(item, "callspec", None)
        client = item.get_closest_marker("client")
        if client and scenario and (client.args[0], scenario.params.get("scenario")) in SMOKE:
            item.add_marker(pytest.mark.smoke)
        if client is not None and scenario is not None and cluster is None:
            name, params = client.args[0], scenario.params
            scenario_name = matrix_name(params["scenario"], params.get("guarded"))
            MATRICES[name].expect(name, scenario_name, item.path.name)
    # Scenarios that end servers come last: their pair is not started before it is needed.
    items.sort(key=lambda item: "own_servers" in getattr(item, "fixturenames", ()))


def _choose_for_cluster(cluster: str, config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the scenarios of clients, and the tests of broadcast if the broker is Vela's."""
    layout = LAYOUTS[cluster]
    results = ClusterResults(cluster) if config.getoption("--resume") else None

    def is_chosen(item: pytest.Item) -> bool:
        client, call = item.get_closest_marker("client"), getattr(item, "callspec", None)
        if client is None or call is None:
            return layout.has_vela_broker and item.get_closest_marker("broadcast") is not None
        name, scenario = client.args[0], call.params["scenario"]
        if any(item.get_closest_marker(name) for name in ("guarded", "standalone")):
            return False
        return name in CLIENT_TITLES and not (results and results.has_equal(name, scenario))

    config.hook.pytest_deselected(items=[item for item in items if not is_chosen(item)])
    items[:] = filter(is_chosen, items)
    for item in items:
        scenario = getattr(item, "callspec", None)
        why = layout.left_out.get(scenario.params.get("scenario", "")) if scenario else None
        if why is not None:
            item.add_marker(pytest.mark.skip(reason=why))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> None:
    """Skip a test that real Pulsar is absent for, whether one of its fixtures has found out, that
    of an earlier test, or the test itself."""
    absent = None if call.excinfo is None else call.excinfo.value
    if isinstance(absent, OracleAbsent) and not item.config.getoption("--oracle-required"):
        skipped = pytest.CallInfo.from_call(lambda: pytest.skip(str(absent)), call.when)
        call.excinfo = skipped.excinfo


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "client(name): the stock client that runs the scenario")
    config.addinivalue_line("markers", "smoke: one of the few scenarios in smoke.txt")
    config.addinivalue_line("markers", "guarded: the servers want credentials; not on clusters")
    config.addinivalue_line("markers", "standalone: servers of its own; not on clusters")
    config.addinivalue_line("markers", "broadcast: needs a broker of Vela, standalone or not")
    # The stock clients and their schema libraries warn about themselves; Vela's own code is
    # under the strict filters of its own suites.
    config.addinivalue_line("filterwarnings", "default")


def pytest_sessionfinish(session: pytest.Session) -> None:
    if session.config.getoption("--record"):
        for matrix in dict.fromkeys(MATRICES.values()):
            matrix.write()
