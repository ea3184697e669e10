"""Every guarded route under every trick with its path: refused, and nothing told."""

from __future__ import annotations

import re

import pytest

from broker.http.missing import pulsar_endpoints
from broker.http.router import Router
from broker.http.routes import all_routes
from broker.http.server import AdminApplication, open_paths
from broker.http.tests.conftest import CONFIG
from broker.tenancy.authorization.authorizer import Authorizer
from broker.tenancy.authorization.decision import Rules
from broker.tenancy.authorization.tenant_admins import TenantAdmins
from security.authentication.claims import ClaimRules
from security.authentication.counts import AuthenticationCounts
from security.authentication.service import Authentication
from security.authentication.signatures import key_of_secret
from security.authentication.tests.tokens import NOW, SECRET, token
from security.authentication.token import TokenProvider
from security.authentication.verification import Verifications
from web.callers import CallerRules

NAMES = {
    "domain": "persistent",
    "tenant": "public",
    "property": "public",
    "namespace": "default",
    "topic": "there",
    "cluster": "standalone",
    "clusterName": "standalone",
}
OPEN = {"/metrics", "/status.html"}


def _first_letter_encoded(path: str) -> str:
    return "/" + "/".join(
        f"%{ord(part[0]):02x}{part[1:]}" if part else part for part in path.strip("/").split("/")
    )


TRICKS = {
    "as it is": lambda path: path,
    "letters encoded": _first_letter_encoded,
    "letters encoded twice": lambda path: _first_letter_encoded(path).replace("%", "%25"),
    "slashes encoded": lambda path: "/" + path[1:].replace("/", "%2F"),
    "last slash encoded": lambda path: "%2f".join(path.rsplit("/", 1)),
    "last slash encoded twice": lambda path: "%252F".join(path.rsplit("/", 1)),
    "two slashes": lambda path: path.replace("/", "//"),
    "two slashes at first": lambda path: f"/{path}",
    "a slash at last": lambda path: f"{path}/",
    "dots": lambda path: f"/metrics/..{path}",
    "dots encoded": lambda path: f"/status.html/%2e%2e{path}",
    "dots encoded twice": lambda path: f"/status.html/%252e%252e{path}",
    "here": lambda path: path.replace("/", "/./"),
    "parameters": lambda path: path.replace("/", ";a=b/")[4:] + ";a=b",
    "a parameter of an open path": lambda path: f"/metrics;{path}",
    "an open path behind": lambda path: f"{path};/metrics",
    "zero": lambda path: f"{path}%00",
    "backslashes": lambda path: path.replace("/", "\\"),
    "upper case": lambda path: path.upper(),
    "overlong": lambda path: path.replace("/", "%c0%af"),
    "a query": lambda path: f"{path}?a=/metrics",
    "a fragment": lambda path: f"{path}%23/metrics",
    "a host": lambda path: f"http://vela{path}",
}


def paths_of(endpoint_path: str, topic: str = "there") -> str:
    """With names that exist, if names of this kind do."""
    return re.sub(
        r"\{(\w+)\}", lambda match: {**NAMES, "topic": topic}.get(match[1], "x"), endpoint_path
    )


@pytest.fixture
async def ask(broker):
    counts = AuthenticationCounts(lambda: NOW)
    provider = TokenProvider(key_of_secret(SECRET), ClaimRules(), lambda: NOW)
    application = AdminApplication(
        Router(all_routes()),
        CallerRules((), ["vela"]),
        Authentication([provider], "", Verifications(), counts),
        open_paths(CONFIG),
    )
    context = application.context = broker.admin
    rules = Rules(super_users=frozenset({"root"}))
    context.decisions = Authorizer(rules, context.namespaces, TenantAdmins(context.store))

    async def request(method, path, role=None):
        """Status and body. The path reaches the application as it is, untidied by any client."""
        raw, _, query = path.partition("?")
        headers = [(b"host", b"vela"), (b"content-type", b"application/json")]
        if role is not None:
            headers.append((b"authorization", f"Bearer {token(sub=role)}".encode()))
        sent = []

        async def receive():
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message):
            sent.append(message)

        scope = {
            "type": "http",
            "method": method,
            "path": raw,
            "raw_path": raw.encode("latin-1"),
            "query_string": query.encode(),
            "headers": headers,
            "server": ("127.0.0.1", 1),
            "client": ("127.0.0.1", 2),
            "scheme": "http",
        }
        await application(scope, receive, send)
        body = b"".join(each.get("body", b"") for each in sent[1:])
        return sent[0]["status"], body.decode()

    return request


def endpoints():
    found = {(each.method, each.path): each.asks for each in pulsar_endpoints()}
    assert len(found) > 400
    return found


@pytest.mark.parametrize("trick", TRICKS)
async def test_who_is_nobody_gets_the_same_401_under_every_trick(ask, trick):
    for method, path in endpoints():
        tricky = TRICKS[trick](paths_of(path))
        status, body = await ask(method, tricky)
        assert status == 401, (method, tricky)
        shown = body.replace(tricky.partition("?")[0].replace("\\", "\\\\"), "")
        assert '"Authentication required"' in shown, (method, tricky)


@pytest.mark.parametrize("trick", TRICKS)
async def test_a_stranger_learns_nothing_of_what_exists_under_any_trick(ask, trick):
    """The answers about a topic that exists are those about one that does not."""
    created, _ = await ask("PUT", "/admin/v2/persistent/public/default/there", "root")
    assert created == 204
    for (method, path), asks in endpoints().items():
        if "{topic}" not in path or asks == "none":
            continue
        answers = [
            (status, "" if "There is nothing at" in body else body.replace(topic, "?"))
            for topic in ("there", "where")
            for status, body in [
                await ask(method, TRICKS[trick](paths_of(path, topic)), "stranger")
            ]
        ]
        assert answers[0][0] >= 400, (method, path, answers)
        assert answers[0] == answers[1], (method, path)
