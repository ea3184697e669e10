"""Who is let in, who is not, and how credentials are renewed: the same on both servers, for stock
clients, for bare commands and over HTTP."""

from __future__ import annotations

import base64
import re
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, NamedTuple

import pulsar
import pytest
import trio

from broker.net.tests.harness import Connection, T
from compat_tests.clients.builds import go_command, java_command
from compat_tests.clients.driver import ClientAbsent, Driver
from compat_tests.conftest import matrix_name
from compat_tests.credential_attempts import (
    ALL,
    LET_IN_SECONDS,
    NOT_CONNECT,
    REFUSED_SECONDS,
    Attempt,
    play_python,
    write_attempts,
)
from compat_tests.guarded_servers import (
    PASSWORD,
    SHORT_SECONDS,
    Issuer,
    configuration,
    own_client,
    renewed_file,
    show_to,
)
from compat_tests.oracle.comparison import Trace, play_on_all
from compat_tests.oracle.vela_server import VelaServer
from compat_tests.oracle_differences import what_differs
from compat_tests.servers import oracle, wanted
from protocol import client as c
from protocol import pulsar_api_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from compat_tests.conftest import Compare
    from compat_tests.oracle.server_process import ServerProcess

RENEWED_SECONDS = 8.0
"""Two ends of a token of three seconds; `compat_tests.token_expiry` goes on for 1,000."""
LET_IN = {"right", "expires-later", "valid-since", "apr1", "crypt", "right-over-http"}
REFUSED = {
    *("foreign", "expired", "not-yet", "no-time", "unsigned", "swapped", "no-token"),
    *("wrong-password", "unknown-user", "foreign-over-http", "wrong-password-over-http"),
}
BOTH = pytest.mark.parametrize(
    "guarded", [("HS256", ""), ("RS256", "anybody")], ids=["hs256", "rs256"], indirect=True
)
"""Pairs of servers: with a secret, and with a key pair and a role for those who show nothing."""
PLAYED = pytest.mark.parametrize("scenario", ["credentials", "credentials-renewed"])


class Guarded(NamedTuple):
    """Both servers, and who makes tokens for them."""

    servers: dict[str, ServerProcess]
    issuer: Issuer
    anonymous: str

    def name_of(self, scenario: str) -> str:
        """In the matrix."""
        return matrix_name(scenario, (self.issuer.algorithm, self.anonymous))


@pytest.fixture(scope="module")
def guarded(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    pytestconfig: pytest.Config,
) -> Iterator[Guarded]:
    algorithm, anonymous = request.param
    directory = tmp_path_factory.mktemp(f"guarded-{algorithm}")
    issuer = Issuer(algorithm)
    keys = configuration(issuer, directory, anonymous)
    chosen = wanted(pytestconfig)
    servers: dict[str, ServerProcess] = {}
    if chosen.vela:
        servers["vela"] = VelaServer(directory / "vela", keys)
    for release in chosen.releases:
        servers[release.name] = oracle(directory, release, keys | own_client(issuer))
    with ExitStack() as stack:
        for server in servers.values():
            show_to(server, issuer)
            stack.callback(server.close)
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda server: server.start(), servers.values()))
        yield Guarded(servers, issuer, anonymous)


def same(guarded: Guarded, what: str, play: Callable[[ServerProcess, str], Trace]) -> Trace:
    """What was seen on all of them; `what`: the scenario's name in the list of differences."""
    outcomes = play_on_all(guarded.servers, play)
    told = what_differs("none", guarded.name_of(what), outcomes)
    if told:
        pytest.fail("\n".join(told), pytrace=False)
    return next(iter(outcomes.values())).trace


# --- the Python client ------------------------------------------------------------------


def attempts(guarded: Guarded, server: ServerProcess, mark: str) -> list[Attempt]:
    """One for each credential; some of them look up over HTTP."""
    credentials = guarded.issuer.credentials()
    shown = {name: (*each, server.service_url) for name, each in credentials.items()}
    shown["nothing"] = "none", "", server.service_url
    for name in ("right", "foreign", "apr1", "wrong-password"):
        shown[f"{name}-over-http"] = (*credentials[name], server.web_url)
    refused = REFUSED if guarded.anonymous else REFUSED | {"nothing"}
    return [
        Attempt(
            label=name,
            may=NOT_CONNECT if name in refused else ALL,
            method=method,
            credential=credential,
            url=url,
            trusted="",
            topic=f"persistent://public/default/{mark}-{name}",
            seconds=REFUSED_SECONDS if name in refused else LET_IN_SECONDS,
        )
        for name, (method, credential, url) in shown.items()
    ]


