"""HTTP requests with and without credentials."""

from __future__ import annotations

import base64
import dataclasses

import httpx
import pytest

from broker.http.router import Route, Router
from broker.http.routes import all_routes
from broker.http.server import AdminApplication, open_paths
from broker.http.tests.conftest import CONFIG
from security.authentication.claims import ClaimRules
from security.authentication.counts import AuthenticationCounts
from security.authentication.service import Authentication
from security.authentication.signatures import key_of_secret
from security.authentication.tests.tokens import NOW, SECRET, token, unsigned
from security.authentication.token import TokenProvider
from security.authentication.verification import Verifications
from web.callers import CallerRules


async def who(request):
    caller = request.caller
    return {"role": caller.role, "original": caller.original_role}


@pytest.fixture
async def guarded(broker):
    def client(anonymous: str = "", config=CONFIG):
        provider = TokenProvider(key_of_secret(SECRET), ClaimRules(), lambda: NOW)
        application = AdminApplication(
            Router([*all_routes(), Route("GET", "/admin/v2/who", who)]),
            CallerRules((), ["vela"]),
            Authentication(
                [provider], anonymous, Verifications(), AuthenticationCounts(lambda: NOW)
            ),
            open_paths(config),
        )
        application.context = broker.admin
        transport = httpx.ASGITransport(application, raise_app_exceptions=True)
        return httpx.AsyncClient(transport=transport, base_url="http://vela")

    return client


def bearer(text: str, **headers: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {text}", **headers}


async def test_a_token_gives_the_caller(guarded):
    async with guarded() as client:
        answer = await client.get("/admin/v2/who", headers=bearer(token()))
        assert answer.json() == {"role": "alice", "original": None}
        headers = bearer(token(sub="proxy"), **{"X-Original-Principal": "alice"})
        answer = await client.get("/admin/v2/who", headers=headers)
        assert answer.json() == {"role": "proxy", "original": "alice"}


REFUSED = [
    {},
    bearer(""),
    bearer(token(bytes(32))),
    bearer(token(exp=NOW - 1)),
    bearer(unsigned()),
    bearer(token(), **{"X-Pulsar-Auth-Method-Name": "basic"}),
    {"Authorization": "Basic " + base64.b64encode(b"alice:pw").decode()},
]


@pytest.mark.parametrize("headers", REFUSED)
async def test_everybody_else_gets_401(guarded, headers):
    async with guarded() as client:
        answer = await client.get("/admin/v2/tenants", headers=headers)
        assert answer.status_code == 401
        assert answer.json() == {
            "reason": "Authentication required",
            "message": "Authentication required",
            "url": "/admin/v2/tenants",
            "status": "401",
        }
        assert answer.headers["cache-control"] == "must-revalidate,no-cache,no-store"


PATHS = [
    ("GET", "/admin/v2/persistent/public/default"),
    ("GET", "/admin/v2/persistent/public/default/t/stats"),
    ("GET", "/admin/v2/nothing/of/this/kind"),
    ("GET", "/lookup/v2/topic/persistent/public/default/t"),
    ("PATCH", "/admin/v2/tenants/public"),
    ("GET", "//admin/v2/tenants"),
    ("GET", "/admin/v2/tenants/"),
    ("GET", "/admin/v2/brokers/health"),
    ("GET", "/%61dmin/v2/tenants"),
    ("GET", "/admin/v2/tenants/%00"),
    ("HEAD", "/admin/v2/tenants"),
    ("OPTIONS", "/admin/v2/tenants"),
    ("GET", "/elsewhere"),
]


@pytest.mark.parametrize(("method", "path"), PATHS)
async def test_who_is_nobody_learns_nothing_about_a_path(guarded, method, path):
    async with guarded() as client:
        answer = await client.request(method, path)
        assert answer.status_code == 401


async def test_every_route_but_two_is_guarded(guarded):
    async with guarded() as client:
        for route in all_routes():
            path = route.path.replace("{domain}", "persistent").replace("{", "").replace("}", "")
            answer = await client.request(route.method, path)
            assert (answer.status_code == 401) != (path in ("/status.html", "/metrics")), path


async def test_metrics_are_guarded_when_that_is_wanted(guarded):
    config = dataclasses.replace(CONFIG, authenticateMetricsEndpoint=True)
    async with guarded(config=config) as client:
        assert (await client.get("/metrics")).status_code == 401
        assert (await client.get("/metrics", headers=bearer(token()))).status_code == 200
        assert (await client.get("/status.html")).status_code == 200


async def test_who_shows_nothing_valid_is_the_anonymous_role_except_with_a_named_method(guarded):
    async with guarded(anonymous="anybody") as client:
        for headers in ({}, bearer(token(bytes(32)))):
            answer = await client.get("/admin/v2/who", headers=headers)
            assert answer.json()["role"] == "anybody"
        named = bearer(token(bytes(32)), **{"X-Pulsar-Auth-Method-Name": "token"})
        assert (await client.get("/admin/v2/who", headers=named)).status_code == 401
        unknown = {"X-Pulsar-Auth-Method-Name": "sasl"}
        assert (await client.get("/admin/v2/who", headers=unknown)).status_code == 401


async def test_the_configuration_shows_no_secret(guarded):
    async with guarded() as client:
        answer = await client.get(
            "/admin/v2/brokers/configuration/runtime", headers=bearer(token())
        )
        shown = answer.json()
        assert "tokenAuthClaim" in shown
        assert not {"tokenSecretKey", "basicAuthConf", "managedLedgerPassword"} & shown.keys()
