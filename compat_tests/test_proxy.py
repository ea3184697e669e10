"""A real Pulsar proxy in front of both servers: its clients may do the same."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import TYPE_CHECKING, NamedTuple

import pytest

from compat_tests.authorized_servers import (
    ADMIN,
    PROXY,
    ROOT,
    SUPER,
    configuration,
    start_authorized,
    token,
)
from compat_tests.credential_attempts import (
    ALL,
    BOTH,
    CONSUME,
    LET_IN_SECONDS,
    NOT_CONNECT,
    NOTHING,
    REFUSED_SECONDS,
    Attempt,
    check,
    play_python,
)
from compat_tests.oracle.comparison import play_on_all
from compat_tests.oracle.pulsar_proxy import PulsarProxy
from compat_tests.oracle_differences import what_differs
from compat_tests.servers import wanted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from compat_tests.oracle.comparison import Trace
    from compat_tests.oracle.server_process import ServerProcess
    from compat_tests.servers import Servers

pytestmark = pytest.mark.slow

TENANT = "proxied"


class Proxied(NamedTuple):
    """Both servers, and the proxy of each."""

    servers: Servers
    proxies: dict[str, PulsarProxy]


@pytest.fixture(scope="module", params=[False, True], ids=["named", "verified-again"])
def proxied(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    pytestconfig: pytest.Config,
) -> Iterator[Proxied]:
    """The proxy names the role of its client, or forwards the client's credential, too."""
    forwards = str(request.param).lower()
    directory = tmp_path_factory.mktemp("proxied")
    of_broker = {"authenticateOriginalAuthData": forwards}
    servers = start_authorized(directory, wanted(pytestconfig), of_broker)
    own = configuration()
    keys = {
        "authenticationEnabled": "true",
        "authenticationProviders": own["authenticationProviders"],
        "tokenSecretKey": own["tokenSecretKey"],
        "forwardAuthorizationCredentials": forwards,
        "brokerClientAuthenticationPlugin": (
            "org.apache.pulsar.client.impl.auth.AuthenticationToken"
        ),
        "brokerClientAuthenticationParameters": f"token:{token(PROXY)}",
    }
    with ExitStack() as stack:
        proxies = {
            name: PulsarProxy(directory / f"proxy-{name}", server, keys)
            for name, server in servers.items()
        }
        for each in (*servers.values(), *proxies.values()):
            stack.callback(each.kill)
        for server in servers.values():
            make_namespaces(server)
        for proxy in proxies.values():
            proxy.http_headers = ROOT.http_headers
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda proxy: proxy.start(), proxies.values()))
        yield Proxied(servers, proxies)


def make_namespaces(server: ServerProcess) -> None:
    """One in which the proxy may what its clients may, and one in which only a client may."""
    steps: list[tuple[str, str, object]] = [
        (
            "PUT",
            f"tenants/{TENANT}",
            {"adminRoles": [ADMIN], "allowedClusters": ["standalone"]},
        ),
        *(("PUT", f"namespaces/{TENANT}/{each}", None) for each in ("open", "closed")),
        *(
            ("POST", f"namespaces/{TENANT}/{name}/permissions/{role}", actions)
            for name, role, actions in (
                ("open", PROXY, BOTH),
                ("open", "alice", BOTH),
                ("open", "reader", ["consume"]),
                ("closed", "alice", BOTH),
            )
        ),
    ]
    for method, path, body in steps:
        status, answer = server.http(method, f"/admin/v2/{path}", body)
        assert status < 300, (path, status, answer)


def attempts(proxy: PulsarProxy, mark: str) -> list[Attempt]:
    """What the clients of the proxy try."""
    tried = (
        ("both are granted", ALL, "alice", "open"),
        ("one action", CONSUME, "reader", "open"),
        ("the client is not granted", NOTHING, "nobody", "open"),
        ("the proxy is not granted", NOTHING, "alice", "closed"),
        ("an administrator", ALL, ADMIN, "open"),
        ("a super user", ALL, SUPER, "open"),
    )
    right = [
        Attempt(
            label=label,
            may=may,
            credential=token(role),
            url=proxy.service_url,
            trusted="",
            topic=f"persistent://{TENANT}/{namespace}/t{number}{mark}",
            seconds=LET_IN_SECONDS,
        )
        for number, (label, may, role, namespace) in enumerate(tried)
    ]
    wrong = Attempt(
        label="a wrong token",
        may=NOT_CONNECT,
        credential=token("alice")[:-2],
        url=proxy.service_url,
        trusted="",
        topic=f"persistent://{TENANT}/open/wrong{mark}",
        seconds=REFUSED_SECONDS,
    )
    return [*right, wrong]


def test_clients_of_a_proxy_may_do_the_same(proxied: Proxied) -> None:
    def play(server: ServerProcess, mark: str) -> Trace:
        proxy = proxied.proxies[server.name]
        tried = attempts(proxy, mark)
        trace = play_python(tried, server.directory / "python-client.log")
        check(tried, trace)
        return trace

    told = what_differs("proxy", "clients", play_on_all(proxied.servers, play))
    assert not told, "\n".join(told)


REQUESTS = (
    ("GET", f"/admin/v2/namespaces/{TENANT}/open/topics"),
    ("GET", f"/admin/v2/namespaces/{TENANT}/closed/topics"),
    ("GET", f"/admin/v2/namespaces/{TENANT}/open/permissions"),
    ("GET", "/admin/v2/tenants"),
    ("GET", f"/lookup/v2/topic/persistent/{TENANT}/open/t0"),
)


def test_requests_through_a_proxy_are_answered_the_same(proxied: Proxied) -> None:
    def play(server: ServerProcess, mark: str) -> Trace:
        del mark
        proxy = proxied.proxies[server.name]
        trace: Trace = []
        for role in ("alice", "reader", "nobody", ADMIN, SUPER):
            proxy.http_headers = {"Authorization": f"Bearer {token(role)}"}
            for method, path in REQUESTS:
                trace.append([role, path, proxy.http(method, path)[0]])
        return trace

    told = what_differs("proxy", "requests", play_on_all(proxied.servers, play))
    assert not told, "\n".join(told)
