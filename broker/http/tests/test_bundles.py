"""Requests for bundles in a cluster of several brokers."""

import pytest
import trio

from broker.ground.refusal import not_found, precondition_failed
from broker.peers.broker_address import BrokerAddress
from broker.peers.ownership import Whereabouts
from protocol.topic_name import TopicName

OTHER = BrokerAddress("pulsar://other:6650", "http://other:8080")
BUNDLE = "namespaces/public/default/0x00000000_0x40000000"


class Several:
    """A cluster of this broker and another one, which owns what `found` says."""

    is_leader = True
    owned_bundles = {"public/default/0x00000000_0x40000000": True}

    def __init__(self, broker_id, address):
        self.brokers = {broker_id: address, "other:8080": OTHER}
        self.leader = ("other:8080", "http://other:8080")
        self.found = Whereabouts(address)
        self.done = []

    async def boundaries(self, namespace_name):
        await trio.lowlevel.checkpoint()
        return ["0x00000000", "0x40000000", "0xffffffff"]

    async def owner_of_bundle(self, namespace_name, range_text, *, authoritative=False):
        await trio.lowlevel.checkpoint()
        if range_text != "0x00000000_0x40000000":
            raise precondition_failed("Invalid upper boundary")
        return self.found

    async def chosen_range(self, namespace_name, text):
        await trio.lowlevel.checkpoint()
        if text == "HOT":
            raise not_found("Bundle range HOT not found")
        return "0x00000000_0x40000000" if text == "LARGEST" else text

    async def ownership_status(self):
        await trio.lowlevel.checkpoint()
        return {
            name: {"broker_assignment": "shared", "is_controlled": False, "is_active": is_active}
            for name, is_active in self.owned_bundles.items()
        }

    async def check_health(self, *, as_pulsar_1):
        await trio.lowlevel.checkpoint()
        self.done.append(("check", as_pulsar_1))

    async def unload_bundle(self, *arguments):
        await trio.lowlevel.checkpoint()
        self.done.append(("unload", *arguments))

    async def unload_namespace(self, *arguments):
        await trio.lowlevel.checkpoint()
        self.done.append(("unload", *arguments))

    async def split_bundle(self, *arguments, unload):
        await trio.lowlevel.checkpoint()
        self.done.append(("split", *arguments, unload))


@pytest.fixture
def cluster(broker):
    address = broker.service.ownership.this_broker
    broker.admin.cluster = Several(broker.admin.broker_id, address)
    return broker.admin.cluster


async def test_one_broker_unloads_the_topics_of_a_bundle(http, broker):
    names = [f"t{number}" for number in range(8)]
    for name in names:
        await http("PUT", f"persistent/public/default/{name}")
        await broker.service.get_or_load_topic(TopicName.parse(name), create=False)
    _, told = await http("GET", f"{BUNDLE}/topicHashPositions")
    assert (told["namespace"], told["bundle"]) == ("public/default", "0x00000000_0x40000000")
    inside = told["topicHashPositions"]
    assert inside
    assert all(place < 0x40000000 for place in inside.values())
    assert await http("PUT", f"{BUNDLE}/unload") == (204, None)
    loaded = {f"persistent://public/default/{name}" for name in names}
    assert set(broker.service.topics) & loaded == loaded - set(inside)
    one = next(iter(inside))
    assert (await http("GET", f"{BUNDLE}/topicHashPositions?topics={one}"))[1] == {
        **told,
        "topicHashPositions": {one: inside[one]},
    }


