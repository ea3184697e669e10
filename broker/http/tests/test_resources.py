"""Everything that is no topic: brokers, clusters, tenants, namespaces, schemas, lookup."""

from __future__ import annotations

import json

import httpx
import pytest
import trio

from bookie.errors import DiskFailed
from broker.http.router import Router
from broker.http.routes import all_routes
from broker.http.server import AdminApplication
from protocol.topic_name import TopicName
from web.callers import CallerRules

AVRO = json.dumps({"type": "record", "name": "A", "fields": [{"name": "a", "type": "int"}]})
OTHER = json.dumps({"type": "record", "name": "A", "fields": [{"name": "a", "type": "string"}]})
S = "schemas/public/default"


async def test_nothing_answers_200_before_the_broker_is_ready():
    transport = httpx.ASGITransport(AdminApplication(Router(all_routes()), CallerRules((), ["*"])))
    async with httpx.AsyncClient(transport=transport, base_url="http://vela") as client:
        for path in ("/metrics", "/admin/v2/brokers/health", "/status.html", "/admin/v2/tenants"):
            assert (await client.get(path)).status_code == 503


async def test_health_is_exactly_ok(http):
    response = await http.client.get("/admin/v2/brokers/health?topicVersion=V2")
    assert (response.status_code, response.text) == (200, "ok")


async def test_health_is_503_with_the_reason_while_nothing_can_be_stored(http, broker):
    bookie = broker.bookie
    (storage,) = bookie._storages
    storage.writable = False
    status, reason = await http("GET", "brokers/health")
    assert status == 503
    assert "read-only" in reason
    assert (await http.client.get("/status.html")).status_code == 200
    storage.writable = True
    assert (await http.client.get("/admin/v2/brokers/health")).status_code == 200
    bookie._adds.failure = DiskFailed("the journal could not be synced")
    status, reason = await http("GET", "brokers/health")
    assert status == 503
    assert "failed" in reason
    bookie._adds.failure = None


async def test_brokers_and_configuration(http, broker):
    assert await http("GET", "brokers") == (200, [broker.admin.broker_id])
    assert await http("GET", "brokers/standalone") == (200, [broker.admin.broker_id])
    _status, leader = await http("GET", "brokers/leaderBroker")
    assert leader["serviceUrl"] == broker.web_service_url
    _status, runtime = await http("GET", "brokers/configuration/runtime")
    assert runtime["maxMessageSize"] == "5242880"
    value = '{"a":"x/y"}'
    path = "brokers/configuration/allowAutoSubscriptionCreation"
    assert await http("POST", f"{path}/%7B%22a%22%3A%22x%2Fy%22%7D") == (200, None)
    values = {"allowAutoSubscriptionCreation": value}
    assert await http("GET", "brokers/configuration/values") == (200, values)
    assert await http("DELETE", path) == (200, None)
    assert await http("GET", "brokers/configuration/values") == (200, {})
    refused = (412, "Can't update non-dynamic configuration")
    assert await http("POST", "brokers/configuration/nonsense/1") == refused


async def test_tenants_and_namespaces(http):
    info = {"adminRoles": ["a"], "allowedClusters": ["standalone"]}
    assert await http("PUT", "tenants/t1", info) == (204, None)
    assert await http("PUT", "tenants/t1", info) == (409, "Tenant already exist")
    assert await http("GET", "tenants/t1") == (200, info)
    assert await http("GET", "tenants") == (200, ["public", "pulsar", "t1"])
    given = {"replication_clusters": ["standalone"], "encryption_required": True, "later": [1]}
    assert await http("PUT", "namespaces/t1/n1", given) == (204, None)
    assert await http("PUT", "namespaces/t1/n2", None) == (204, None)
    assert await http("PUT", "namespaces/t1/n1") == (409, "Namespace already exists")
    assert await http("GET", "namespaces/t1") == (200, ["t1/n1", "t1/n2"])
    _status, policies = await http("GET", "namespaces/t1/n1")
    assert policies["encryption_required"] is True
    assert "later" not in policies  # a field that Pulsar does not know
    assert policies["offload_threshold"] == -1
    grant = "namespaces/t1/n1/permissions/r"
    assert await http("POST", grant, ["produce", "consume"]) == (204, None)
    permissions = {"r": ["produce", "consume"]}
    assert await http("GET", "namespaces/t1/n1/permissions") == (200, permissions)
    assert await http("DELETE", grant) == (204, None)
    missing = (404, "Namespace does not exist")
    assert await http("GET", "namespaces/t1/no/topics") == missing
    still = (409, "The tenant still has active namespaces")
    assert await http("DELETE", "tenants/t1") == still
    for name in ("n1", "n2"):
        assert await http("DELETE", f"namespaces/t1/{name}") == (204, None)
    assert await http("DELETE", "tenants/t1") == (204, None)


