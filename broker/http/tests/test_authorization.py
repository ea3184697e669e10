"""Routes under authorization: what each asks, and who is refused."""

from __future__ import annotations

import dataclasses

import httpx
import pytest

from broker.http.missing import pulsar_endpoints, unlisted, with_questions
from broker.http.router import Route, Router
from broker.http.routes import all_routes
from broker.http.server import AdminApplication, open_paths
from broker.http.tests.conftest import CONFIG
from broker.tenancy.authorization.authorizer import Authorizer
from broker.tenancy.authorization.decision import Rules
from broker.tenancy.authorization.operations import UNKNOWN, Level, Right, operations
from broker.tenancy.authorization.tenant_admins import TenantAdmins
from protocol.topic_name import TopicName
from security.authentication.claims import ClaimRules
from security.authentication.counts import AuthenticationCounts
from security.authentication.service import Authentication
from security.authentication.signatures import key_of_secret
from security.authentication.tests.tokens import NOW, SECRET, token
from security.authentication.token import TokenProvider
from security.authentication.verification import Verifications
from web.callers import CallerRules

CONFIGURED = dataclasses.replace(CONFIG, superUserRoles=("root",), proxyRoles=("proxy",))
RULES = Rules(super_users=frozenset({"root"}), proxies=frozenset({"proxy"}))
TOPIC = "/admin/v2/persistent/public/default/t"


@pytest.fixture
async def ask(broker):
    provider = TokenProvider(key_of_secret(SECRET), ClaimRules(), lambda: NOW)
    application = AdminApplication(
        Router(all_routes()),
        CallerRules((), ["vela"]),
        Authentication([provider], "", Verifications(), AuthenticationCounts(lambda: NOW)),
        open_paths(CONFIG),
    )
    context = application.context = broker.admin
    namespaces = context.namespaces
    context.file_config = CONFIGURED
    context.decisions = Authorizer(RULES, namespaces, TenantAdmins(context.store))
    transport = httpx.ASGITransport(application, raise_app_exceptions=True)
    async with httpx.AsyncClient(transport=transport, base_url="http://vela") as client:

        async def request(role, method, path, body=..., original=None):
            headers = {"Authorization": f"Bearer {token(sub=role)}"}
            if original is not None:
                headers["X-Original-Principal"] = original
            arguments = {} if body is ... else {"json": body}
            answer = await client.request(method, path, headers=headers, **arguments)
            reason = answer.json()["reason"] if answer.status_code >= 400 else ""
            return answer.status_code, reason

        yield request


async def nothing(_request):
    return None


UNLISTED = Route("GET", "/admin/v2/of/which/nobody/has/said/it", nothing)


def test_a_route_without_its_line_is_named():
    assert unlisted([UNLISTED]) == ["GET /admin/v2/of/which/nobody/has/said/it"]
    assert unlisted(all_routes()) == []


def test_a_route_without_its_line_is_for_super_users_and_affects_no_other():
    listed = Route("GET", "/admin/v2/clusters", nothing)
    assert [each.asks for each in with_questions([UNLISTED, listed])] == [
        UNKNOWN,
        operations("none"),
    ]


def test_every_route_says_what_it_asks():
    for endpoint in pulsar_endpoints():
        operations(endpoint.asks)
    free = {route.path for route in all_routes() if route.asks[0].right is Right.NONE}
    assert {path for path in free if "{" not in path and "v3" not in path} >= {
        "/metrics",
        "/status.html",
        "/admin/v2/brokers/ready",
        "/admin/v2/brokers/version",
        "/admin/v2/clusters",
    }
    assert not {path for path in free if "{topic}" in path and "transactions" not in path}


def test_operations_of_topics_are_asked_where_a_topic_is_named():
    for route in all_routes():
        if any(each.level in (Level.TOPIC, Level.TOPIC_POLICY) for each in route.asks):
            assert "{topic}" in route.path, route


async def test_statuses_and_texts_are_those_of_pulsar(ask):
    assert await ask("a", "GET", "/admin/v2/namespaces/public/default/topics") == (
        403,
        "Unauthorized to validateNamespaceOperation for operation [GET_TOPICS] on namespace "
        "[public/default]",
    )
    assert await ask("a", "GET", f"{TOPIC}/stats") == (
        401,
        "Unauthorized to validateTopicOperation for operation [GET_STATS] on topic "
        "[persistent://public/default/t]",
    )
    assert await ask("a", "GET", "/admin/v2/namespaces/public/default/retention") == (
        403,
        "Unauthorized to validateNamespacePolicyOperation for operation [READ] on namespace "
        "[public/default] on policy [RETENTION]",
    )
    assert await ask("a", "PUT", "/admin/v2/namespaces/public/default/unload") == (
        401,
        "This operation requires super-user access",
    )
    assert await ask("a", "GET", f"{TOPIC}/permissions") == (
        401,
        "Don't have permission to administrate resources on this tenant",
    )
    assert await ask("a", "GET", "/admin/v2/namespaces/none") == (404, "Tenant does not exist")
    assert await ask("a", "GET", "/admin/v2/tenants/public") == (
        401,
        "Unauthorized to validateBothTenantOperationAndSuperUser for originalPrincipal [null] and "
        "clientAppId [a] about operation [GET_TENANT] ",
    )


async def test_a_path_with_tricks_is_asked_as_what_it_names(ask):
    await ask("root", "PUT", TOPIC)
    await ask("root", "POST", f"{TOPIC}/permissions/a", ["consume"])
    assert (await ask("a", "GET", f"{TOPIC}/subscriptions"))[0] == 200
    for path in ("public/default/t%2F..%2Fu", "public/default/u", "public%2Fdefault/x/t"):
        status, _ = await ask("a", "GET", f"/admin/v2/persistent/{path}/subscriptions")
        assert status in (401, 404, 412), path


