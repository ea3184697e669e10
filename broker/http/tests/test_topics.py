"""Topics, partitions and subscriptions over HTTP, as Pulsar 4.0.8 answers."""

from __future__ import annotations

import dataclasses
from contextlib import suppress

import pytest
import trio

from broker.http.tests.test_topic_layouts import publish
from broker.tenancy.namespaces.names import managed_ledger_path
from broker.topics.subscription.consumer import Consumer
from broker.topics.subscription.request import SubscriptionRequest
from broker.topics.subscription.sub_types import SHARED
from broker.topics.subscription.tests.fakes import FakeSession
from metadata.store import MUST_NOT_EXIST
from protocol.errors import BrokerError, ProducerBusy
from protocol.topic_name import TopicName
from runtime.testing.conditions import eventually

T = "persistent/public/default"
EARLIEST = {"ledgerId": -1, "entryId": -1, "partitionIndex": -1}
LATEST = {"ledgerId": 2**63 - 1, "entryId": 2**63 - 1, "partitionIndex": -1}
FULL = "persistent://public/default"


async def test_plain_topic_from_creation_to_deletion(http):
    assert await http("PUT", f"{T}/a") == (204, None)
    assert await http("PUT", f"{T}/a") == (409, "This topic already exists")
    assert await http("GET", f"{T}/a/partitions") == (200, {"partitions": 0, "deleted": False})
    assert await http("GET", T) == (200, [f"{FULL}/a"])
    assert await http("GET", f"{T}/a/subscriptions") == (200, [])
    status, last = await http("GET", f"{T}/a/lastMessageId")
    assert (status, last["entryId"], last["batchIndex"]) == (200, -1, -1)
    assert await http("DELETE", f"{T}/a") == (204, None)
    assert await http("DELETE", f"{T}/a") == (404, f"Topic {FULL}/a not found")
    assert await http("GET", T) == (200, [])


async def test_partitioned_topic_from_creation_to_deletion(http):
    assert await http("PUT", f"{T}/p/partitions", 3) == (204, None)
    assert await http("PUT", f"{T}/p/partitions", 3) == (409, "This topic already exists")
    assert await http("PUT", f"{T}/p") == (409, "This topic already exists")
    assert await http("GET", f"{T}/partitioned") == (200, [f"{FULL}/p"])
    assert await http("GET", T) == (200, [f"{FULL}/p-partition-{i}" for i in range(3)])
    assert await http("PUT", f"{T}/p/subscription/s", EARLIEST) == (204, None)
    assert await http("POST", f"{T}/p/partitions", 5) == (204, None)
    assert await http("GET", f"{T}/p/partitions") == (200, {"partitions": 5, "deleted": False})
    assert await http("GET", f"{T}/p-partition-4/subscriptions") == (200, ["s"])
    status, reason = await http("POST", f"{T}/p/partitions", 2)
    assert status == 422
    assert reason == "Desired partitions 2 can't be less than the current partitions 5."
    assert await http("GET", f"{T}/p/stats") == (404, f"Topic {FULL}/p not found")
    status, stats = await http("GET", f"{T}/p/partitioned-stats")
    assert status == 200
    assert len(stats["partitions"]) == 5
    assert stats["metadata"] == {"partitions": 5, "deleted": False}
    assert (await http("DELETE", f"{T}/p"))[0] == 409
    assert await http("DELETE", f"{T}/p/partitions") == (204, None)
    assert await http("DELETE", f"{T}/p/partitions") == (404, f"Topic {FULL}/p not found.")
    assert await http("GET", T) == (200, [])


@pytest.mark.parametrize(
    "body",
    [
        {"messageId": 7},
        {"messageId": [1]},
        {"messageId": {"ledgerId": 10**40, "entryId": 0}},
        {"messageId": {"ledgerId": "x", "entryId": 0}},
        {"ledgerId": -(2**63) - 1, "entryId": 0},
        {"properties": ["a"]},
        {"properties": {"a": [1]}},
        {"properties": "a"},
    ],
)
async def test_a_subscription_from_a_wrong_body_is_refused_and_not_made(http, body):
    assert await http("PUT", f"{T}/a") == (204, None)
    status, reason = await http("PUT", f"{T}/a/subscription/s", body)
    assert (status, "message id" in reason or "roperties" in reason) == (400, True)
    assert await http("GET", f"{T}/a/subscriptions") == (200, [])


