"""Broadcasts over several brokers: real ZooKeeper, a bookie, brokers that are killed, the stock
client. What a consumer acknowledged does not come back out of order, and what it did not
acknowledge comes."""

from __future__ import annotations

import uuid

import pulsar
import pytest

from compat_tests.oracle.shadows import make_shadow, owner_of, spread_bundles, topic_on
from compat_tests.oracle.steady_load import quiet_client, steady_load, wait_until
from compat_tests.oracle.vela_cluster import cluster_of

CONSUMERS = 5
"""Of each share."""
BROADCAST = {"vela.broadcast": "true"}


@pytest.fixture(scope="module")
def cluster(zookeeper, tmp_path_factory):
    """Four brokers: one owns the source, the others serve a share each. The last test kills two."""
    directory = tmp_path_factory.mktemp("cluster")
    with cluster_of(directory, zookeeper, brokers=4) as running:
        yield running


class Listener:
    """One named consumer of a broadcast, which acknowledges everything at once."""

    def __init__(self, client, topic, name):
        self.name = name
        self.received = []
        self.wrong = []
        self._consumer = client.subscribe(
            topic,
            "everybody",
            pulsar.ConsumerType.Exclusive,
            consumer_name=name,
            message_listener=self._on_message,
            properties=BROADCAST,
        )

    def _on_message(self, consumer, message):
        number = int(message.data())
        newest = max(self.received, default=-1)
        if number > newest + 1:
            self.wrong.append(f"{number} after {newest}")
        self.received.append(number)
        consumer.acknowledge_cumulative(message)

    def has(self, count):
        return len(set(self.received)) >= count


def shares_of(cluster, client, consumers=CONSUMERS):
    """The source on the first broker, a shadow on each other one, and their consumers. Returns the
    name of the source, (shadow, broker) pairs, and the consumers."""
    spread_bundles(cluster)
    first, *others = cluster.brokers
    unique = uuid.uuid4().hex[:8]
    source = topic_on(cluster, first, f"source-{unique}")
    client.create_producer(source).close()
    shadows = []
    for number, broker in enumerate(others):
        shadow = topic_on(cluster, broker, f"shadow-{unique}-{number}")
        make_shadow(broker, shadow, source)
        shadows.append((shadow, broker))
    listeners = [
        Listener(client, topic, f"{topic}-{number}")
        for topic in (source, *(shadow for shadow, _ in shadows))
        for number in range(consumers)
    ]
    return source, shadows, listeners


def check_everybody_has(listeners, count):
    wait_until(lambda: all(each.has(count) for each in listeners))
    for each in listeners:
        assert not each.wrong, (each.name, each.wrong[:5])
        assert sorted(set(each.received)) == list(range(count))


def backlog(broker, topic):
    path = f"/admin/v2/persistent/{topic.split('://')[1]}/stats"
    status, stats = broker.http("GET", path)
    assert status == 200, stats
    return stats["subscriptions"]["everybody"]["msgBacklog"]


def is_moved(cluster, topic, before):
    """Whether another broker owns the topic."""
    asked = next(each for each in cluster.brokers if each.is_running() and each is not before)
    try:
        return owner_of(cluster, topic, asked) not in (None, before)
    except OSError:
        return False  # sent on to the leader, which may be the one that stands still


def test_an_absent_consumer_of_a_share_holds_the_messages_of_the_source(cluster):
    client = quiet_client(cluster.service_url, operation_timeout_seconds=60)
    try:
        source, [(shadow, _), *_], _ = shares_of(cluster, client, consumers=0)
        properties = {"properties": BROADCAST, "consumer_name": "reader"}
        consumer = client.subscribe(shadow, "everybody", **properties)
        producer = client.create_producer(source, batching_enabled=False)
        for number in range(10):
            producer.send(b"%d" % number)
        for number in range(4):
            message = consumer.receive(30_000)
            assert message.data() == b"%d" % number
            consumer.acknowledge(message)
        owner = owner_of(cluster, source)
        wait_until(lambda: backlog(owner, source) == 6)
        consumer.close()
        assert backlog(owner, source) == 6
        consumer = client.subscribe(shadow, "everybody", **properties)
        for number in range(4, 10):
            message = consumer.receive(30_000)
            assert message.data() == b"%d" % number
            consumer.acknowledge(message)
        wait_until(lambda: backlog(owner, source) == 0)
    finally:
        client.close()


def test_a_follower_that_was_stopped_beyond_its_session_does_no_harm(cluster):
    client = quiet_client(cluster.service_url, operation_timeout_seconds=60)
    try:
        source, shadows, listeners = shares_of(cluster, client, consumers=2)
        shadow, follower = shadows[0]
        with steady_load(client, source) as load:
            load.wait_for_more(50)
            follower.pause()
            try:
                wait_until(lambda: is_moved(cluster, shadow, follower))
                load.wait_for_more(50)
            finally:
                follower.resume()
            load.wait_for_more(50)
            load.stop()
            assert not load.failed
            check_everybody_has(listeners, load.sent)
    finally:
        client.close()
        # So that every broker owns topics again.
        cluster.brokers[0].http("PUT", "/admin/v2/namespaces/public/default/unload")


def test_everybody_gets_everything_in_order_whichever_broker_is_killed(cluster):
    client = quiet_client(cluster.service_url, operation_timeout_seconds=60)
    try:
        source, shadows, listeners = shares_of(cluster, client)
        with steady_load(client, source) as load:
            load.wait_for_more(100)
            shadows[0][1].kill()  # a follower
            load.wait_for_more(50)
            wait_until(lambda: is_moved(cluster, *shadows[0]))
            load.wait_for_more(50)
            cluster.brokers[0].kill()  # the owner of the source
            load.wait_for_more(100)
            load.stop()
            assert not load.failed
            check_everybody_has(listeners, load.sent)
        wait_until(lambda: backlog(owner_of(cluster, source), source) == 0)
    finally:
        client.close()