async def test_one_broker_splits_bundles(http):
    assert await http("PUT", f"{BUNDLE}/split") == (204, None)
    texts = ["0x00000000", "0x20000000", "0x40000000", "0x80000000", "0xc0000000", "0xffffffff"]
    bundles = {"boundaries": texts, "numBundles": 5}
    assert await http("GET", "namespaces/public/default/bundles") == (200, bundles)
    assert (await http("GET", "namespaces/public/default"))[1]["bundles"] == bundles
    for range_text, status in (
        ("0x00000000_0x40000000", 412),
        ("HOT", 404),
        ("LARGEST", 404),
        ("nonsense", 412),
    ):
        told = await http("PUT", f"namespaces/public/default/{range_text}/split")
        assert told[0] == status, (range_text, told)
    assert (await http("PUT", f"{BUNDLE}/unload"))[0] == 412
    await http("PUT", "persistent/public/default/t")
    assert await http("PUT", "namespaces/public/default/LARGEST/split") == (204, None)
    other = "namespaces/public/default/0x00000000_0x20000000/split?splitAlgorithmName"
    assert (await http("PUT", f"{other}=odd"))[0] == 412
    assert (await http("PUT", f"{other}=topic_count_equally_divide"))[0] == 412


async def test_bundles_are_unloaded_and_split_by_their_owner(http, cluster):
    bundle = ("public/default", "0x00000000_0x40000000")
    assert await http("PUT", f"{BUNDLE}/unload") == (204, None)
    assert await http("PUT", f"{BUNDLE}/split?unload=true") == (204, None)
    query = "splitAlgorithmName=topic_count_equally_divide"
    assert await http("PUT", f"{BUNDLE}/split?{query}") == (204, None)
    assert await http("PUT", "namespaces/public/default/unload") == (204, None)
    assert cluster.done == [
        ("unload", *bundle),
        ("split", *bundle, "", True),
        ("split", *bundle, "topic_count_equally_divide", False),
        ("unload", "public/default"),
    ]
    assert (await http("PUT", "namespaces/public/default/0x0_0x1/unload"))[0] == 412
    assert (await http("PUT", "namespaces/public/none/0x0_0x1/unload"))[0] == 404


async def test_a_bundle_is_split_that_is_named_by_what_it_has(http, cluster):
    assert await http("PUT", "namespaces/public/default/LARGEST/split") == (204, None)
    assert cluster.done == [("split", "public/default", "0x00000000_0x40000000", "", False)]
    status, answer = await http("PUT", "namespaces/public/default/HOT/split")
    assert (status, answer) == (404, "Bundle range HOT not found")
    assert (await http("PUT", "namespaces/public/default/LARGEST/unload"))[0] == 412


async def test_a_bundle_of_another_broker_is_asked_of_it(http, cluster):
    cluster.found = Whereabouts(OTHER, authoritative=True)
    response = await http.client.put(f"/admin/v2/{BUNDLE}/split?unload=false")
    assert response.status_code == 307
    assert response.headers["location"] == (
        f"http://other:8080/admin/v2/{BUNDLE}/split?unload=false&authoritative=true"
    )


async def test_a_health_check_stores_a_message_of_the_form_that_is_asked_for(http, cluster):
    for query in ("", "?topicVersion=V1", "?topicVersion=V2"):
        assert (await http.client.get(f"/admin/v2/brokers/health{query}")).text == "ok"
    assert (await http.client.get("/admin/v2/brokers/health?topicVersion=V3")).status_code == 404
    assert cluster.done == [("check", True), ("check", True), ("check", False)]


async def test_what_is_said_of_the_cluster(http, broker, cluster):
    own = broker.admin.broker_id
    assert await http("GET", "brokers") == (200, sorted([own, "other:8080"]))
    assert await http("GET", "brokers/standalone") == (200, sorted([own, "other:8080"]))
    assert await http("GET", "brokers/leaderBroker") == (
        200,
        {"serviceUrl": "http://other:8080", "brokerId": "other:8080"},
    )
    assert await http("GET", "namespaces/public/default/bundles") == (
        200,
        {"boundaries": ["0x00000000", "0x40000000", "0xffffffff"], "numBundles": 2},
    )
    status, answer = await http("GET", f"brokers/standalone/{own}/ownedNamespaces")
    assert (status, list(answer)) == (200, list(cluster.owned_bundles))
    response = await http.client.get("/admin/v2/brokers/standalone/other:8080/ownedNamespaces")
    assert response.status_code == 307
    assert response.headers["location"] == (
        "http://other:8080/admin/v2/brokers/standalone/other:8080/ownedNamespaces"
    )
    assert (await http("GET", "brokers/standalone/none:1/ownedNamespaces"))[0] == 404
