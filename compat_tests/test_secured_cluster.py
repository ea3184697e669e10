"""Two brokers, three bookies and ZooKeeper, none of which serves a stranger: clients, tools,
redirects, a broker and a bookie that are lost, and a broadcast over both brokers."""

from __future__ import annotations

import socket
import threading
from functools import partial

import pulsar
import pytest
import trio
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError

from compat_tests.authorized_servers import token
from compat_tests.ledger_writing import ENTRIES, a_side
from compat_tests.oracle.secured_cluster import (
    ADMIN,
    APPLICATION,
    BROKER,
    STRANGER,
    SecuredCluster,
)
from compat_tests.oracle.steady_load import steady_load, wait_until
from ledgers.remote.start_tls import StartTls
from metadata.zookeeper_access import read_access
from protocol.bookkeeper import messages as m
from protocol.bookkeeper import v2
from protocol.bookkeeper.packets import ResponseDecoder
from security.tls_client import TlsClientContexts

pytestmark = pytest.mark.slow

BROADCAST = {"vela.broadcast": "true"}
NAMESPACE = "public/default"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    made = SecuredCluster(tmp_path_factory.mktemp("secured"))
    try:
        made.start()
        yield made
    finally:
        made.kill()


@pytest.fixture(scope="module")
def granted(cluster):
    """The stock administrator's tool lets the application in."""
    status, printed = cluster.pulsar_admin(
        *("namespaces", "grant-permission", NAMESPACE),
        *("--role", APPLICATION, "--actions", "produce,consume"),
    )
    assert status == 0, printed
    return cluster


class Listener:
    """A consumer that acknowledges everything at once."""

    def __init__(self, client, topic, name):
        self._lock = threading.Lock()
        self.received = []
        self._consumer = client.subscribe(
            topic,
            "everybody",
            consumer_name=name,
            message_listener=self._on_message,
            properties=BROADCAST,
        )

    def _on_message(self, consumer, message):
        with self._lock:
            self.received.append(int(message.data()))
        consumer.acknowledge_cumulative(message)


def test_clients_are_sent_to_the_broker_that_owns_a_topic(granted):
    status, printed = granted.pulsar_admin(
        "topics", "create-partitioned-topic", f"{NAMESPACE}/orders", "-p", "8"
    )
    assert status == 0, printed
    names = [f"persistent://{NAMESPACE}/orders-partition-{number}" for number in range(8)]
    for _turn in range(20):
        if len({granted.owner_of(name).broker_id for name in names}) == 2:
            break
        granted.ask(granted.brokers[0], "PUT", f"/admin/v2/namespaces/{NAMESPACE}/unload")
    else:
        raise AssertionError("one broker owns all partitions")
    client = granted.client(APPLICATION)
    try:
        consumer = client.subscribe(f"{NAMESPACE}/orders", "all", pulsar.ConsumerType.Shared)
        producer = client.create_producer(f"{NAMESPACE}/orders")
        for number in range(40):
            producer.send(b"%d" % number)
        received = {int(consumer.receive(30_000).data()) for _ in range(40)}
        assert received == set(range(40))
    finally:
        client.close()
    # Each broker asks the other about its partitions.
    for broker in granted.brokers:
        path = f"/admin/v2/persistent/{NAMESPACE}/orders/partitioned-stats?perPartition=true"
        status, stats = granted.ask(broker, "GET", path)
        assert (status, len(stats["partitions"])) == (200, 8)
        assert stats["msgInCounter"] == 40
    status, printed = granted.pulsar_admin("topics", "stats", names[0])
    assert status == 0, printed


def test_strangers_are_refused_by_brokers(granted):
    for role, error in (
        (STRANGER, pulsar.AuthorizationError),
        ("", pulsar.Timeout),  # it connects again and again
    ):
        client = granted.client(role)
        try:
            with pytest.raises(error):
                client.create_producer(f"{NAMESPACE}/strange")
        finally:
            client.close()
        status, _ = granted.ask(granted.brokers[0], "GET", "/admin/v2/tenants", role=role)
        assert status in (401, 403)