def check(guarded: Guarded, trace: Trace) -> None:
    let_in = {name for name, (_, _, received) in trace if received == "hello"}
    assert let_in >= LET_IN
    assert ("nothing" in let_in) == bool(guarded.anonymous)
    assert not let_in & REFUSED


def credentials_shown(guarded: Guarded, server: ServerProcess, mark: str) -> Trace:
    tried = attempts(guarded, server, f"python{mark}")
    trace = play_python(tried, server.directory / "python-client.log")
    check(guarded, trace)
    return trace


def renewed(guarded: Guarded, server: ServerProcess, mark: str) -> Trace:
    topic = f"persistent://public/default/renewed{mark}"
    client = pulsar.Client(
        server.service_url,
        authentication=pulsar.AuthenticationToken(guarded.issuer.short),
        operation_timeout_seconds=10,
        logger=pulsar.FileLogger(
            pulsar.LoggerLevel.Warn, str(server.directory / "python-client.log")
        ),
    )
    try:
        consumer = client.subscribe(topic, "s")
        producer = client.create_producer(topic)
        before = _connections(server, topic)
        end, sent, in_order = time.monotonic() + RENEWED_SECONDS, 0, 0
        while time.monotonic() < end:
            producer.send(str(sent).encode())
            message = consumer.receive(10_000)
            in_order += message.data() == str(sent).encode()
            consumer.acknowledge(message)
            sent += 1
            time.sleep(0.02)
        more = None
        try:
            more = consumer.receive(700).data()
        except pulsar.Timeout:
            pass
        assert (in_order, more, _connections(server, topic)) == (sent, None, before)
        return [["all in order", True], ["more", more], ["same connections", True]]
    finally:
        client.close()


@pytest.mark.client("python")
@pytest.mark.guarded
@PLAYED
@BOTH
def test_the_python_client_sees_the_same(guarded: Guarded, scenario: str, compare: Compare) -> None:
    play = {"credentials": credentials_shown, "credentials-renewed": renewed}[scenario]
    compare(
        "python",
        guarded.name_of(scenario),
        guarded.servers,
        lambda server, mark: play(guarded, server, mark),
    )


def _connections(server: ServerProcess, topic: str) -> list[Any]:
    _, stats = server.http("GET", "/admin/v2/" + topic.replace("://", "/") + "/stats")
    all_of = [*stats["publishers"], *stats["subscriptions"]["s"]["consumers"]]
    return [(each["address"], each["connectedSince"]) for each in all_of]


# --- the Java and the Go client ---------------------------------------------------------


def play_program(
    guarded: Guarded,
    scenario: str,
    client: str,
    command: Callable[[], list[str]],
    keys: Path,
    compare: Compare,
) -> None:
    try:
        built = command()
    except ClientAbsent as absent:
        pytest.skip(str(absent))
    with ExitStack() as stack:
        stack.enter_context(renewed_file(guarded.issuer, keys))
        drivers = {
            name: Driver(client, built, server.directory / f"{client}.log", keys, 300)
            for name, server in guarded.servers.items()
        }
        for driver in drivers.values():
            stack.callback(driver.close)

        def play(server: ServerProcess, mark: str) -> Trace:
            driver = drivers[server.name]
            if scenario == "credentials":
                directory = keys / server.name
                directory.mkdir(exist_ok=True)
                write_attempts(attempts(guarded, server, f"{client}{mark}"), directory)
                trace = driver.play("attempts", server, keys=directory)
                check(guarded, trace)
                return trace
            trace = driver.play(scenario, server, mark)
            seen = dict(trace)
            assert seen["all in order"]
            assert not seen["more"]
            assert not any(seen.get("disconnected", ()))
            return trace

        compare(client, guarded.name_of(scenario), guarded.servers, play)


