"""The whole list of Pulsar's endpoints: what is missing says so, and reading single messages."""

from __future__ import annotations

import re
from functools import partial
from importlib.resources import files

import pulsar
import pytest
import trio

from broker.http.missing import missing_routes, pulsar_endpoints
from broker.http.router import Router
from broker.http.routes import all_routes

TOPIC = "persistent/public/default/single"


def test_every_endpoint_of_pulsar_is_answered():
    router = Router(all_routes())
    for endpoint in pulsar_endpoints():
        for domain in ("persistent", "non-persistent"):
            path = endpoint.path.replace("{domain}", domain)
            route, _, _ = router.find(re.sub(r"\{\w+\}", "1", path).encode(), endpoint.method)
            assert route is not None, endpoint


@pytest.mark.parametrize("domain", ["persistent", "non-persistent"])
def test_an_endpoint_of_one_domain_does_not_hide_one_of_both(domain):
    """Pulsar has `.../{bundle}` for non-persistent topics only."""
    router = Router(all_routes())

    route, names, _ = router.find(f"/admin/v2/{domain}/t/n/partitioned".encode(), "GET")

    assert route is not None
    assert route.path == "/admin/v2/{domain}/{tenant}/{namespace}/partitioned"
    assert names == {"domain": domain, "tenant": "t", "namespace": "n"}


def test_the_list_is_that_of_pulsar():
    assert len(pulsar_endpoints()) > 450
    assert files("broker.http").joinpath("pulsar_endpoints.txt").is_file()
    names = {endpoint.name for endpoint in pulsar_endpoints()}
    assert {"peekNthMessage", "backlogQuotaCheck", "setShadowTopics"} <= names


async def test_what_is_missing_says_501_with_its_name(http):
    status, reason = await http("GET", "persistent/public/default/t/compaction")
    assert status == 501
    assert "GET /admin/v2/{domain}/{tenant}/{namespace}/{topic}/compaction" in reason
    for method, path in [
        ("GET", "/admin/v3/functions/public/default"),
        ("PUT", "persistent/public/default/t/shadowTopics"),
        ("GET", "worker/cluster"),
    ]:
        status, reason = await http(method, path)
        assert status == 501
        assert reason.endswith(") is not supported by Vela")


async def test_what_pulsar_does_not_have_is_404(http):
    status, _ = await http("GET", "no/such/thing/in/any/version/of/it")
    assert status == 404


def test_a_route_that_is_there_is_not_missing():
    routes = [route for route in all_routes() if "is not supported" not in str(route.handler)]
    again = missing_routes(routes)
    assert again == []


def publish(url: str) -> list[pulsar.MessageId]:
    client = pulsar.Client(url)
    try:
        consumer = client.subscribe("single", "reads", pulsar.ConsumerType.Shared)
        producer = client.create_producer(
            "single", producer_name="Jürgen\r\nX-Evil: 1", batching_enabled=False
        )
        ids = [
            producer.send(b"m%d" % number, properties={"n": "ü"}, partition_key="k\r\nX-Evil: 2")
            for number in range(5)
        ]
        second = [consumer.receive(5000) for _ in range(5)][1]
        consumer.acknowledge(second)
        consumer.close()
        zipped = client.create_producer(
            "zipped", compression_type=pulsar.CompressionType.ZLib, batching_enabled=False
        )
        zipped.send(b"z" * 1000)
        client.create_producer(
            "packed", compression_type=pulsar.CompressionType.LZ4, batching_enabled=False
        ).send(b"l" * 1000)
        return ids
    finally:
        client.close()


@pytest.fixture
async def single(broker, http):
    """Five messages, the second acknowledged by the subscription `reads`."""
    ids = await trio.to_thread.run_sync(partial(publish, broker.broker_service_url))

    async def get(path):
        return await http.client.get(f"/admin/v2/{path}")

    return get, ids


async def test_peek_passes_over_what_is_acknowledged(single):
    get, ids = single
    bodies = [(await get(f"{TOPIC}/subscription/reads/position/{n}")).content for n in range(1, 5)]
    assert bodies == [b"m0", b"m2", b"m3", b"m4"]
    answer = await get(f"{TOPIC}/subscription/reads/position/2")
    assert answer.status_code == 200
    assert answer.headers["X-Pulsar-Message-ID"] == f"{ids[2].ledger_id()}:{ids[2].entry_id()}"
    assert answer.headers["X-Pulsar-PROPERTY"] == '{"n":"\\u00fc"}'
    assert answer.headers["X-Pulsar-publish-time"].endswith("Z")


async def test_what_a_producer_wrote_adds_no_header(single):
    get, _ = single
    answer = await get(f"{TOPIC}/subscription/reads/position/1")
    assert answer.headers["X-Pulsar-partition-key"] == "k??X-Evil: 2"
    assert "X-Evil" not in answer.headers


