"""Bodies as Pulsar's JSON reader takes them: texts of digits are numbers, fractions are cut off, an
empty text is 0 or false, and a number is a text where a text is wanted."""

from __future__ import annotations

import pytest

NS = "namespaces/public/default"
T = "persistent/public/default"
COUNTS = ("3", " 3 ", 3.0, 3.7, 3)
NO_COUNTS = (True, "x", "3.0", None, [3], {}, "1_0")


@pytest.mark.parametrize("count", COUNTS)
async def test_a_number_of_partitions_may_be_a_text_or_a_fraction(http, count):
    assert await http("PUT", f"{T}/p/partitions", count) == (204, None)
    assert (await http("GET", f"{T}/p/partitions"))[1]["partitions"] == 3
    body = {"partitions": count, "properties": {}}
    assert await http("PUT", f"{T}/q/partitions", body) == (204, None)
    assert await http("POST", f"{T}/p/partitions", "4") == (204, None)
    assert (await http("GET", f"{T}/p/partitions"))[1]["partitions"] == 4


@pytest.mark.parametrize("count", NO_COUNTS)
async def test_what_is_no_number_of_partitions_is_refused(http, count):
    assert (await http("PUT", f"{T}/p/partitions", count))[0] == 400


@pytest.mark.parametrize("count", ["", " ", 0, -1])
async def test_an_empty_text_is_no_partition(http, count):
    told = "Number of partitions should be more than 0"
    assert await http("PUT", f"{T}/p/partitions", count) == (406, told)


async def test_an_empty_text_is_zero_or_false_in_a_policy(http):
    for policy in ("messageTTL", "maxProducersPerTopic"):
        assert (await http("POST", f"{NS}/{policy}", 10))[0] == 204
        assert (await http("POST", f"{NS}/{policy}", ""))[0] == 204
        assert await http("GET", f"{NS}/{policy}") == (200, 0)
    body = {"retentionTimeInMinutes": "", "retentionSizeInMB": ""}
    assert (await http("POST", f"{NS}/retention", body))[0] == 204
    shown = {"retentionTimeInMinutes": 0, "retentionSizeInMB": 0}
    assert await http("GET", f"{NS}/retention") == (200, shown)
    assert (await http("POST", f"{NS}/deduplication", True))[0] == 204
    assert (await http("POST", f"{NS}/deduplication", ""))[0] == 204
    assert await http("GET", f"{NS}/deduplication") == (200, False)


async def test_numbers_and_booleans_are_texts_in_properties(http):
    await http("PUT", f"{T}/t")
    assert (await http("PUT", f"{T}/t/properties", {"a": 1, "b": True, "c": "d"}))[0] == 204
    assert await http("GET", f"{T}/t/properties") == (200, {"a": "1", "b": "true", "c": "d"})
    for no_text in (None, {}, ["x"]):
        assert (await http("PUT", f"{T}/t/properties", {"a": no_text}))[0] == 400


async def test_retention_may_be_given_in_texts(http):
    body = {"retentionTimeInMinutes": "10", "retentionSizeInMB": "5"}
    assert (await http("POST", f"{NS}/retention", body))[0] == 204
    shown = {"retentionTimeInMinutes": 10, "retentionSizeInMB": 5}
    assert await http("GET", f"{NS}/retention") == (200, shown)
    body = {"retentionTimeInMinutes": 11.0, "retentionSizeInMB": 6.9}
    assert (await http("POST", f"{NS}/retention", body))[0] == 204
    shown = {"retentionTimeInMinutes": 11, "retentionSizeInMB": 6}
    assert await http("GET", f"{NS}/retention") == (200, shown)
    assert (await http("POST", f"{NS}/retention", {**shown, "retentionSizeInMB": "x"}))[0] == 400


async def test_a_message_id_may_be_given_in_texts(http):
    await http("PUT", f"{T}/t")
    body = {"ledgerId": "-1", "entryId": "-1"}
    assert await http("PUT", f"{T}/t/subscription/s", body) == (204, None)
    assert await http("POST", f"{T}/t/subscription/s/resetcursor", body) == (204, None)


@pytest.mark.parametrize("kind", ["application/x-www-form-urlencoded", "multipart/form-data"])
@pytest.mark.parametrize("method", ["PUT", "POST"])
async def test_the_body_of_a_form_is_refused(http, method, kind):
    path = f"/admin/v2/{T}/f/partitions"
    headers = {"Content-Type": kind}
    answer = await http.client.request(method, path, content=b"3", headers=headers)
    assert answer.status_code == 415


async def test_the_body_of_a_deletion_does_not_matter(http):
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    path = f"/admin/v2/{T}/absent"
    answer = await http.client.request("DELETE", path, content=b"x", headers=headers)
    assert answer.status_code == 404


async def test_a_tenant_shows_only_the_roles_that_were_given(http):
    info = {"allowedClusters": ["standalone"]}
    assert await http("PUT", "tenants/none", info) == (204, None)
    assert await http("GET", "tenants/none") == (200, info)
    assert await http("PUT", "tenants/empty", {**info, "adminRoles": []}) == (204, None)
    assert await http("GET", "tenants/empty") == (200, {**info, "adminRoles": []})


async def test_a_tenant_keeps_each_role_once_and_nothing_unknown(http):
    info = {"allowedClusters": ["standalone"], "adminRoles": ["a", 1, "a"], "what": 1}
    assert await http("PUT", "tenants/t", info) == (204, None)
    shown = {"allowedClusters": ["standalone"], "adminRoles": ["a", "1"]}
    assert await http("GET", "tenants/t") == (200, shown)


async def test_a_tenant_has_no_role_with_spaces_around_it(http):
    told = "AdminRoles contains whitespace in the beginning or end."
    info = {"allowedClusters": ["standalone"], "adminRoles": [" a"]}
    assert await http("PUT", "tenants/t", info) == (412, told)
    no_clusters = {"adminRoles": ["a"]}
    assert await http("PUT", "tenants/t", no_clusters) == (412, "Clusters cannot be null")


async def test_a_subscription_of_an_administrator_may_be_replicated(http):
    await http("PUT", f"{T}/t")
    body = {"ledgerId": -1, "entryId": -1}
    assert await http("PUT", f"{T}/t/subscription/s?replicated=true", body) == (204, None)
    assert await http("PUT", f"{T}/t/subscription/no", body) == (204, None)
    shown = (await http("GET", f"{T}/t/stats"))[1]["subscriptions"]
    assert (shown["s"]["isReplicated"], shown["no"]["isReplicated"]) == (True, False)
    assert (await http("PUT", f"{T}/t/subscription/x", {**body, "excluded": "x"}))[0] == 400