async def test_a_grant_by_rest_is_in_force_at_once(ask):
    assert (await ask("root", "PUT", TOPIC))[0] == 204
    assert (await ask("a", "GET", f"{TOPIC}/stats"))[0] == 401
    assert (await ask("root", "POST", f"{TOPIC}/permissions/a", ["produce"]))[0] == 204
    assert (await ask("a", "GET", f"{TOPIC}/stats"))[0] == 200
    assert (await ask("a", "GET", f"{TOPIC}/subscriptions"))[0] == 401
    assert (await ask("root", "DELETE", f"{TOPIC}/permissions/a"))[0] == 204
    assert (await ask("a", "GET", f"{TOPIC}/stats"))[0] == 401


async def test_a_named_subscription_counts_over_http(ask):
    await ask("root", "PUT", TOPIC)
    await ask("root", "PUT", f"{TOPIC}/subscription/s")
    await ask("root", "POST", f"{TOPIC}/permissions/a", ["consume"])
    of_namespace = "/admin/v2/namespaces/public/default/permissions/subscription/s"
    await ask("root", "POST", of_namespace, ["b"])
    assert (await ask("a", "POST", f"{TOPIC}/subscription/s/skip_all"))[0] == 401
    await ask("root", "POST", of_namespace, ["a"])
    assert (await ask("a", "POST", f"{TOPIC}/subscription/s/skip_all"))[0] == 204


async def test_an_administrator_has_its_own_tenant_alone(ask):
    info = {"adminRoles": ["boss"], "allowedClusters": ["standalone"]}
    assert (await ask("root", "PUT", "/admin/v2/tenants/mine", info))[0] == 204
    assert (await ask("boss", "PUT", "/admin/v2/namespaces/mine/ns"))[0] == 204
    assert (await ask("boss", "PUT", "/admin/v2/persistent/mine/ns/t"))[0] == 204
    assert (await ask("boss", "PUT", "/admin/v2/namespaces/public/ns"))[0] == 401
    assert (await ask("boss", "PUT", "/admin/v2/namespaces/mine/ns/unload"))[0] == 401
    grants = "/admin/v2/namespaces/grantPermissionsOnTopics"
    of_other = [{"topic": "persistent://public/default/t", "role": "x", "actions": ["produce"]}]
    assert (await ask("boss", "POST", grants, of_other))[0] == 401


async def test_a_proxy_over_http_must_name_somebody_who_may(ask):
    await ask("root", "PUT", TOPIC)
    for role in ("proxy", "a"):
        await ask("root", "POST", f"{TOPIC}/permissions/{role}", ["produce"])
    path = f"{TOPIC}/stats"
    assert (await ask("proxy", "GET", path, original="a"))[0] == 200
    assert (await ask("proxy", "GET", path, original="b"))[0] == 401
    assert (await ask("proxy", "GET", path))[0] == 401
    assert (await ask("a", "GET", path, original="root"))[0] == 401
    assert await ask(
        "proxy", "PUT", "/admin/v2/namespaces/public/default/unload", original="a"
    ) == (
        401,
        "Proxy not authorized for super-user operation (proxy:proxy)",
    )


async def test_super_users_can_be_changed_while_the_broker_runs(ask):
    configuration = "/admin/v2/brokers/configuration"
    unload = "/admin/v2/namespaces/public/default/unload"
    assert (await ask("a", "PUT", unload))[0] == 401
    assert (await ask("root", "POST", f"{configuration}/superUserRoles/root,a"))[0] == 200
    assert (await ask("a", "PUT", unload))[0] == 204
    assert (await ask("a", "DELETE", f"{configuration}/superUserRoles"))[0] == 200
    assert (await ask("a", "PUT", unload))[0] == 401
    assert (await ask("root", "PUT", unload))[0] == 204


async def test_a_shadow_needs_the_right_to_consume_from_its_source(ask, broker):
    made = []

    class Shadows:
        refusal = ""

        async def check(self, topic, properties):
            await broker.admin.decisions.check_shadow(
                topic, TopicName.parse(properties["PULSAR.SHADOW_SOURCE"])
            )

        async def create(self, topic, properties):
            made.append((topic.full, properties))

    broker.admin.shadows = Shadows()
    info = {"adminRoles": ["boss"], "allowedClusters": ["standalone"]}
    await ask("root", "PUT", "/admin/v2/tenants/mine", info)
    await ask("root", "PUT", "/admin/v2/namespaces/mine/ns")
    await ask("root", "PUT", TOPIC)
    properties = {"PULSAR.SHADOW_SOURCE": "persistent://public/default/t"}
    shadow = "/admin/v2/persistent/mine/ns/shadow"
    assert (await ask("boss", "PUT", shadow, properties))[0] == 401
    await ask("root", "POST", f"{TOPIC}/permissions/boss", ["produce"])
    assert (await ask("boss", "PUT", shadow, properties))[0] == 401
    await ask("root", "POST", f"{TOPIC}/permissions/boss", ["consume"])
    assert (await ask("boss", "PUT", shadow, properties))[0] == 204
    assert made == [("persistent://mine/ns/shadow", properties)]
    assert (await ask("root", "PUT", f"{shadow}-2", properties))[0] == 204
    await ask("root", "DELETE", f"{TOPIC}/permissions/boss")
    # Whoever may consume from a shadow is admitted by its administrators.
    status, reason = await ask("root", "PUT", f"{shadow}-3", properties)
    assert (status, "no role that administers the tenant mine" in reason) == (401, True)
    assert len(made) == 2