@pytest.mark.client("java")
@pytest.mark.guarded
@PLAYED
@BOTH
def test_the_java_client_sees_the_same(
    guarded: Guarded, scenario: str, compare: Compare, tmp_path: Path
) -> None:
    play_program(guarded, scenario, "java", java_command, tmp_path, compare)


@pytest.mark.client("go")
@pytest.mark.guarded
@PLAYED
@BOTH
def test_the_go_client_sees_the_same(
    guarded: Guarded, scenario: str, compare: Compare, tmp_path: Path
) -> None:
    play_program(guarded, scenario, "go", go_command, tmp_path, compare)


# --- bare commands ----------------------------------------------------------------------

RENEWS = pb.FeatureFlags(supports_auth_refresh=True)
CONVERSATION_SECONDS = 3.0 * SHORT_SECONDS


async def _converse(
    port: int, seconds: float, answers: list[str], fields: dict[str, Any]
) -> list[Any]:
    """What a connection with this CONNECT is told, until it is closed or the time is over."""
    seen: list[Any] = []
    with trio.move_on_after(seconds):
        async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
            connection = Connection(stream)
            await connection.send(c.connect(**fields))
            while (answer := await connection.next(timeout=seconds)) is not None:
                seen.append(_form(answer[0]))
                if answer[0].type == T.AUTH_CHALLENGE and answers:
                    await connection.send(c.auth_response("token", answers.pop(0).encode()))
            seen.append("closed")
    return seen


def _form(command: pb.BaseCommand) -> list[Any]:
    name = pb.BaseCommand.Type.Name(command.type)
    if command.type == T.ERROR:
        error = command.error
        return [name, pb.ServerError.Name(error.error), error.message, error.request_id]
    if command.type == T.AUTH_CHALLENGE:
        challenge = command.authChallenge.challenge
        return [name, challenge.auth_method_name, challenge.auth_data.decode()]
    return [name]


@BOTH
def test_bare_connections_are_told_the_same(guarded: Guarded) -> None:
    issuer = guarded.issuer

    def conversations() -> dict[str, tuple[list[str], dict[str, Any]]]:
        def shows(text: str, **more: Any) -> dict[str, Any]:
            return {"auth_method_name": "token", "auth_data": text.encode(), **more}

        def short(**more: Any) -> dict[str, Any]:
            text = issuer.token(more.pop("role", "alice"), exp=int(time.time()) + SHORT_SECONDS)
            return shows(text, **more)

        methods = {
            "nothing": {},
            "none": {"auth_method_name": "none"},
            "sasl": {"auth_method_name": "sasl", "auth_data": b"x"},
            "by number": {"auth_method": pb.AuthMethodAthens, "auth_data": b"x"},
            "method alone": {"auth_method_name": "token"},
            "white space": shows(f" {issuer.token()}\n"),
            "of a proxy": shows(issuer.token("proxy"), original_principal="alice"),
            "of itself": shows(issuer.token(), original_principal="alice"),
        }
        for name, (method, text) in issuer.credentials().items():
            methods[name] = {"auth_method_name": method, "auth_data": text.encode()}
        renewals: dict[str, tuple[list[str], dict[str, Any]]] = {
            "cannot renew": ([], short()),
            "does not renew": ([], short(feature_flags=RENEWS)),
            "renews": ([issuer.token()], short(feature_flags=RENEWS)),
            "renews as another": ([issuer.token("bob")], short(feature_flags=RENEWS)),
            "renews with a foreign token": (
                [issuer.token(foreign=True)],
                short(feature_flags=RENEWS),
            ),
            "behind a proxy": (
                [issuer.token()],
                short(role="proxy", feature_flags=RENEWS, original_principal="alice"),
            ),
        }
        return {name: ([], fields) for name, fields in methods.items()} | renewals

    def play(server: ServerProcess, mark: str) -> Trace:
        del mark

        async def all_at_once() -> Trace:
            trace: dict[str, Any] = {}

            async def one(name: str, answers: list[str], fields: dict[str, Any]) -> None:
                trace[name] = await _converse(
                    server.broker_port, CONVERSATION_SECONDS, answers, fields
                )

            given = conversations()
            async with trio.open_nursery() as nursery:
                for name, (answers, fields) in given.items():
                    nursery.start_soon(one, name, answers, fields)
            return [[name, trace[name]] for name in given]

        return trio.run(all_at_once)

    same(guarded, "connections", play)