async def test_peek_beyond_the_backlog_and_where_there_is_nothing(single, http):
    get, _ = single
    answer = await get(f"{TOPIC}/subscription/reads/position/5")
    assert (answer.status_code, answer.json()) == (404, {"reason": "Message not found"})
    # Real Pulsar shows the message, and makes the subscription; Vela does not make it.
    assert (await get(f"{TOPIC}/subscription/none/position/1")).status_code == 200
    assert (await get("persistent/public/default/no/subscription/s/position/1")).status_code == 404
    await http("PUT", "persistent/public/default/parts/partitions", 2)
    answer = await get("persistent/public/default/parts/subscription/s/position/1")
    assert answer.status_code == 405
    assert answer.json() == {"reason": "Peek messages on a partitioned topic is not allowed"}


@pytest.mark.parametrize(
    ("query", "body"),
    [
        ("initialPosition=earliest&messagePosition=1", b"m0"),
        ("initialPosition=earliest&messagePosition=3", b"m2"),
        ("initialPosition=latest&messagePosition=1", b"m4"),
        ("initialPosition=latest&messagePosition=5", b"m0"),
        ("initialPosition=latest&messagePosition=50", b"m0"),
        ("", b"m4"),
    ],
)
async def test_examine_counts_from_either_end(single, query, body):
    get, _ = single
    assert (await get(f"{TOPIC}/examinemessage?{query}")).content == body


async def test_a_message_by_its_id(single):
    get, ids = single
    ledger_id = ids[3].ledger_id()
    assert (await get(f"{TOPIC}/ledger/{ledger_id}/entry/3")).content == b"m3"
    assert (await get(f"{TOPIC}/ledger/{ledger_id}/entry/99")).status_code == 404


async def test_compressed_messages_are_shown_as_they_were_or_refused(single):
    get, _ = single
    answer = await get("persistent/public/default/zipped/examinemessage")
    assert (answer.status_code, answer.content) == (200, b"z" * 1000)
    answer = await get("persistent/public/default/packed/examinemessage")
    assert answer.status_code == 501
    assert "LZ4" in answer.json()["reason"]


async def test_an_expiry_that_finds_nothing_is_a_conflict_on_every_kind_of_topic(http):
    base = "persistent/public/default"
    await http("PUT", f"{base}/plain")
    await http("PUT", f"{base}/plain/subscription/reads")
    await http("PUT", f"{base}/parts/partitions", 2)
    await http("PUT", f"{base}/parts/subscription/reads")
    for path, named in [
        ("plain/subscription/reads", "plain"),
        ("plain/all_subscription", "plain"),
        ("parts/subscription/reads", "parts-partition-0"),
        ("parts/all_subscription", "parts-partition-0"),
    ]:
        status, reason = await http("POST", f"{base}/{path}/expireMessages/10")
        assert status == 409, path
        assert f"topic persistent://public/default/{named} for subscription reads" in reason


@pytest.mark.parametrize(
    ("method", "path", "status", "reason"),
    [
        ("POST", "subscription/s/expireMessages/1", 405, "Expire messages on a non-persistent"),
        ("POST", "all_subscription/expireMessages/1", 405, "Expire messages for all subscri"),
        ("GET", "properties", 406, "Need to provide a persistent topic name"),
        ("POST", "terminate", 406, "Need to provide a persistent topic name"),
        ("GET", "lastMessageId", 405, "GetLastMessageId on a non-persistent topic is not"),
        ("GET", "messageid/1", 405, "Get message ID by timestamp on a non-persistent topic"),
        ("PUT", "subscription/s", 400, "Create subscription on non-persistent topic can only"),
        ("GET", "subscription/s/position/1", 405, "Peek messages on a non-persistent topic"),
        ("GET", "examinemessage", 405, "Examine messages on a non-persistent topic is not"),
    ],
)
async def test_non_persistent_topics_have_the_statuses_of_pulsar(
    http, method, path, status, reason
):
    topic = "non-persistent/public/default/memory"
    assert (await http("PUT", topic))[0] == 204
    answered = await http(method, f"{topic}/{path}")
    assert answered[0] == status
    assert answered[1].startswith(reason)


async def test_partitioned_topics_and_clusters_without_data(http):
    base = "persistent/public/default/parts"
    await http("PUT", f"{base}/partitions", 2)
    status, reason = await http("GET", f"{base}/messageid/1")
    assert status == 405
    assert reason.endswith("please try do it on specific topic partition")
    assert await http("PUT", "clusters/new") == (400, "cluster data is required")
    status, reason = await http("POST", "persistent/no/such/topic/terminate/partitions")
    assert (status, reason) == (404, "Namespace not found")
