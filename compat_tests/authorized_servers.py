"""Both servers with authentication by token and authorization, and callers of several rights.

Seven callers separate the rules: a super user; a proxy that may produce and consume in one
namespace, for the administrator of its tenant; that administrator itself; a role that may produce
and one that may consume in the namespace; one that may consume from two of its topics; and one that
may do nothing. Tokens are HS256.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from compat_tests.oracle.vela_server import VelaServer
from compat_tests.servers import oracle, start_all
from runtime.testing.ports import free_ports

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from compat_tests.oracle.server_process import ServerProcess
    from compat_tests.servers import Servers, Wanted

SECRET: Final = b"a secret of the compatibility tests, not of anyone"
SUPER: Final = "super"
PROXY: Final = "proxy"
ADMIN: Final = "admin"
PRODUCER: Final = "producer"
CONSUMER: Final = "consumer"
READER: Final = "reader"
STRANGER: Final = "stranger"


def _part(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode()


def token(role: str) -> str:
    """A token whose subject is this role. It does not expire."""
    head = _part(json.dumps({"alg": "HS256", "typ": "JWT"}).encode())
    body = _part(json.dumps({"sub": role}).encode())
    signature = hmac.digest(SECRET, f"{head}.{body}".encode(), hashlib.sha256)
    return f"{head}.{body}.{_part(signature)}"


@dataclass(frozen=True)
class ProbeCaller:
    """One row of the table."""

    name: str
    role: str
    original_role: str | None = None

    @property
    def http_headers(self) -> dict[str, str]:
        """Credentials of an HTTP request."""
        headers = {"Authorization": f"Bearer {token(self.role)}"}
        if self.original_role is not None:
            headers["X-Original-Principal"] = self.original_role
        return headers

    @property
    def connect_fields(self) -> dict[str, Any]:
        """Credentials of CONNECT."""
        fields: dict[str, Any] = {
            "auth_method_name": "token",
            "auth_data": token(self.role).encode(),
        }
        if self.original_role is not None:
            fields["original_principal"] = self.original_role
        return fields


CALLERS: Final = (
    ProbeCaller("nothing", STRANGER),
    ProbeCaller("consume on the topic", READER),
    ProbeCaller("consume", CONSUMER),
    ProbeCaller("produce", PRODUCER),
    ProbeCaller("proxy for the administrator", PROXY, ADMIN),
    ProbeCaller("administrator", ADMIN),
    ProbeCaller("super user", SUPER),
)
"""The weaker ones first: whoever is refused changes nothing for the next one."""
ROOT: Final = CALLERS[-1]


def configuration() -> dict[str, str]:
    """For both servers. The credentials of the broker's own client are needed by Pulsar."""
    secret = base64.b64encode(SECRET).decode()
    return {
        "authenticationEnabled": "true",
        "authenticationProviders": (
            "org.apache.pulsar.broker.authentication.AuthenticationProviderToken"
        ),
        "tokenSecretKey": f"data:;base64,{secret}",
        "authorizationEnabled": "true",
        "superUserRoles": SUPER,
        "proxyRoles": PROXY,
    }


OWN_CLIENT: Final = {
    "brokerClientAuthenticationPlugin": ("org.apache.pulsar.client.impl.auth.AuthenticationToken"),
    "brokerClientAuthenticationParameters": f"token:{token(SUPER)}",
    "authenticateOriginalAuthData": "false",
}
"""Of real Pulsar, which reads its system topics as a client of itself. The proxy among the callers
names a role and forwards no credential of it; by its defaults 5.0.1 refuses that at CONNECT."""


def start_authorized(
    directory: Path,
    wanted: Wanted,
    more: dict[str, str] | None = None,
    *,
    tls: bool = False,
    of_release: Mapping[str, dict[str, str]] | None = None,
) -> Servers:
    """All servers, ready. With `tls` each has a port for clients with TLS. `of_release`: more keys
    for real Pulsar of that version."""

    def keys_with(defaults: dict[str, str], own: dict[str, str]) -> dict[str, str]:
        port = {"brokerServicePortTls": str(free_ports(1)[0])} if tls else {}
        return configuration() | defaults | (more or {}) | own | port

    servers: dict[str, ServerProcess] = {}
    if wanted.vela:
        servers["vela"] = VelaServer(directory / "vela", keys_with({}, {}))
    for release in wanted.releases:
        own = (of_release or {}).get(release.version, {})
        servers[release.name] = oracle(directory, release, keys_with(OWN_CLIENT, own))
    for server in servers.values():
        server.http_headers = ROOT.http_headers
    start_all(servers)
    return servers


def make_tenant(server: ServerProcess, tenant: str) -> None:
    """A tenant with a namespace `ns`, its topics, and the grants of the callers."""
    base = f"/admin/v2/persistent/{tenant}/ns"
    grants = {
        f"/admin/v2/namespaces/{tenant}/ns/permissions/{PROXY}": ["produce", "consume"],
        f"/admin/v2/namespaces/{tenant}/ns/permissions/{PRODUCER}": ["produce"],
        f"/admin/v2/namespaces/{tenant}/ns/permissions/{CONSUMER}": ["consume"],
        f"{base}/plain/permissions/{READER}": ["consume"],
        f"{base}/parts/permissions/{READER}": ["consume"],
    }
    steps: list[tuple[str, str, Any]] = [
        (
            "PUT",
            f"/admin/v2/tenants/{tenant}",
            {"adminRoles": [ADMIN], "allowedClusters": ["standalone"]},
        ),
        ("PUT", f"/admin/v2/namespaces/{tenant}/ns", None),
        ("PUT", f"{base}/plain", None),
        ("PUT", f"{base}/plain/subscription/reads", None),
        ("PUT", f"{base}/parts/partitions", 2),
        ("PUT", f"{base}/parts/subscription/reads", None),
        *(("POST", path, actions) for path, actions in grants.items()),
    ]
    for method, path, body in steps:
        status, answer = server.http(method, path, body)
        assert status < 300, (method, path, status, answer)