@pytest.mark.parametrize("start", [EARLIEST, {"messageId": EARLIEST}])
async def test_a_subscription_with_properties_starts_where_the_request_says(http, broker, start):
    """Stock admin clients put the properties beside the fields of the message id."""
    await http("PUT", f"{T}/a")
    await publish(broker, f"{FULL}/a", 1)
    body = {**start, "properties": {"team": "green"}}
    assert await http("PUT", f"{T}/a/subscription/s", body) == (204, None)
    row = (await http("GET", f"{T}/a/stats"))[1]["subscriptions"]["s"]
    assert (row["msgBacklog"], row["subscriptionProperties"]) == (1, {"team": "green"})


async def test_a_new_partition_gets_the_subscriptions_with_their_properties(http):
    """As on Pulsar. Without them its consumers could not attach to a broadcast there."""
    assert await http("PUT", f"{T}/p/partitions", 1) == (204, None)
    properties = {"vela.broadcast": "true", "team": "green"}
    body = {**EARLIEST, "properties": properties}
    assert await http("PUT", f"{T}/p/subscription/everybody", body) == (204, None)
    assert await http("PUT", f"{T}/p/subscription/plain", EARLIEST) == (204, None)
    assert await http("POST", f"{T}/p/partitions", 2) == (204, None)
    rows = (await http("GET", f"{T}/p-partition-1/stats"))[1]["subscriptions"]
    assert {name: row["subscriptionProperties"] for name, row in rows.items()} == {
        "everybody": properties,
        "plain": {},
    }
    assert rows["everybody"]["type"] == "Broadcast"


async def test_a_failed_growth_can_be_repeated_and_costs_no_subscription(http, broker):
    """Clients learn of a partition when it has the subscriptions, and not before."""
    assert await http("PUT", f"{T}/p/partitions", 1) == (204, None)
    assert await http("PUT", f"{T}/p/subscription/s", EARLIEST) == (204, None)
    damaged = managed_ledger_path(TopicName.parse(f"{FULL}/p-partition-1"))
    version = await broker.admin.store.put(damaged, b"\xff", MUST_NOT_EXIST)
    assert (await http("POST", f"{T}/p/partitions", 2))[0] >= 500
    assert await http("GET", f"{T}/p/partitions") == (200, {"partitions": 1, "deleted": False})
    await broker.admin.store.delete(damaged, version)
    assert await http("POST", f"{T}/p/partitions", 2) == (204, None)
    assert await http("GET", f"{T}/p-partition-1/subscriptions") == (200, ["s"])


@pytest.mark.parametrize("version", ["v2", "v3"])
async def test_creation_with_properties_answers_on_both_paths(http, version):
    body = {"properties": {"k": "v"}, "partitions": 2}
    path = f"/admin/{version}/{T}/p/partitions"
    media_type = "application/vnd.partitioned-topic-metadata+json"
    answer = await http("PUT", path, body, **{"content-type": media_type})
    assert answer == (204, None)
    expected = {"partitions": 2, "deleted": False, "properties": {"k": "v"}}
    assert await http("GET", path) == (200, expected)
    assert await http("GET", f"{T}/p/properties") == (200, {"k": "v"})


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "reason"),
    [
        ("GET", f"{T}/x/partitions", ..., 404, f"Topic {FULL}/x not found"),
        ("GET", "persistent/public/no/x/partitions", ..., 404, "Namespace not found"),
        ("GET", "persistent/public/no", ..., 404, "Namespace does not exist"),
        ("GET", f"{T}/x/stats", ..., 404, f"Topic {FULL}/x not found"),
        ("GET", f"{T}/x/internalStats", ..., 404, f"Topic {FULL}/x not found"),
        ("GET", f"{T}/x/lastMessageId", ..., 404, f"Topic {FULL}/x not found"),
        ("GET", f"{T}/x/partitioned-stats", ..., 404, f"Partitioned Topic {FULL}/x not found"),
        ("PUT", f"{T}/x/unload", ..., 404, f"Topic {FULL}/x not found"),
        ("POST", f"{T}/x/terminate", ..., 404, f"Topic {FULL}/x not found"),
        ("PUT", f"{T}/x/partitions", 0, 406, "Number of partitions should be more than 0"),
        ("PUT", f"{T}/x/partitions", "many", 400, "The body must be the number of partitions"),
        ("POST", f"{T}/x/partitions", 2, 409, f"Topic {FULL}/x is not the partitioned topic."),
        (
            "PUT",
            f"{T}/x-partition-1/partitions",
            2,
            412,
            "Partitioned Topic Name should not contain '-partition-'",
        ),
        (
            "PUT",
            f"{T}/x-partition-1",
            ...,
            412,
            'Can\'t create topic x-partition-1 with "-partition-" followed by numeric value if '
            "there isn't a partitioned topic x created.",
        ),
        ("POST", f"{T}/x/subscription/s/resetcursor", EARLIEST, 404, f"Topic {FULL}/x not found"),
        ("DELETE", f"{T}/x/subscription/s", ..., 404, f"Topic {FULL}/x not found"),
        ("GET", "nowhere", ..., 404, "There is nothing at /admin/v2/nowhere"),
        ("PATCH", "tenants", ..., 405, "PATCH is not allowed on /admin/v2/tenants"),
    ],
)
async def test_refusals(http, method, path, body, status, reason):
    assert await http(method, path, body) == (status, reason)


