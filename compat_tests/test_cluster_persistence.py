"""Persistence policies and groups of bookies in a cluster of Vela: which bookies get what, and what
a topic does while the bookies of a cursor's ledger are away."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pulsar
import pytest

from compat_tests.oracle.vela_cluster import VelaCluster, cluster_of

if TYPE_CHECKING:
    from pathlib import Path

    from compat_tests.oracle.vela_bookie import VelaBookie
    from compat_tests.oracle.vela_broker import VelaBroker
    from compat_tests.oracle.zookeeper_server import ZooKeeperServer

NAMESPACE = "/admin/v2/namespaces/public/default"
WAIT_SECONDS = 120.0


def ask(broker: VelaBroker, method: str, path: str, body: Any = None) -> Any:
    status, answer = broker.http(method, path, body)
    assert status in (200, 204), (method, path, status, answer)
    return answer


def newest_ensemble(broker: VelaBroker, topic: str) -> tuple[int, int, int, set[str]]:
    path = f"/admin/v2/persistent/public/default/{topic}/ledgerLayouts"
    newest = ask(broker, "GET", path)["ledgers"][-1]
    bookies = set(newest["ensembles"][-1]["bookies"])
    return newest["ensembleSize"], newest["writeQuorumSize"], newest["ackQuorumSize"], bookies


def copies(ensemble: int, write: int, ack: int) -> dict[str, object]:
    return {
        "bookkeeperEnsemble": ensemble,
        "bookkeeperWriteQuorum": write,
        "bookkeeperAckQuorum": ack,
        "managedLedgerMaxMarkDeleteRate": 20.0,
    }


def put_into_group(broker: VelaBroker, group: str, bookies: list[VelaBookie]) -> list[str]:
    for bookie in bookies:
        info = {"rack": "/rack", "hostname": "127.0.0.1"}
        path = f"/admin/v2/bookies/racks-info/{bookie.bookie_id}?group={group}"
        ask(broker, "POST", path, info)
    return [bookie.bookie_id for bookie in bookies]


def until_answered(broker: VelaBroker, path: str, wanted: int) -> None:
    """Until a request gets this status."""
    end = time.monotonic() + WAIT_SECONDS
    while (found := broker.http("GET", path)[0]) != wanted:
        assert time.monotonic() < end, found
        time.sleep(0.2)


def test_policies_choose_bookies_and_silent_bookies_of_a_cursor_refuse_its_topic(
    tmp_path: Path, zookeeper: ZooKeeperServer
) -> None:
    with cluster_of(tmp_path, zookeeper, brokers=0, bookies=4, quorums="2/2/2") as cluster:
        cluster.keys |= {
            "bookkeeperClientIsolationGroups": "g2",
            "bookkeeperClientTimeoutInSeconds": 5,
            "managedLedgerMinLedgerRolloverTimeMinutes": 0,
            "managedLedgerMaxUnackedRangesToPersistInMetadataStore": 0,
        }
        broker = cluster.add_broker()
        of_entries = put_into_group(broker, "g1", cluster.bookies[:2])
        of_cursors = put_into_group(broker, "g2", cluster.bookies[2:])
        _entries_go_where_they_shall(broker, of_entries, of_cursors)
        _a_topic_may_say_otherwise_than_its_namespace(broker)
        _a_stop_of_the_broker_and_bookies(cluster, broker)


def _entries_go_where_they_shall(broker: VelaBroker, g1: list[str], g2: list[str]) -> None:
    ask(broker, "PUT", "/admin/v2/persistent/public/default/t")
    assert newest_ensemble(broker, "t") == (2, 2, 2, set(g2))
    ask(broker, "POST", f"{NAMESPACE}/persistence", copies(2, 2, 1))
    group = {"bookkeeperAffinityGroupPrimary": "g1"}
    ask(broker, "POST", f"{NAMESPACE}/persistence/bookieAffinity", group)
    assert newest_ensemble(broker, "t") == (2, 2, 2, set(g2)), "until the next ledger"
    ask(broker, "PUT", "/admin/v2/persistent/public/default/t/unload")
    until_answered(broker, "/admin/v2/persistent/public/default/t/stats", 200)
    assert newest_ensemble(broker, "t") == (2, 2, 1, set(g1))
    status, reason = broker.http("POST", f"{NAMESPACE}/persistence", copies(1, 2, 1))
    assert (status, "Bookkeeper Ensemble (1)" in reason["reason"]) == (400, True)


def _a_topic_may_say_otherwise_than_its_namespace(broker: VelaBroker) -> None:
    topic = "/admin/v2/persistent/public/default/own"
    ask(broker, "PUT", topic)
    ask(broker, "POST", f"{topic}/persistence", copies(1, 1, 1))
    for wanted in ((1, 1, 1), (2, 2, 1)):
        ask(broker, "PUT", f"{topic}/unload")
        until_answered(broker, f"{topic}/stats", 200)
        assert newest_ensemble(broker, "own")[:3] == wanted
        ask(broker, "DELETE", f"{topic}/persistence")
    ask(broker, "DELETE", topic)


def _a_stop_of_the_broker_and_bookies(cluster: VelaCluster, broker: VelaBroker) -> None:
    client = pulsar.Client(broker.service_url)
    consumer = client.subscribe("t", "s", initial_position=pulsar.InitialPosition.Earliest)
    producer = client.create_producer("t")
    for number in range(20):
        producer.send(b"%d" % number)
    messages = [consumer.receive(10_000) for _ in range(20)]
    for number in (0, 1, 2, 5, 7, 9):
        consumer.acknowledge(messages[number])
    stats = "/admin/v2/persistent/public/default/t/internalStats"
    end = time.monotonic() + WAIT_SECONDS
    # The first store makes the ledger, so the record in ZooKeeper is that of an older position.
    while ask(broker, "GET", stats)["cursors"]["s"]["cursorLedgerLastEntry"] < 0:
        assert time.monotonic() < end
        time.sleep(0.05)
    for number in (3, 4, 11):
        consumer.acknowledge(messages[number])
    while "11" not in str(ask(broker, "GET", stats)["cursors"]["s"]["individuallyDeletedMessages"]):
        assert time.monotonic() < end
        time.sleep(0.05)
    broker.stop()  # the position has a hole, so it goes to the ledger
    for bookie in cluster.bookies[2:]:
        bookie.kill()
    client.close()

    broker.start()
    until_answered(broker, stats, 503)
    client = pulsar.Client(broker.service_url, operation_timeout_seconds=5)
    with pytest.raises(pulsar.PulsarException):
        client.subscribe("t", "s")
    for bookie in cluster.bookies[2:]:
        bookie.start()
    until_answered(broker, stats, 200)
    consumer = client.subscribe("t", "s")
    left = [consumer.receive(10_000).data() for _ in range(20 - 9)]
    assert left == [b"%d" % number for number in (6, 8, 10, *range(12, 20))]
    client.close()
