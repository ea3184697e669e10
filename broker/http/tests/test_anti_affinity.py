"""Anti-affinity groups over REST: texts of Pulsar, and what is stored."""

import json

import httpx
import pytest

from broker.http.clusters import anti_affinity
from broker.http.router import Router
from broker.http.server import AdminApplication
from broker.http.tests.test_bookies import LOCAL, SeveralWithRecord
from web.callers import CallerRules

GROUP = "/admin/v2/namespaces/public/default/antiAffinity"
MEMBERS = "/admin/v2/namespaces/standalone/antiAffinity"


@pytest.fixture
async def client(broker):
    application = AdminApplication(Router(anti_affinity.ROUTES), CallerRules((), ["vela"]))
    application.context = broker.admin
    transport = httpx.ASGITransport(application, raise_app_exceptions=True)
    async with httpx.AsyncClient(transport=transport, base_url="http://vela") as client:
        yield client


async def test_a_namespace_is_put_into_a_group_and_out_of_it(broker, client):
    broker.admin.cluster = SeveralWithRecord(broker)
    assert (await client.get(GROUP)).status_code == 204
    assert (await client.post(GROUP, content=b"Zone")).status_code == 204
    answer = await client.get(GROUP)
    assert (answer.status_code, answer.text) == (200, "Zone")
    record = json.loads((await broker.admin.store.get(LOCAL))[0])
    assert record["namespaceAntiAffinityGroup"] == "Zone"
    assert record["bundles"]["boundaries"]
    for asked, found in (("zONE", ["public/default"]), ("other", [])):
        answer = await client.get(f"{MEMBERS}/{asked}?tenant=public")
        assert (answer.status_code, answer.json()) == (200, found)
    assert (await client.delete(GROUP)).status_code == 204
    assert (await client.get(GROUP)).status_code == 204
    record = json.loads((await broker.admin.store.get(LOCAL))[0])
    assert list(record) == ["bundles"]


@pytest.mark.parametrize(
    ("method", "path", "body", "answer"),
    [
        ("POST", GROUP, b" ", (412, "antiAffinityGroup can't be empty")),
        ("POST", GROUP, b"\xff", (400, "The name of a group is UTF-8 text")),
        ("POST", GROUP.replace("default", "none"), b"g", (404, "Namespace not found")),
        ("GET", f"{MEMBERS}/g", b"", (400, "Tenant should not be null")),
        (
            "GET",
            f"{MEMBERS}/g?tenant=public".replace("standalone", "none"),
            b"",
            (412, "Cluster none does not exist."),
        ),
    ],
)
async def test_what_is_refused(broker, client, method, path, body, answer):
    broker.admin.cluster = SeveralWithRecord(broker)
    given = await client.request(method, path, content=body)
    assert (given.status_code, given.json()["reason"]) == answer
    assert await broker.admin.store.get(LOCAL) is None


async def test_a_namespace_without_local_policies_has_no_group_to_leave(broker, client):
    """Pulsar 4.0.8 fails with an exception, 5.0.1 answers 404."""
    broker.admin.cluster = SeveralWithRecord(broker)
    for path in (GROUP, GROUP.replace("default", "none")):
        answer = await client.delete(path)
        assert answer.status_code == 404
        assert answer.json()["reason"] == "The namespace has never been in an anti-affinity group"
    assert (await client.post(GROUP, content=b"g")).status_code == 204
    for _ in range(2):
        assert (await client.delete(GROUP)).status_code == 204


async def test_a_broker_that_shares_nothing_keeps_groups(client):
    assert (await client.post(GROUP, content=b"g")).status_code == 204
    assert (await client.get(GROUP)).text == "g"
    assert len((await client.get(f"{MEMBERS}/g?tenant=public")).json()) == 1
    assert (await client.delete(GROUP)).status_code == 204
    assert (await client.get(GROUP)).status_code == 204
    assert (await client.get(f"{MEMBERS}/g?tenant=nobody")).json() == []