async def test_asking_with_auto_creation_allowed_creates_nothing(http):
    path = f"{T}/x/partitions?checkAllowAutoCreation=true"
    assert await http("GET", path) == (200, {"partitions": 0, "deleted": False})
    assert await http("PUT", f"{T}/x/partitions", 2) == (204, None)


async def test_subscription_texts(http):
    await http("PUT", f"{T}/a")
    await http("PUT", f"{T}/p/partitions", 2)
    assert await http("PUT", f"{T}/a/subscription/s", LATEST) == (204, None)
    exists = (409, "Subscription already exists for topic")
    assert await http("PUT", f"{T}/a/subscription/s", EARLIEST) == exists
    assert await http("PUT", f"{T}/new/subscription/s", EARLIEST) == (204, None)
    assert await http("GET", f"{T}/new/subscriptions") == (200, ["s"])
    missing = (404, f"Subscription no not found for topic {FULL}/a")
    for method, end, body in [
        ("POST", "/resetcursor", EARLIEST),
        ("POST", "/resetcursor/1700000000000", ...),
        ("POST", "/skip_all", ...),
        ("POST", "/skip/1", ...),
        ("POST", "/expireMessages/1", ...),
        ("DELETE", "", ...),
    ]:
        assert await http(method, f"{T}/a/subscription/no{end}", body) == missing
    assert await http("DELETE", f"{T}/p/subscription/no") == (404, "Subscription not found")
    far = {"ledgerId": 999, "entryId": 5, "partitionIndex": -1, "acker": {}}
    assert await http("POST", f"{T}/a/subscription/s/resetcursor", far) == (204, None)
    status, _ = await http("POST", f"{T}/p/subscription/s/resetcursor", EARLIEST)
    assert status == 405
    assert await http("DELETE", f"{T}/a/subscription/s") == (204, None)


@pytest.mark.parametrize(
    ("segment", "name"),
    [
        ("one%2Fx", "one/x"),
        ("two%252Fx", "two/x"),
        ("three%25252Fx", "three%2Fx"),
        ("sp%20c", "sp c"),
        ("p+q", "p q"),
        ("p2%2Bq", "p2 q"),
        ("p3%252Bq", "p3+q"),
        (
            "spar-pulsar-1-persistent%253A%252F%252Fpublic%252Fdefault%252FT",
            "spar-pulsar-1-persistent://public/default/T",
        ),
    ],
)
async def test_subscription_names_are_decoded_twice(http, segment, name):
    assert await http("PUT", f"{T}/a/subscription/{segment}", EARLIEST) == (204, None)
    assert await http("GET", f"{T}/a/subscriptions") == (200, [name])
    path = f"{T}/a/subscription/{segment}"
    assert await http("POST", f"{path}/resetcursor", EARLIEST) == (204, None)
    assert await http("DELETE", path) == (204, None)


async def test_topic_names_are_split_before_they_are_decoded(http):
    assert await http("PUT", f"{T}/pe%25rc") == (204, None)
    assert await http("GET", T) == (200, [f"{FULL}/pe%rc"])
    status, reason = await http("PUT", f"{T}/sl%2Fash")
    assert status == 412
    assert "must not contain a slash" in reason