# --- HTTP -------------------------------------------------------------------------------

TOLD_BY_5 = (
    "Failed to authentication token: ",
    "Unknown user or invalid password",
    "Authentication token has to be started with ",
    "Unsupported authentication method: ",
)
PATHS = (
    "/admin/v2/tenants",
    "/admin/v2/persistent/public/default/never-made/stats",
    "/admin/v2/nothing/of/this/kind",
    "/lookup/v2/topic/persistent/public/default/never-made",
    "/admin/v2/brokers/health",
    "/%61dmin/v2/tenants",
    "/metrics",
)


@BOTH
def test_requests_are_answered_with_the_same_statuses(guarded: Guarded) -> None:
    def headers() -> dict[str, dict[str, str]]:
        shown: dict[str, dict[str, str]] = {"nothing": {}}
        for name, (method, text) in guarded.issuer.credentials().items():
            value = f"Bearer {text}"
            if method == "basic":
                value = "Basic " + base64.b64encode(text.encode()).decode()
            shown[name] = {"Authorization": value}
            shown[f"{name}, named"] = {**shown[name], "X-Pulsar-Auth-Method-Name": method}
        right = shown["right"]["Authorization"]
        shown["another method"] = {"Authorization": right, "X-Pulsar-Auth-Method-Name": "basic"}
        shown["no method"] = {"Authorization": right, "X-Pulsar-Auth-Method-Name": "sasl"}
        shown["Kerberos"] = {"Authorization": right, "SASL-Type": "kerberos"}
        shown["lower case"] = {"Authorization": right.replace("Bearer", "bearer")}
        shown["not base64"] = {"Authorization": f"Basic apr1:{PASSWORD}"}
        return shown

    def play(server: ServerProcess, mark: str) -> Trace:
        del mark
        usual, trace = server.http_headers, []
        try:
            for name, given in headers().items():
                for path in PATHS if name in ("nothing", "right", "foreign") else PATHS[:1]:
                    server.http_headers = {**given, "Accept": "application/json"}
                    status, body = server.http("GET", path)
                    text = body.get("message") if status == 401 else None
                    trace.append([name, path, status, _without_details(text)])
        finally:
            server.http_headers = usual
        return trace

    seen = same(guarded, "requests", play)
    if not guarded.anonymous:
        refused = {name for name, path, status, _ in seen if path == PATHS[0] and status == 401}
        assert "nothing" in refused
        assert {"foreign", "unsigned", "swapped", "expired"} <= refused


def _without_details(text: str | None) -> str | None:
    """5.0.1 shows what its libraries say, with the times of tokens, if the method is named."""
    return "the reason" if text is not None and text.startswith(TOLD_BY_5) else text


# --- metrics ----------------------------------------------------------------------------

COUNTED = "pulsar_authentication_failures_total"


def counted(server: ServerProcess) -> Counter[tuple[str, str, str]]:
    """Refusals by name and method of the provider, and reason."""
    _, page = server.http("GET", "/metrics/")
    found: Counter[tuple[str, str, str]] = Counter()
    for line in str(page).splitlines():
        if line.startswith(COUNTED):
            labels = dict(re.findall(r'(\w+)="([^"]*)"', line))
            key = labels["provider_name"], labels["auth_method"], labels["reason"]
            found[key] += int(float(line.rpartition(" ")[2]))
    return found


@BOTH
def test_metrics_count_refusals_the_same(guarded: Guarded) -> None:
    issuer = guarded.issuer
    shown = [
        ("token", issuer.token(foreign=True)),
        ("token", issuer.token(exp=1)),
        ("token", "abc"),
        ("basic", "apr1:wrong"),
        ("basic", f"nobody:{PASSWORD}"),
        ("basic", "no colon"),
        ("sasl", "x"),
    ]

    def play(server: ServerProcess, mark: str) -> Trace:
        del mark
        before = counted(server)
        for method, text in shown:
            fields = {"auth_method_name": method, "auth_data": text.encode()}
            trio.run(_converse, server.broker_port, 5.0, [], fields)
        after = counted(server)
        return sorted(
            [*key, after[key] - before[key]] for key in after if after[key] != before[key]
        )

    same(guarded, "counted", play)
