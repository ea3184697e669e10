"""Every endpoint of Pulsar's admin API, asked on things that are there and on things that are not.

One probe is one request; what is compared is its status, and Pulsar's reason where it gives one.
Requests that change something get a namespace of their own, so that no probe sees what another one
did. Endpoints that would end or disable the server under test are left out.
"""

from __future__ import annotations

import http.client
import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from broker.http.missing import Endpoint, pulsar_endpoints

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pulsar

    from compat_tests.clients.admin_requests import AdminRequests

LEFT_OUT: Final = {
    "shutDownBrokerGracefully": "ends the server",
    "updateBookieRackInfo": "moves the only bookie",
    "deleteBookieRackInfo": "moves the only bookie",
    "getBacklog": "Pulsar does not answer for a topic that is open, and then opens no other one",
    "setProperties": "without a body Pulsar does not answer",
    "removeProperties": "without a key Pulsar does not answer",
}
VALUES: Final = {
    "cluster": "absent-cluster",
    "bundle": "0x00000000_0x40000000",
    "timestamp": "10",
    "expireTimeInSeconds": "10",
    "numMessages": "1",
    "messagePosition": "1",
    "ledgerId": "1",
    "entryId": "0",
    "version": "0",
    "domain": "persistent",
    "allocator": "default",
}
SUBSCRIPTIONS: Final = ("subName", "subscription", "encodedSubName")
TENANTS: Final = ("tenant", "property")
_NAME: Final = re.compile(r"\{([^}]+)\}")


@dataclass(frozen=True)
class Place:
    """Names for the path of a probe; they exist unless they begin with `absent`."""

    variant: str
    tenant: str
    namespace: str
    topic: str
    subscription: str
    domain: str = "persistent"

    def path(self, endpoint: Endpoint) -> str:
        """The path of a request to the endpoint."""

        def value(match: re.Match[str]) -> str:
            name = match.group(1)
            if name in TENANTS:
                return self.tenant
            if name in SUBSCRIPTIONS:
                return self.subscription
            own = {"namespace": self.namespace, "topic": self.topic, "domain": self.domain}
            return own.get(name) or VALUES.get(name, f"x-{name}")

        return _NAME.sub(value, endpoint.path)


@dataclass(frozen=True)
class Answer:
    """What one server said."""

    status: int
    reason: str = ""


def names_of(endpoint: Endpoint) -> set[str]:
    """The names in an endpoint's path."""
    return set(_NAME.findall(endpoint.path))


def endpoints() -> list[Endpoint]:
    """Those that are asked."""
    return [each for each in pulsar_endpoints() if each.name not in LEFT_OUT]


def places(endpoint: Endpoint, tenant: str) -> Iterator[Place]:
    """The variants of a probe; those of absent things first, for they change nothing."""
    names = names_of(endpoint)
    if names & set(TENANTS):
        yield Place("no tenant", "absent-tenant", "absent", "absent", "absent")
    if "namespace" in names:
        yield Place("no namespace", tenant, "absent", "absent", "absent")
    if "topic" in names:
        yield Place("no topic", tenant, "ns", "absent", "absent")
    if names & set(SUBSCRIPTIONS):
        yield Place("no subscription", tenant, "ns", "plain", "absent")
    if "topic" in names:
        yield Place("partitioned", tenant, "ns", "parts", "reads")
    if "domain" in names and "topic" in names:
        yield Place("non-persistent", tenant, "ns", "memory", "reads", "non-persistent")
    yield Place("there", tenant, "ns", "plain", "reads")


def set_up(ask: AdminRequests, client: pulsar.Client, tenant: str, names: set[str]) -> None:
    """What a probe with these names finds. A non-persistent topic lives as long as its clients."""
    wanted: list[tuple[str, str, object]] = []
    if names & set(TENANTS):
        allowed = {"adminRoles": [], "allowedClusters": ["standalone"]}
        wanted.append(("PUT", f"/admin/v2/tenants/{tenant}", allowed))
    if "namespace" in names:
        wanted.append(("PUT", f"/admin/v2/namespaces/{tenant}/ns", None))
    if "topic" in names:
        base = f"/admin/v2/persistent/{tenant}/ns"
        wanted.append(("PUT", f"{base}/plain", None))
        wanted.append(("PUT", f"{base}/plain/subscription/reads", None))
        wanted.append(("PUT", f"{base}/parts/partitions", 2))
        wanted.append(("PUT", f"{base}/parts/subscription/reads", None))
    for method, path, body in wanted:
        status, text = ask.raw(method, path, body)
        assert status < 300, (method, path, status, text)
    if "topic" in names:
        client.subscribe(f"non-persistent://{tenant}/ns/memory", "reads")


def answer_of(ask: AdminRequests, method: str, path: str) -> Answer:
    """Status and reason; 0 when there was no answer in time."""
    try:
        status, text = ask.raw(method, path)
    except (OSError, http.client.HTTPException):
        return Answer(0, "no answer")
    if status < 400:
        return Answer(status)
    try:
        decoded = json.loads(text)
    except ValueError:
        return Answer(status)
    reason = decoded.get("reason") if isinstance(decoded, dict) else None
    return Answer(status, reason if isinstance(reason, str) else "")


def ask_all(
    ask: AdminRequests, client: pulsar.Client, mark: str
) -> dict[tuple[Endpoint, str], Answer]:
    """The answers of one server to all probes."""
    answers: dict[tuple[Endpoint, str], Answer] = {}
    shared = f"{mark}-reads"
    set_up(ask, client, shared, {"tenant", "namespace", "topic"})
    for number, endpoint in enumerate(endpoints()):
        tenant = shared
        if endpoint.method not in ("GET", "HEAD"):
            tenant = f"{mark}-{number}"
            set_up(ask, client, tenant, names_of(endpoint))
        for place in places(endpoint, tenant):
            answer = answer_of(ask, endpoint.method, place.path(endpoint))
            told = answer.reason.replace(tenant, "TENANT")
            answers[endpoint, place.variant] = Answer(answer.status, told)
    return answers