async def test_stats_carry_what_clients_read(http, broker):
    await http("PUT", f"{T}/a")
    topic = await broker.service.find_topic(TopicName.parse("a"))
    await topic.open_subscription(SubscriptionRequest(name="s", properties={"k": "v"}))
    status, stats = await http("GET", f"{T}/a/stats")
    assert status == 200
    assert stats["publishers"] == []
    assert stats["ownerBroker"] == broker.admin.broker_id
    subscription = stats["subscriptions"]["s"]
    assert subscription["isDurable"] is True
    assert subscription["msgBacklog"] == 0
    assert subscription["subscriptionProperties"] == {"k": "v"}
    status, internal = await http("GET", f"{T}/a/internalStats?metadata=true")
    assert status == 200
    assert internal["state"] == "LedgerOpened"
    assert internal["cursors"]["s"]["markDeletePosition"].endswith(":-1")
    text = internal["ledgers"][-1]["metadata"]
    assert text.startswith("LedgerMetadata{formatVersion=3, ensembleSize=1")
    assert "password=OMITTED" in text
    status, info = await http("GET", f"{T}/a/internal-info")
    assert status == 200
    assert set(info["ledgers"][0]) == {"ledgerId", "timestamp", "isOffloaded"}


async def test_terminated_topic_stays_and_says_so(http):
    await http("PUT", f"{T}/a")
    status, last = await http("POST", f"{T}/a/terminate")
    assert (status, last["entryId"]) == (200, -1)
    assert (await http("POST", f"{T}/a/terminate"))[0] == 200
    status, internal = await http("GET", f"{T}/a/internalStats")
    assert internal["state"] == "Terminated"


async def test_properties_of_a_plain_topic(http):
    await http("PUT", f"{T}/a", {"x": "1", "y": "2"})
    assert await http("PUT", f"{T}/a/properties", {"z": "3"}) == (204, None)
    assert await http("DELETE", f"{T}/a/properties?key=x") == (204, None)
    assert await http("PUT", f"{T}/a/unload") == (204, None)
    assert await http("GET", f"{T}/a/properties") == (200, {"y": "2", "z": "3"})


async def test_the_topic_epoch_is_no_property_of_the_admin(http, broker):
    epoch = "pulsar.topic.epoch"
    await http("PUT", f"{T}/a", {epoch: "9", "x": "1"})
    assert await http("GET", f"{T}/a/properties") == (200, {"x": "1"})
    topic = broker.service.topics[f"{FULL}/a"]
    await topic.store_epoch(5)
    assert await http("PUT", f"{T}/a/properties", {epoch: "2", "y": "2"}) == (204, None)
    assert await http("DELETE", f"{T}/a/properties?key={epoch}") == (204, None)
    assert await http("GET", f"{T}/a/properties") == (200, {"x": "1", "y": "2", epoch: "5"})


async def test_non_persistent_topics_exist_while_loaded(http):
    n = "non-persistent/public/default"
    assert await http("PUT", f"{n}/y") == (204, None)
    assert await http("GET", n) == (200, ["non-persistent://public/default/y"])
    assert await http("GET", T) == (200, [])
    assert (await http("GET", f"{n}/y/stats"))[0] == 200
    assert (await http("GET", f"{n}/y/internalStats"))[0] == 405
    names = await http("GET", "namespaces/public/default/topics?mode=ALL")
    assert names == (200, ["non-persistent://public/default/y"])


@pytest.mark.parametrize(
    ("topic", "reason"),
    [
        ("public/default/p-partition-7", "Topic partitions were not yet created"),
        (
            "public/default/x-partition-0",
            f"Partitioned Topic not found: {FULL}/x-partition-0 has zero partitions",
        ),
        ("public/nowhere/x-partition-0", "Namespace not found"),
        ("public/nowhere/x", "Namespace not found"),
        ("public/default/x", f"Topic {FULL}/x not found"),
    ],
)
async def test_what_is_absent_is_named(http, topic, reason):
    await http("PUT", f"{T}/p/partitions", 2)
    path = f"persistent/{topic}"
    assert await http("GET", f"{path}/subscriptions") == (404, reason)
    assert await http("GET", f"{path}/stats") == (404, reason)
    assert await http("DELETE", f"{path}/subscription/s") == (404, reason)
    assert await http("POST", f"{path}/subscription/s/resetcursor", EARLIEST) == (404, reason)


async def test_no_subscription_makes_a_partition_that_the_topic_does_not_have(http):
    await http("PUT", f"{T}/p/partitions", 2)
    assert await http("PUT", f"{T}/p-partition-7/subscription/s", EARLIEST) == (
        412,
        "Topic does not exist and cannot be auto-created",
    )


