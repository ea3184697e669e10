"""Isolation policies and failure domains over REST: texts, what is stored, what is unloaded."""

import json

import pytest

from broker.http.tests.test_bundles import Several

POLICIES = "clusters/standalone/namespaceIsolationPolicies"
DOMAINS = "clusters/standalone/failureDomains"
STORED = "/admin/clusters/standalone/namespaceIsolationPolicies"


def failover(min_limit, usage_threshold):
    parameters = {"min_limit": min_limit, "usage_threshold": usage_threshold}
    return {"parameters": parameters, "policy_type": "min_available"}


ONE = {
    "namespaces": ["public/default"],
    "primary": ["localhost.*"],
    "secondary": [],
    "auto_failover_policy": failover("1", "100"),
}


@pytest.fixture
def cluster(broker):
    address = broker.service.ownership.this_broker
    broker.admin.cluster = Several(broker.admin.broker_id, address)
    return broker.admin.cluster


async def test_policies_are_set_shown_and_deleted(http, broker, cluster):
    nothing = (404, "NamespaceIsolationPolicies for cluster standalone does not exist")
    for path in (POLICIES, f"{POLICIES}/one", f"{POLICIES}/brokers", f"{POLICIES}/brokers/b:1"):
        assert await http("GET", path) == nothing
    assert await http("POST", f"{POLICIES}/one", ONE) == (204, None)
    stored, _version = await broker.admin.store.get(STORED)
    assert json.loads(stored) == {"one": ONE}
    assert await http("GET", POLICIES) == (200, {"one": ONE})
    assert await http("GET", f"{POLICIES}/one") == (200, ONE)
    missing = (404, "Cannot find NamespaceIsolationPolicy two for cluster standalone")
    assert await http("GET", f"{POLICIES}/two") == missing
    assert await http("DELETE", f"{POLICIES}/two") == (204, None)
    assert await http("DELETE", f"{POLICIES}/one") == (204, None)
    assert await http("GET", POLICIES) == (200, {})


async def test_a_policy_unloads_the_namespaces_that_it_moves(http, cluster):
    await http("POST", f"{POLICIES}/one", {**ONE, "unload_scope": "none"})
    assert cluster.done == []
    await http("POST", f"{POLICIES}/one", {**ONE, "primary": ["other"]})
    assert cluster.done == [("unload", "public/default")]


async def test_brokers_are_shown_with_the_policies_that_name_them(http, broker, cluster):
    await http("POST", f"{POLICIES}/one", {**ONE, "primary": ["other.*"], "secondary": ["x.*"]})
    status, shown = await http("GET", f"{POLICIES}/brokers")
    assert status == 200
    assert {each["brokerName"] for each in shown} == {broker.admin.broker_id, "other:8080"}
    (other,) = [each for each in shown if each["brokerName"] == "other:8080"]
    assert other == {
        "brokerName": "other:8080",
        "policyName": "one",
        "namespaceRegex": ["public/default"],
        "primary": True,
    }
    status, shown = await http("GET", f"{POLICIES}/brokers/x:1")
    assert (status, shown["primary"], shown["policyName"]) == (200, False, "one")
    nowhere = {"brokerName": "none:1", "namespaceRegex": [], "primary": False}
    assert await http("GET", f"{POLICIES}/brokers/none:1") == (200, nowhere)


@pytest.mark.parametrize(
    "body",
    [
        None,
        {},
        {**ONE, "primary": []},
        {**ONE, "namespaces": "public/default"},
        {**ONE, "auto_failover_policy": {"policy_type": "min_available", "parameters": {}}},
        {**ONE, "auto_failover_policy": failover("-1", "100")},
        {**ONE, "auto_failover_policy": failover("1", "101")},
        {**ONE, "auto_failover_policy": failover("x", "100")},
    ],
)
async def test_a_policy_that_is_none_is_refused_and_nothing_stored(http, broker, cluster, body):
    status, reason = await http("POST", f"{POLICIES}/one", body)
    assert status == 400
    assert reason.startswith("Invalid format of input policy data. policy: one; data: ")
    assert await broker.admin.store.get(STORED) is None


