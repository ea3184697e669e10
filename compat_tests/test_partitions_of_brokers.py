"""Partitioned topics with partitions on several brokers, administered through any of them."""

import pulsar
import pytest

from compat_tests.oracle.redirects import ask
from compat_tests.oracle.shadows import owner_of
from compat_tests.oracle.steady_load import quiet_client, wait_until
from compat_tests.oracle.vela_cluster import cluster_of

NAMESPACE = "public/default"


def persistent(topic, rest=""):
    return f"/admin/v2/persistent/{NAMESPACE}/{topic}{rest}"


@pytest.fixture(scope="module")
def pair(zookeeper, tmp_path_factory):
    """Two brokers and a bookie."""
    with cluster_of(tmp_path_factory.mktemp("pair"), zookeeper, brokers=2) as cluster:
        yield cluster


def clients_of(broker, topic):
    """Numbers of producers and of consumers of `s`: both are away for a moment after an unload."""
    stats = broker.http("GET", persistent(topic, "/partitioned-stats"))[1]
    return len(stats["publishers"]), len(stats["subscriptions"]["s"]["consumers"])


def test_a_partitioned_topic_is_administered_through_any_broker(pair):
    topic, count = "parted", 8
    one, two = pair.brokers
    assert ask(one, "PUT", persistent(topic, "/partitions"), count)[0] == 204
    names = [f"persistent://{NAMESPACE}/{topic}-partition-{index}" for index in range(count)]
    assert {owner_of(pair, f"{topic}-partition-{index}") for index in range(count)} == {one, two}
    client = quiet_client(two.service_url)
    consumer = client.subscribe(topic, "s")
    producer = client.create_producer(
        topic, message_routing_mode=pulsar.PartitionsRoutingMode.RoundRobinDistribution
    )
    for number in range(5 * count):
        producer.send(b"%d" % number)
    assert one.http("GET", persistent(topic, "/partitioned-stats"))[1]["msgInCounter"] == 5 * count
    for broker in pair.brokers:
        wait_until(lambda broker=broker: clients_of(broker, topic) == (count, count), 60.0)
        status, stats = broker.http("GET", persistent(topic, "/partitioned-stats"))
        assert status == 200
        assert sorted(stats["partitions"]) == names
        assert stats["subscriptions"]["s"]["msgBacklog"] == 5 * count
        assert stats["metadata"]["partitions"] == count
        owners = {each["ownerBroker"] for each in stats["partitions"].values()}
        assert owners == {one.broker_id, two.broker_id}
        _, short = broker.http("GET", persistent(topic, "/partitioned-stats?perPartition=false"))
        assert short["partitions"] == {}
        _, internal = broker.http("GET", persistent(topic, "/partitioned-internalStats"))
        assert sorted(internal["partitions"]) == names
        assert all(each["numberOfEntries"] == 5 for each in internal["partitions"].values())
        subscription = persistent(topic, "/subscription/other")
        earliest = {"ledgerId": -1, "entryId": -1}
        assert ask(broker, "PUT", subscription, earliest)[0] == 204
        assert ask(broker, "PUT", subscription, earliest)[0] == 409
        assert sorted(broker.http("GET", persistent(topic, "/subscriptions"))[1]) == ["other", "s"]
        assert ask(broker, "POST", f"{subscription}/skip_all")[0] == 204
        _, stats = broker.http("GET", persistent(topic, "/partitioned-stats"))
        assert stats["subscriptions"]["other"]["msgBacklog"] == 0
        assert ask(broker, "DELETE", subscription)[0] == 204
        assert ask(broker, "DELETE", subscription)[0] == 404
        assert ask(broker, "PUT", persistent(topic, "/unload"))[0] == 204
        assert ask(broker, "POST", persistent(topic, "/trim"))[0] == 200
    kept, properties = persistent(topic, "/subscription/kept"), {"team": "green"}
    assert ask(two, "PUT", kept, {**earliest, "properties": properties})[0] == 204
    assert ask(two, "POST", persistent(topic, "/partitions"), count + 4)[0] == 204
    for index in range(count + 4):
        owner = owner_of(pair, f"{topic}-partition-{index}")
        _, stats = owner.http("GET", persistent(f"{topic}-partition-{index}", "/stats"))
        rows = stats["subscriptions"]
        given = {name: row["subscriptionProperties"] for name, row in rows.items()}
        assert given == {"s": {}, "kept": properties}
    assert ask(two, "DELETE", kept)[0] == 204
    status, reason = ask(two, "DELETE", persistent(topic, "/partitions"))
    assert status == 412, reason
    consumer.unsubscribe()
    client.close()
    assert ask(two, "DELETE", persistent(topic, "/partitions"))[0] == 204
    for broker in pair.brokers:
        status, topics = broker.http("GET", f"/admin/v2/persistent/{NAMESPACE}")
        assert not [name for name in topics if f"/{topic}-partition-" in name]
        assert broker.http("GET", persistent(topic, "/partitioned-stats"))[0] == 404