def test_strangers_are_refused_by_bookies_and_by_zookeeper(granted):
    body = bytes(32)
    requests = (
        v2.encode_add_request_head(len(body), bytes(20)) + body,
        v2.encode_read_request(0, 0),
        v2.encode_read_request(0, 0, flags=m.FENCING, master_key=bytes(20)),
    )
    for bookie in granted.bookies:
        with socket.create_connection(("127.0.0.1", bookie.port), timeout=20) as stranger:
            decoder = ResponseDecoder(2)
            for request in requests:
                stranger.sendall(request)
                answers = []
                while not answers:
                    data = stranger.recv(65536)
                    assert data
                    answers = decoder.feed(data)
                assert [answer.status for answer in answers] == [m.UNAUTHORIZED]
    client = KazooClient(granted.zookeeper.hosts)
    client.start()
    try:
        for path in ("/secured", "/secured/ledgers", "/secured/loadbalance/brokers"):
            with pytest.raises(NoAuthError):
                client.get_children(path)
        with pytest.raises(NoAuthError):
            client.create("/secured/ledgers/cookies/mine", b"")
    finally:
        client.stop()
        client.close()


def test_the_tool_for_ledgers_has_the_same_credentials(granted):
    store = ("--metadata-store", f"zk:{granted.hosts}")
    configured = ("--config", str(granted.tool_configuration))
    client = granted.client(APPLICATION)
    try:
        topic = f"persistent://{NAMESPACE}/looked-at"
        client.create_producer(topic).send(b"seen by the tool")
    finally:
        client.close()
    shown = granted.vela("ledger", "topic", topic, *store, *configured)
    assert shown.returncode == 0, shown.stderr
    ledger_id = next(
        word.partition("=")[2] for word in shown.stdout.split() if word.startswith("ledger=")
    )
    read = ("ledger", "entries", ledger_id, *store)
    shown = granted.vela(*read, *configured)
    assert shown.returncode == 0, shown.stderr
    assert f"ledger={ledger_id}" in shown.stdout
    shown = granted.vela(
        "ledger", "list", "--metadata-store", f"zk:{granted.zookeeper.hosts}/secured"
    )
    assert "no permission" in shown.stderr


def test_a_broadcast_is_shared_by_both_brokers(granted):
    first, second = granted.brokers
    source = granted.topic_on(first, "source")
    client = granted.client(APPLICATION)
    try:
        client.create_producer(source).close()
        shadow = granted.topic_on(second, "shadow")
        assert granted.owner_of(source) is first
        path = f"/admin/v2/{shadow.replace('://', '/')}"
        status, answer = granted.ask(second, "PUT", path, {"PULSAR.SHADOW_SOURCE": source})
        assert status < 300, answer
        listeners = [
            Listener(client, topic, f"{topic}-{number}")
            for topic in (source, shadow)
            for number in range(3)
        ]
        with steady_load(client, source) as load:
            load.wait_for_more(100)
            load.stop()
            assert not load.failed
        wait_until(lambda: all(len(set(each.received)) >= load.sent for each in listeners))
        for each in listeners:
            assert each.received == sorted(each.received)
    finally:
        client.close()


def test_topics_of_a_broker_that_is_killed_are_served_by_the_other(granted):
    first, second = granted.brokers
    topic = granted.topic_on(second, "handed-over")
    client = granted.client(APPLICATION)
    try:
        consumer = client.subscribe(topic, "all")
        with steady_load(client, topic) as load:
            load.wait_for_more(50)
            second.kill()
            wait_until(lambda: granted.owner_of(topic, first) is first)
            load.wait_for_more(50)
            load.stop()
            assert not load.failed
        received = set()
        while len(received) < load.sent:
            message = consumer.receive(30_000)
            received.add(int(message.data()))
            consumer.acknowledge(message)
    finally:
        client.close()
        second.start()


async def test_copies_of_a_bookie_that_is_lost_are_replaced(granted):
    contexts = TlsClientContexts(granted.certificates.client_rules())
    access = read_access(granted.access)
    async with a_side(granted.hosts, partial(StartTls, contexts), access) as side:
        with trio.fail_after(60):
            while len(side.pool.writable) < 3:  # noqa: ASYNC110 - processes register
                await trio.sleep(0.1)
        ledger_ids = [await side.a_ledger(sizes=(2, 2, 2)) for _ in range(4)]
        lost = granted.bookies[0]
        await trio.to_thread.run_sync(lost.kill)
        await side.until_complete(ledger_ids, lost.bookie_id)
    assert ENTRIES


def test_no_credential_is_written_anywhere(granted):
    logs = granted.logs()
    for secret in (token(BROKER), token(ADMIN), token(APPLICATION), "sesame"):
        assert secret not in logs
    assert "credentials for other brokers" not in logs
