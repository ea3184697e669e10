"""REST of resource groups: as Pulsar answers, and what is kept."""

from __future__ import annotations

import json

import pytest

from broker.assembly.app import running_broker
from broker.http.tests.conftest import CONFIG
from broker.tenancy.namespaces.names import resource_group_path
from broker.tenancy.policies.resource_groups import Budget, ResourceGroup

G = "resourcegroups"
N = "namespaces/public/default/resourcegroup"
UNSET = {
    "publishRateInMsgs": -1,
    "publishRateInBytes": -1,
    "dispatchRateInMsgs": -1,
    "dispatchRateInBytes": -1,
}
ABSENT = (404, "ResourceGroup does not exist")


async def test_a_group_is_made_changed_listed_and_removed(http):
    assert await http("GET", G) == (200, [])
    assert await http("GET", f"{G}/g") == ABSENT
    assert await http("PUT", f"{G}/g", {"publishRateInMsgs": "7", "other": 1}) == (204, None)
    assert await http("GET", f"{G}/g") == (200, {**UNSET, "publishRateInMsgs": 7})
    changed = {"dispatchRateInBytes": 5, "publishRateInMsgs": None}
    assert await http("PUT", f"{G}/g", changed) == (204, None)
    kept = {**UNSET, "publishRateInMsgs": 7, "dispatchRateInBytes": 5}
    assert await http("GET", f"{G}/g") == (200, kept)
    await http("PUT", f"{G}/a%20b:c@d", {})
    assert await http("GET", G) == (200, ["a b:c@d", "g"])
    assert await http("DELETE", f"{G}/g") == (204, None)
    assert await http("GET", f"{G}/g") == ABSENT


@pytest.mark.parametrize("body", [{"publishRateInMsgs": "x"}, {"publishRateInMsgs": 2**31}, 5, []])
async def test_wrong_values_are_refused_and_nothing_is_kept(http, body):
    assert (await http("PUT", f"{G}/g", body))[0] == 400
    assert await http("GET", G) == (200, [])


@pytest.mark.parametrize("name", ["a%2Fb", "%2E%2E", "%00"])
async def test_a_name_that_is_no_element_of_a_path_is_refused(http, name):
    assert (await http("PUT", f"{G}/{name}", {}))[0] in (400, 404, 412)
    assert await http("GET", G) == (200, [])


async def test_where_pulsar_fails_with_an_exception_the_answer_tells_why(http):
    assert await http("DELETE", f"{G}/g") == ABSENT
    for body in (..., None):
        assert await http("PUT", f"{G}/g", body) == (400, "The request entity cannot be empty.")


async def test_the_group_of_a_namespace(http, broker):
    assert await http("GET", N) == (200, None)
    assert await http("POST", f"{N}/g") == (412, "ResourceGroup does not exist")
    await http("PUT", f"{G}/g", {})
    assert await http("POST", f"{N}/g") == (204, None)
    answer = await http.client.get(f"/admin/v2/{N}")
    assert (answer.status_code, answer.text) == (200, "g")
    _, record = await http("GET", "namespaces/public/default")
    assert record["resource_group_name"] == "g"
    assert await http("DELETE", f"{G}/g") == (412, "ResourceGroup is in use")
    for _ in range(2):
        assert await http("DELETE", N) == (204, None)
    assert await http("GET", N) == (200, None)
    assert await http("DELETE", f"{G}/g") == (204, None)
    for namespace in ("public/absent", "absent/absent"):
        path = f"namespaces/{namespace}/resourcegroup"
        assert await http("GET", path) == (404, "Namespace does not exist")
        assert await http("DELETE", path) == (404, "Namespace policies does not exist")


async def test_a_namespace_may_be_made_with_a_group_that_is_not_there(http):
    assert await http("PUT", "namespaces/public/n", {"resource_group_name": "g"}) == (204, None)
    assert (await http("PUT", "namespaces/public/m", {"resource_group_name": 5}))[0] == 400
    answer = await http.client.get("/admin/v2/namespaces/public/n/resourcegroup")
    assert answer.text == "g"


async def test_groups_survive_a_restart(tmp_path):
    async with running_broker(CONFIG, tmp_path) as broker:
        namespaces = broker.service.namespaces
        await namespaces.resource_groups.create_or_change("g", {"publishRateInMsgs": 5})
        await namespaces.change_policies(
            "public/default", lambda record: record.with_fields(resource_group_name="g")
        )
    async with running_broker(CONFIG, tmp_path) as broker:
        namespaces = broker.service.namespaces
        assert namespaces.resource_groups.in_force == {"g": ResourceGroup(publish=Budget(5, 0))}
        namespace = await namespaces.get("public/default")
        assert namespace.policies.effective.resource_group == "g"


async def test_a_damaged_record_leaves_the_budget_as_it_was(broker):
    groups = broker.service.namespaces.resource_groups
    await groups.create_or_change("g", {"publishRateInMsgs": 5})
    for data in (b"{", json.dumps({"publishRateInMsgs": "many"}).encode()):
        await broker.admin.store.put(resource_group_path("g"), data, None)
        await groups.refresh()
        assert groups.in_force == {"g": ResourceGroup(publish=Budget(5, 0))}