async def test_an_expression_that_is_not_understood_is_refused(http, broker, cluster):
    status, reason = await http("POST", f"{POLICIES}/one", {**ONE, "namespaces": ["(?=x)y"]})
    assert status == 400
    assert "does not support the expression" in reason
    assert await broker.admin.store.get(STORED) is None


async def test_failure_domains_hold_each_broker_once(http, broker, cluster):
    assert await http("GET", DOMAINS) == (200, {})
    missing = (404, "Domain d1 for cluster standalone does not exist")
    assert await http("GET", f"{DOMAINS}/d1") == missing
    assert await http("POST", f"{DOMAINS}/d1", {"brokers": ["a:1", "b:1", "a:1"]}) == (204, None)
    stored, _version = await broker.admin.store.get("/admin/clusters/standalone/failureDomain/d1")
    assert json.loads(stored) == {"brokers": ["a:1", "b:1"]}
    assert await http("POST", f"{DOMAINS}/d2", {"brokers": ["b:1", "c:1"]}) == (
        409,
        "[b:1] already exists in d1",
    )
    assert await http("POST", f"{DOMAINS}/d2", {"brokers": ["c:1"]}) == (204, None)
    assert await http("POST", f"{DOMAINS}/d1", {"brokers": ["b:1"]}) == (204, None)
    assert await http("GET", f"{DOMAINS}/d1") == (200, {"brokers": ["b:1"]})
    both = {"d1": {"brokers": ["b:1"]}, "d2": {"brokers": ["c:1"]}}
    assert await http("GET", DOMAINS) == (200, both)
    assert (await http("DELETE", f"{DOMAINS}/d1"))[0] == 200
    assert await http("DELETE", f"{DOMAINS}/d1") == (
        404,
        "Domain-name d1 or cluster standalone does not exist",
    )
    assert (await http("POST", f"{DOMAINS}/d1", {"brokers": "a:1"}))[0] == 400


async def test_a_cluster_that_is_not_there(http, cluster):
    other = "clusters/none/namespaceIsolationPolicies"
    assert await http("GET", other) == (404, "Cluster none does not exist.")
    for path in (f"{other}/one", f"{other}/brokers", f"{other}/brokers/b"):
        assert await http("GET", path) == (412, "Cluster none does not exist.")
    assert (await http("POST", f"{other}/one", ONE))[0] == 412
    assert (await http("DELETE", f"{other}/one"))[0] == 412
    assert await http("GET", "clusters/none/failureDomains") == (200, {})
    assert (await http("GET", "clusters/none/failureDomains/d"))[0] == 412
    assert (await http("POST", "clusters/none/failureDomains/d", {"brokers": []}))[0] == 412


async def test_a_broker_that_shares_nothing_takes_no_policies(http):
    for method, path, body in (
        ("POST", f"{POLICIES}/one", ONE),
        ("DELETE", f"{POLICIES}/one", ...),
        ("POST", f"{DOMAINS}/d", {"brokers": []}),
        ("DELETE", f"{DOMAINS}/d", ...),
    ):
        assert (await http(method, path, body))[0] == 501
    assert (await http("GET", POLICIES))[0] == 404


async def test_a_cluster_with_policies_is_not_deleted_and_goes_with_its_domains(http, cluster):
    assert (await http("PUT", "clusters/other", {"serviceUrl": "http://x:1"}))[0] == 200
    assert (await http("POST", "clusters/other/namespaceIsolationPolicies/one", ONE))[0] == 204
    assert (await http("POST", "clusters/other/failureDomains/d", {"brokers": ["a:1"]}))[0] == 204
    assert await http("DELETE", "clusters/other") == (412, "Cluster not empty")
    assert (await http("DELETE", "clusters/other/namespaceIsolationPolicies/one"))[0] == 204
    assert (await http("DELETE", "clusters/other"))[0] == 204
    assert await http("GET", "clusters/other") == (404, "Cluster does not exist")
    assert await http("GET", "clusters/other/failureDomains") == (200, {})