async def test_a_subscription_is_made_on_the_partitions_that_lack_it(http):
    await http("PUT", f"{T}/p/partitions", 2)
    assert await http("PUT", f"{T}/p-partition-1/subscription/s", EARLIEST) == (204, None)
    assert await http("PUT", f"{T}/p/subscription/s", EARLIEST) == (204, None)
    assert await http("GET", f"{T}/p-partition-0/subscriptions") == (200, ["s"])
    assert await http("PUT", f"{T}/p/subscription/s", EARLIEST) == (
        409,
        "Subscription already exists for topic",
    )


async def test_reset_to_a_time_says_which_partition_lacks_the_subscription(http):
    await http("PUT", f"{T}/p/partitions", 2)
    await http("PUT", f"{T}/p-partition-1/subscription/s", EARLIEST)
    assert await http("POST", f"{T}/p/subscription/s/resetcursor/0") == (
        404,
        f"Subscription s not found for topic {FULL}/p-partition-0",
    )


@pytest.mark.parametrize("count", [100_001, 2**31 - 1, 2**31, 10**300])
async def test_a_list_of_topics_cannot_be_made_endless_by_one_number(http, count):
    status, reason = await http("PUT", f"{T}/p/partitions", count)
    assert (status, reason) == (
        406,
        "Number of partitions should be less than or equal to 100000: "
        "a namespace has room for 100000",
    )
    assert await http("PUT", f"{T}/p/partitions", 2) == (204, None)
    assert (await http("POST", f"{T}/p/partitions", count))[0] == 406
    assert (await http("PUT", f"{T}/q/partitions", 99_999))[0] == 406
    assert await http("GET", T) == (200, [f"{FULL}/p-partition-{index}" for index in range(2)])


async def test_a_forced_deletion_leaves_no_partition_that_a_client_made_again(
    http, broker, nursery
):
    await http("POST", "namespaces/public/default/autoTopicCreation", {})
    await http("PUT", f"{T}/p/partitions", 4)
    topic = TopicName.parse(f"{FULL}/p")

    async def come_back(partition):
        while True:
            with suppress(BrokerError):
                await broker.service.get_or_load_topic(partition, create=True)
            await trio.lowlevel.checkpoint()

    for index in range(4):
        nursery.start_soon(come_back, topic.partition(index))
    await eventually(lambda: len(broker.service.topics) == 4)
    assert await http("DELETE", f"{T}/p/partitions?force=true") == (204, None)
    assert await http("GET", T) == (200, [])
    assert await http("GET", f"{T}/partitioned") == (200, [])
    nursery.cancel_scope.cancel()


async def test_a_subscription_that_is_to_be_replicated_stays_so(broker, http):
    assert await http("PUT", f"{T}/a") == (204, None)
    topic = await broker.service.get_or_load_topic(TopicName.parse("a"), create=False)

    async def is_replicated():
        _, stats = await http("GET", f"{T}/a/stats")
        found = stats["subscriptions"]["s"]
        assert found["replicated"] == found["isReplicated"]
        return found["isReplicated"]

    async def subscribe(consumer_id, replicated):
        request = SubscriptionRequest("s", replicated=replicated)
        subscription = await topic.open_subscription(request)
        consumer = Consumer(consumer_id, "c", FakeSession(), SHARED)
        topic.attach_consumer(subscription, consumer, request)
        subscription.remove_consumer(consumer)

    await subscribe(1, replicated=False)
    assert not await is_replicated()
    await subscribe(2, replicated=True)
    await subscribe(3, replicated=False)
    assert await is_replicated()
    assert await http("PUT", f"{T}/a/unload") == (204, None)
    assert (await http("GET", f"{T}/a/subscriptions")) == (200, ["s"])
    assert await is_replicated()


async def test_names_of_subscriptions_are_verified_strictly_where_that_is_wanted(broker, http):
    assert await http("PUT", f"{T}/a") == (204, None)
    broker.service.services.config = dataclasses.replace(
        broker.service.config, strictlyVerifySubscriptionName=True
    )
    broker.admin.config = broker.service.config
    topic = await broker.service.get_or_load_topic(TopicName.parse("a"), create=False)
    for name, path in (("s/t", "s%2Ft"), ("ä", "%C3%A4")):
        with pytest.raises(ProducerBusy, match="strictlyVerifySubscriptionName"):
            topic.check_subscription_name(name)
        status, reason = await http("PUT", f"{T}/a/subscription/{path}")
        assert (status, "strictlyVerifySubscriptionName" in reason) == (400, True)
    topic.check_subscription_name("a-Z=0:._9")
    assert await http("PUT", f"{T}/a/subscription/a-Z=0:._9") == (204, None)