async def test_a_namespace_with_a_topic_in_memory_is_not_deleted(http, broker):
    """Its producers would go on with policies that no change reaches."""
    await http("PUT", "namespaces/public/n1")
    topic = TopicName.parse("non-persistent://public/n1/a")
    await broker.service.get_or_load_topic(topic, create=True)
    refused = (409, "Cannot delete non empty namespace")
    assert await http("DELETE", "namespaces/public/n1") == refused
    await broker.service.delete_topic(topic)
    assert await http("DELETE", "namespaces/public/n1") == (204, None)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("tenants/t1", {"allowedClusters": 5}),
        ("tenants/t1", {"allowedClusters": [[5]]}),
        ("tenants/t1", {"allowedClusters": ["standalone"], "adminRoles": 5}),
        ("persistent/public/default/p/partitions", {"partitions": 1, "properties": 5}),
        ("persistent/public/default/p/partitions", {"partitions": 1, "properties": {"a": [5]}}),
    ],
)
async def test_a_field_of_the_wrong_type_is_400(http, path, body):
    assert (await http("PUT", path, body))[0] == 400


async def test_forced_deletion_must_be_allowed(http):
    status, reason = await http("DELETE", "namespaces/public/default?force=true")
    assert (status, reason) == (405, "Broker doesn't allow forced deletion of namespaces")


async def test_clusters(http, broker):
    _status, data = await http("GET", "clusters/standalone")
    assert data["brokerServiceUrl"] == broker.broker_service_url
    assert await http("PUT", "clusters/standalone", {}) == (409, "Cluster already exists")
    assert await http("PUT", "clusters/c2", {"serviceUrl": "http://x"}) == (200, None)
    assert await http("DELETE", "clusters/c2") == (204, None)
    assert await http("GET", "clusters/c2") == (404, "Cluster does not exist")


async def test_schema_texts_come_back_as_posted(http):
    text = '{ "type": "record",\n "name": "A", "fields": [] }'
    posted = {"type": "AVRO", "schema": text, "properties": {"k": "\u00e9", "e": ""}}
    assert await http("GET", f"{S}/a/schema") == (404, "Schema not found")
    assert await http("POST", f"{S}/a/schema", posted) == (200, {"version": {"version": 0}})
    _status, schema = await http("GET", f"{S}/a/schema")
    assert schema["data"] == text
    assert schema["properties"] == posted["properties"]
    assert (schema["version"], schema["type"]) == (0, "AVRO")
    assert await http("GET", f"{S}/a/schema/9") == (404, "Schema not found")
    _status, every = await http("GET", f"{S}/a/schemas")
    assert len(every["getSchemaResponses"]) == 1


async def test_schema_compatibility(http):
    await http("POST", f"{S}/a/schema", {"type": "AVRO", "schema": AVRO, "properties": {}})
    other = {"type": "AVRO", "schema": OTHER, "properties": {}}
    status, reason = await http("POST", f"{S}/a/schema", other)
    assert status == 409
    assert reason.startswith("Error during schema compatibility check with strategy FULL: ")
    assert await http("POST", f"{S}/a/compatibility", other) == (500, reason)
    fits = {"schemaCompatibilityStrategy": "FULL", "compatibility": True}
    same = {"type": "AVRO", "schema": AVRO, "properties": {}}
    assert await http("POST", f"{S}/a/compatibility", same) == (202, fits)
    assert await http("POST", f"{S}/a/version", other) == (200, {"version": -1})
    as_json = {"type": "JSON", "schema": AVRO, "properties": {}}
    expected = "Incompatible schema: exists schema type AVRO, new schema type JSON"
    assert await http("POST", f"{S}/a/schema", as_json) == (409, expected)
    broken = {"type": "AVRO", "schema": "garbage", "properties": {}}
    expected = "Invalid schema definition data for AVRO schema"
    assert await http("POST", f"{S}/a/schema", broken) == (422, expected)
    assert await http("DELETE", f"{S}/a/schema") == (200, {"version": 1})
    assert await http("POST", f"{S}/a/schema", other) == (200, {"version": {"version": 2}})


