"""Numbers in bodies as Pulsar's JSON reader takes them: texts of digits, and fractions cut off."""

from __future__ import annotations

import pytest

NS = "namespaces/public/default"
T = "persistent/public/default"
COUNTS = ("3", " 3 ", 3.0, 3.7, 3)
NO_COUNTS = (True, "x", "", "3.0", None, [3], {}, "1_0")


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
@pytest.mark.parametrize("method", ["PUT", "POST", "DELETE"])
async def test_the_body_of_a_form_is_refused(http, method, kind):
    path = f"/admin/v2/{T}/f/partitions"
    headers = {"Content-Type": kind}
    answer = await http.client.request(method, path, content=b"3", headers=headers)
    assert answer.status_code == 415


async def test_a_tenant_shows_only_the_roles_that_were_given(http):
    info = {"allowedClusters": ["standalone"]}
    assert await http("PUT", "tenants/none", info) == (204, None)
    assert await http("GET", "tenants/none") == (200, info)
    assert await http("PUT", "tenants/empty", {**info, "adminRoles": []}) == (204, None)
    assert await http("GET", "tenants/empty") == (200, {**info, "adminRoles": []})
