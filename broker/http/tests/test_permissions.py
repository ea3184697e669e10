"""Grants by REST. Statuses and texts as observed on Pulsar 4.0.8."""

from __future__ import annotations

import pytest

NAMESPACE = "namespaces/public/default"
TOPIC = "persistent/public/default/t"
FULL = "persistent://public/default/t"


@pytest.fixture
async def topics(http):
    await http("PUT", TOPIC)
    await http("PUT", "persistent/public/default/parts/partitions", 2)
    return http


async def auth(http):
    _, policies = await http("GET", NAMESPACE)
    return policies["auth_policies"]


async def test_grants_on_a_namespace_replace_what_was_granted(http):
    path = f"{NAMESPACE}/permissions"
    assert await http("GET", path) == (200, {})
    assert await http("POST", f"{path}/a", ["produce", "consume"]) == (204, None)
    assert await http("POST", f"{path}/a", ["functions", "consume", "consume"]) == (204, None)
    assert await http("POST", f"{path}/b", []) == (204, None)
    assert await http("GET", path) == (200, {"a": ["consume", "functions"], "b": []})
    assert await http("DELETE", f"{path}/a") == (204, None)
    assert await http("DELETE", f"{path}/nobody") == (204, None)
    assert await http("GET", path) == (200, {"b": []})


@pytest.mark.parametrize(
    ("method", "path", "body", "answer"),
    [
        ("POST", f"{NAMESPACE}/permissions/a", None, (400, "Actions should not be null")),
        (
            "POST",
            "namespaces/public/none/permissions/a",
            ["produce"],
            (404, "Topic's namespace does not exist"),
        ),
        ("GET", "namespaces/public/none/permissions", ..., (404, "Namespace does not exist")),
        (
            "POST",
            f"{NAMESPACE}/permissions/subscription/s",
            None,
            (400, "Roles should not be null"),
        ),
        (
            "POST",
            "persistent/public/default/none/permissions/a",
            ["produce"],
            (404, "Topic persistent://public/default/none not found"),
        ),
        (
            "POST",
            "persistent/none/default/none/permissions/a",
            ["produce"],
            (404, "Tenant does not exist"),
        ),
        (
            "POST",
            "namespaces/grantPermissionsOnTopics",
            [],
            (400, "The namespace should be the same"),
        ),
    ],
)
async def test_wrong_grants_are_refused_as_by_pulsar(http, method, path, body, answer):
    assert await http(method, path, body) == answer


@pytest.mark.parametrize("body", [["fly"], "produce", {"a": 1}, [1]])
async def test_actions_that_do_not_exist_are_not_kept(http, body):
    status, reason = await http("POST", f"{NAMESPACE}/permissions/a", body)
    assert status == 400
    assert "produce, consume" in reason
    assert await http("GET", f"{NAMESPACE}/permissions") == (200, {})


async def test_grants_on_a_topic_are_shown_with_those_of_its_namespace(topics):
    await topics("POST", f"{NAMESPACE}/permissions/a", ["consume"])
    assert await topics("POST", f"{TOPIC}/permissions/a", ["produce"]) == (204, None)
    assert await topics("POST", f"{TOPIC}/permissions/b", ["consume"]) == (204, None)
    expected = {"a": ["produce", "consume"], "b": ["consume"]}
    assert await topics("GET", f"{TOPIC}/permissions") == (200, expected)
    assert (await auth(topics))["destination_auth"] == {
        FULL: {"a": ["produce"], "b": ["consume"]},
    }
    await topics("DELETE", f"{TOPIC}/permissions/a")
    await topics("DELETE", f"{TOPIC}/permissions/b")
    assert (await auth(topics))["destination_auth"] == {}


async def test_a_revoke_on_a_partitioned_topic_includes_its_partitions(topics):
    base = "persistent/public/default/parts"
    await topics("POST", f"{base}/permissions/a", ["produce"])
    await topics("POST", f"{base}-partition-1/permissions/a", ["consume"])
    await topics("POST", f"{base}-partition-1/permissions/b", ["consume"])
    await topics("DELETE", f"{base}/permissions/a")
    assert (await auth(topics))["destination_auth"] == {
        "persistent://public/default/parts-partition-1": {"b": ["consume"]}
    }


async def test_many_topics_at_once(topics):
    path = "namespaces/grantPermissionsOnTopics"
    options = [
        {"topic": FULL, "role": "a", "actions": ["produce"]},
        {"topic": "persistent://public/default/parts", "role": "a", "actions": ["consume"]},
    ]
    assert await topics("POST", path, options) == (204, None)
    missing = [*options, {"topic": f"{FULL}none", "role": "a", "actions": ["consume"]}]
    assert await topics("POST", path, missing) == (404, f"Topic {FULL}none not found")
    other = [*options, {"topic": "persistent://pulsar/system/t", "role": "a", "actions": []}]
    assert await topics("POST", path, other) == (400, "The namespace should be the same")
    revoked = [{"topic": FULL, "role": "a"}]
    assert await topics("POST", "namespaces/revokePermissionsOnTopics", revoked) == (204, None)
    assert (await auth(topics))["destination_auth"] == {
        "persistent://public/default/parts": {"a": ["consume"]}
    }


async def test_a_topic_made_again_has_no_grants_of_its_predecessor(topics):
    base = "persistent/public/default/parts"
    await topics("POST", f"{TOPIC}/permissions/a", ["produce"])
    await topics("POST", f"{base}/permissions/a", ["produce"])
    await topics("POST", f"{base}-partition-1/permissions/a", ["consume"])
    await topics("DELETE", TOPIC)
    await topics("DELETE", f"{base}/partitions")
    assert (await auth(topics))["destination_auth"] == {}


async def test_grants_on_a_subscription_name_roles(http):
    path = f"{NAMESPACE}/permissions"
    assert await http("POST", f"{path}/subscription/s", ["x", "y"]) == (204, None)
    assert await http("GET", f"{path}/subscription") == (200, {"s": ["x", "y"]})
    assert await http("DELETE", f"{path}/s/x") == (204, None)
    assert await http("DELETE", f"{path}/s/nobody") == (204, None)
    assert await http("GET", f"{path}/subscription") == (200, {"s": ["y"]})
    assert await http("DELETE", f"{path}/s/y") == (204, None)
    assert await http("GET", f"{path}/subscription") == (200, {})
    assert (await http("DELETE", f"{path}/s/y"))[0] == 500


async def test_the_mode_of_subscriptions_is_a_policy(http):
    path = f"{NAMESPACE}/subscriptionAuthMode"
    assert await http("GET", path) == (200, "None")
    assert await http("POST", path, "Prefix") == (204, None)
    assert await http("GET", path) == (200, "Prefix")
    assert (await http("POST", path, "prefix"))[0] == 400
    assert await http("POST", path, None) == (204, None)
    assert await http("GET", path) == (200, "None")