async def test_simultaneous_equal_posts_get_the_same_version(http):
    answers = []

    async def post() -> None:
        body = {"type": "AVRO", "schema": AVRO, "properties": {}}
        answers.append(await http("POST", f"{S}/a/schema", body))

    async with trio.open_nursery() as nursery:
        for _ in range(4):
            nursery.start_soon(post)
    assert answers == [(200, {"version": {"version": 0}})] * 4


async def test_bytes_are_no_schema(http):
    body = {"type": "BYTES", "schema": "", "properties": {}}
    assert await http("POST", f"{S}/b/schema", body) == (200, {"version": {"version": 0}})
    _status, schema = await http("GET", f"{S}/b/schema")
    assert (schema["type"], schema["data"]) == ("NONE", "")


async def test_lookup(http, broker):
    path = "/lookup/v2/topic/persistent/public/default/x"
    status, found = await http("GET", path)
    assert status == 200
    assert found["brokerUrl"] == broker.broker_service_url
    assert found["httpUrl"] == broker.web_service_url
    assert found["brokerUrlTls"] == ""
    response = await http.client.get(f"{path}/bundle")
    assert response.text.startswith("0x")
    assert len(response.text) == 21
    assert await http("GET", "persistent/public/default") == (200, [])
    unknown = "/lookup/v2/topic/persistent/public/no/x"
    assert await http("GET", unknown) == (404, "Namespace not found")
    status, reason = await http("GET", f"{path}?listenerName=test")
    assert reason == "the broker do not have test listener"
    await http("PUT", "persistent/public/default/p/partitions", 2)
    beyond = "/lookup/v2/topic/persistent/public/default/p-partition-9"
    assert (await http("GET", beyond))[0] == 404


@pytest.mark.parametrize("body", [b"{", b"[1", b"\xff", b"nul"])
async def test_a_body_that_is_no_json_is_400(http, body):
    response = await http.client.put("/admin/v2/tenants/t1", content=body)
    assert response.status_code == 400


async def test_bytes_is_read_back_as_none_and_may_be_posted_again(http):
    """Pulsar refuses the second; two tasks of a Spark job then fail by chance."""
    posted = {"type": "BYTES", "schema": "", "properties": {}}
    for _ in range(2):
        assert await http("POST", f"{S}/b/schema", posted) == (200, {"version": {"version": 0}})
        assert (await http("GET", f"{S}/b/schema"))[1]["type"] == "NONE"


async def test_internal_statistics_name_the_ledgers_of_schemas(http):
    topic = "persistent/public/default/a"
    assert (await http("PUT", topic))[0] == 204
    assert (await http("GET", f"{topic}/internalStats"))[1]["schemaLedgers"] == []
    for number in range(2):
        text = f'{{"type":"record","name":"A","fields":[],"doc":"{number}"}}'
        body = {"type": "AVRO", "schema": text, "properties": {"n": str(number)}}
        assert (await http("POST", f"{S}/a/schema", body))[0] == 200
    await http("DELETE", f"{S}/a/schema")
    rows = (await http("GET", f"{topic}/internalStats"))[1]["schemaLedgers"]
    assert [row["entries"] for row in rows] == [1] * len(rows)
    assert len({row["ledgerId"] for row in rows}) == len(rows) >= 2
    assert all(row["size"] > 40 for row in rows)
    await http("DELETE", f"{S}/a/schema?force=true")
    assert (await http("GET", f"{topic}/internalStats"))[1]["schemaLedgers"] == []
