"""One cluster of real Pulsar and Vela under load, whose members are replaced one after the other.

Stock clients know the addresses of both places from the beginning. A member of the other make takes
the place of one that has stopped: the ports of a broker, the port and directories of a bookie.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import pulsar
import pytest

from compat_tests.oracle.apache_bookie import ApacheBookie
from compat_tests.oracle.distribution import TREE
from compat_tests.oracle.redirects import ask
from compat_tests.oracle.shared_cluster import SharedCluster, shared_cluster
from compat_tests.oracle.steady_consumer import SteadyConsumer, steady_consumer
from compat_tests.oracle.steady_load import (
    SteadyLoad,
    check_nothing_lost,
    quiet_client,
    received,
    steady_load,
    wait_until,
)
from compat_tests.oracle.vela_autorecovery import VelaAutorecovery
from compat_tests.oracle.vela_bookie import VelaBookie

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from compat_tests.oracle.shared_cluster import Bookie, Broker, Make

NAMESPACE = "public/mixed"
BUNDLES = 16
SESSION_MS = "10000"
"""How long a broker that was killed keeps its topics, where brokers are killed."""
KEYS = {
    "acknowledgmentAtBatchIndexLevelEnabled": "true",
    "systemTopicEnabled": "true",
    "topicLevelPoliciesEnabled": "true",
    "brokerDeleteInactiveTopicsEnabled": "false",
    # A machine that runs both makes and their clients is always overloaded.
    "loadBalancerBrokerOverloadedThresholdPercentage": "1000",
    "loadBalancerSheddingEnabled": "false",
    "bookkeeperClientTimeoutInSeconds": "5",
}
EARLIEST = pulsar.InitialPosition.Earliest
TYPES = (
    pulsar.ConsumerType.Exclusive,
    pulsar.ConsumerType.Failover,
    pulsar.ConsumerType.Shared,
    pulsar.ConsumerType.KeyShared,
)


def make_namespace(broker: Broker) -> None:
    """One whose messages are kept, and whose producers are deduplicated."""
    path = f"/admin/v2/namespaces/{NAMESPACE}"
    keep = {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}
    for method, rest, body in (
        ("PUT", "", {"bundles": {"numBundles": BUNDLES}}),
        ("POST", "/retention", keep),
        ("POST", "/deduplication", True),
    ):
        status, answer = ask(broker, method, path + rest, body)
        assert status in (200, 204), (rest, status, answer)


def owner_of(cluster: SharedCluster, topic: str, asked: Broker) -> Broker:
    """The broker that owns a topic, if this one is asked by HTTP."""
    status, answer = ask(asked, "GET", f"/lookup/v2/topic/persistent/{NAMESPACE}/{topic}")
    assert status == 200, answer
    return cluster.broker_at(answer["brokerUrl"])


def topics_on(cluster: SharedCluster, broker: Broker, prefix: str, count: int) -> list[str]:
    """So many topics of this broker, which both name as the owner."""
    found = []
    for number in range(200):
        topic = f"{prefix}-{number}"
        owners = {owner_of(cluster, topic, asked).web_url for asked in cluster.running}
        assert len(owners) == 1, (topic, owners)
        if owners == {broker.web_url}:
            found.append(topic)
            if len(found) == count:
                return found
    raise AssertionError(f"{broker.name} owns too few topics")


def check_members(cluster: SharedCluster) -> None:
    """Every broker names all of them, and the same leader."""
    ids = sorted(broker.broker_id for broker in cluster.running)
    leaders = set()
    for broker in cluster.running:
        wait_until(lambda broker=broker: sorted(ask(broker, "GET", "/admin/v2/brokers")[1]) == ids)
        leaders.add(ask(broker, "GET", "/admin/v2/brokers/leaderBroker")[1]["brokerId"])
    assert len(leaders) == 1
    assert leaders <= set(ids)


def check_lookups(cluster: SharedCluster, mark: str) -> None:
    """A client that knows one broker only reaches the topics of every broker, also new ones."""
    check_members(cluster)
    for number, asked in enumerate(cluster.running):
        for owner in cluster.running:
            (topic,) = topics_on(cluster, owner, f"lookup-{mark}-{number}", 1)
            name = f"persistent://{NAMESPACE}/{topic}"
            for url in (asked.service_url, asked.web_url):
                client = quiet_client(url)
                consumer = client.subscribe(name, "s", initial_position=EARLIEST)
                client.create_producer(name).send(b"x")
                message = consumer.receive(30_000)
                assert message.data() == b"x"
                consumer.acknowledge(message)
                client.close()
            status, stats = ask(asked, "GET", f"/admin/v2/persistent/{NAMESPACE}/{topic}/stats")
            assert (status, stats["msgInCounter"]) == (200, 2)


class Line:
    """One topic with its producer and its consumer."""

    def __init__(self, topic: str, load: SteadyLoad, consumer: SteadyConsumer) -> None:
        self.topic = topic
        self.load = load
        self.consumer = consumer


class Traffic:
    """Producers and consumers on several topics."""

    def __init__(self, lines: list[Line]) -> None:
        self.lines = lines

    def goes_on(self) -> None:
        """Every producer gets receipts for what it sends now, and every consumer messages."""
        before = [len(line.consumer.numbers) for line in self.lines]
        for line in self.lines:
            line.load.wait_for_more()
        for line, count in zip(self.lines, before, strict=True):
            wait_until(lambda line=line, count=count: len(line.consumer.numbers) > count + 10)

    def check(self, client: pulsar.Client) -> None:
        """All clients survived, nothing is lost or out of order, and nothing is there twice."""
        for line in self.lines:
            line.load.stop()
            line.consumer.wait_for_all(line.load)
            line.consumer.check()
            numbers = received(client, line.topic, len(line.load.acknowledged))
            check_nothing_lost(line.load, numbers)
            assert len(numbers) == len(set(numbers)), "deduplication let a message in twice"


@contextmanager
def traffic(client: pulsar.Client, topics: list[str]) -> Iterator[Traffic]:
    """For the duration of the block, with a type of subscription after the other."""
    with ExitStack() as stack:
        lines = []
        for number, topic in enumerate(topics):
            name = f"persistent://{NAMESPACE}/{topic}"
            kind = TYPES[number % len(TYPES)]
            consumer = stack.enter_context(steady_consumer(client, name, kind))
            load = stack.enter_context(steady_load(client, name, producer_name=f"of-{topic}"))
            lines.append(Line(name, load, consumer))
        yield Traffic(lines)


def spread(cluster: SharedCluster) -> None:
    """Have the leader assign all bundles again, now that there are more brokers."""
    status, answer = ask(cluster.running[0], "PUT", f"/admin/v2/namespaces/{NAMESPACE}/unload")
    assert status == 204, answer


@contextmanager
def mixed_cluster(directory: Path, **more: str) -> Iterator[SharedCluster]:
    """Storage on two bookies of Pulsar and one of Vela."""
    bookies: tuple[Make, ...] = ("pulsar", "pulsar", "vela")
    with shared_cluster(directory, KEYS | more, bookies=bookies, quorums="2/2/2") as made:
        yield made


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[SharedCluster]:
    with mixed_cluster(tmp_path) as made:
        yield made


def balanced(cluster: SharedCluster, *, per_broker: int) -> list[str]:
    """So many topics of each broker."""
    return [
        topic
        for broker in cluster.running
        for topic in topics_on(cluster, broker, f"of-{broker.name}", per_broker)
    ]


def check_members_take_each_others_places(
    cluster: SharedCluster, *, per_broker: int, rounds: int, end: Callable[[Broker], object]
) -> None:
    """Begins with real Pulsar as the leader and Vela beside it. Each round ends with this again."""
    make_namespace(cluster.start_broker("pulsar", 0))
    cluster.start_broker("vela", 1)
    check_lookups(cluster, "real-leads")
    client: Any = quiet_client(cluster.service_url)
    with traffic(client, balanced(cluster, per_broker=per_broker)) as running:
        running.goes_on()
        for number in range(rounds):
            real, vela = number % 2, (number + 1) % 2
            end(cluster.brokers[real])
            running.goes_on()
            cluster.start_broker("vela", real)
            spread(cluster)
            running.goes_on()
            end(cluster.brokers[vela])
            running.goes_on()
            cluster.start_broker("pulsar", vela)
            spread(cluster)
            running.goes_on()
            check_lookups(cluster, f"vela-leads-{number}")
        for place, make in ((0, "vela"), (1, "vela"), (2, "pulsar")):
            cluster.replace_bookie(place, make)
            running.goes_on()
        running.check(client)
    client.close()


def test_members_of_both_makes_take_each_others_places_under_load(cluster: SharedCluster) -> None:
    check_members_take_each_others_places(
        cluster, per_broker=2, rounds=1, end=lambda broker: broker.stop()
    )


@pytest.mark.slow
def test_killed_members_are_replaced_by_the_other_make(tmp_path: Path) -> None:
    with mixed_cluster(tmp_path, metadataStoreSessionTimeoutMillis=SESSION_MS) as cluster:
        check_members_take_each_others_places(
            cluster, per_broker=8, rounds=3, end=lambda broker: broker.kill()
        )


@pytest.mark.slow
@pytest.mark.parametrize("make", ["pulsar", "vela"])
def test_bookies_of_one_make_leave_for_those_of_the_other(
    cluster: SharedCluster, make: Make, tmp_path: Path
) -> None:
    """Their ledgers are copied to the new ones, and nothing is left of them."""
    make_namespace(cluster.start_broker("pulsar", 0))
    cluster.start_broker("vela", 1)
    recovery = VelaAutorecovery(tmp_path / "recovery", "recovery", cluster.zookeeper.hosts)
    recovery.start()
    client: Any = quiet_client(cluster.service_url)
    try:
        with traffic(client, balanced(cluster, per_broker=2)) as running:
            running.goes_on()
            leaving = [bookie for bookie in cluster.bookies if bookie.name != OF_MAKE[make]]
            for bookie in leaving:
                cluster.add_bookie(make)
                bookie.stop()
                running.goes_on()
                decommission(recovery, bookie)
                shutil.rmtree(bookie.directory)
                running.goes_on()
            running.check(client)
        client.close()
    finally:
        recovery.kill()


OF_MAKE: dict[Make, str] = {"pulsar": ApacheBookie.name, "vela": VelaBookie.name}


def decommission(recovery: VelaAutorecovery, bookie: Bookie) -> None:
    """Have everything copied that a stopped bookie has."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "cli", "bookie-decommission"),
            *("--config", str(recovery.configuration_path)),
            *("--bookie-id", bookie.bookie_id),
        ],
        cwd=TREE,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
