"""A standalone broker that becomes a cluster: its metadata in real ZooKeeper, its bookie and two
more, a broker of Vela and then one of Pulsar. Stock clients go on where they were."""

import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pulsar
import pytest

from compat_tests.oracle.bookkeeper_shell import BookKeeperShell
from compat_tests.oracle.distribution import TREE
from compat_tests.oracle.pulsar_broker import CLUSTER, PulsarBroker
from compat_tests.oracle.redirects import ask
from compat_tests.oracle.steady_load import quiet_client
from compat_tests.oracle.vela_autorecovery import VelaAutorecovery
from compat_tests.oracle.vela_bookie import VelaBookie
from compat_tests.oracle.vela_broker import VelaBroker
from compat_tests.oracle.vela_machine import VelaMachine
from compat_tests.oracle.vela_server import VelaServer
from compat_tests.oracle.zookeeper_server import ZooKeeperServer

BOOKIE = "vela-embedded"
KEYS = {
    "brokerDeduplicationEnabled": "true",
    "acknowledgmentAtBatchIndexLevelEnabled": "true",
    "brokerDeleteInactiveTopicsEnabled": "false",
}
QUORUMS = {
    "managedLedgerDefaultEnsembleSize": "2",
    "managedLedgerDefaultWriteQuorum": "2",
    "managedLedgerDefaultAckQuorum": "2",
}
RECEIVE_MS = 30_000
SILENCE_MS = 1_500
NAMESPACE = "/admin/v2/namespaces/shop/orders"
TOPICS = "/admin/v2/persistent/shop/orders"
PLAIN = "persistent://shop/orders/plain"
PARTITIONED = "persistent://shop/orders/parts"
TYPED = "persistent://shop/orders/typed"


class Order(pulsar.schema.Record):
    number = pulsar.schema.Integer()


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory):
    server = ZooKeeperServer(tmp_path_factory.mktemp("zookeeper"))
    server.start()
    yield server
    server.kill()


@pytest.fixture
def servers():
    """Those that a test starts; all end."""
    started = []
    yield started
    for server in reversed(started):
        server.kill()


def run(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "cli", *map(str, arguments)],
        cwd=TREE,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def copy(data, hosts, *more):
    return run(
        *("copy-metadata", "--data-dir", data, "--metadata-store", f"zk:{hosts}"),
        *("--cluster", CLUSTER, "--web-service-url", "http://127.0.0.1:8080", *more),
    )


def refusal(done):
    """Of a command that ended as every refused one does."""
    assert (done.returncode, done.stdout) == (1, ""), done
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("vela:")]
    assert "Traceback" not in done.stderr
    return line


def start(servers, *more):
    servers.extend(more)
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda server: server.start(), more))


def moved_bookie(directory, hosts, number=1):
    base = directory / "data" / ("bookkeeper" if number == 1 else f"bookkeeper{number}")
    own = directory / f"moved-{number}"
    own.mkdir()
    return VelaBookie(
        own,
        hosts,
        {
            "bookieId": BOOKIE if number == 1 else f"vela-bookie-{number}",
            "journalDirectories": base / "journal",
            "ledgerDirectories": base / "ledgers",
        },
    )


def drained(consumer):
    """What comes until there is silence, acknowledged."""
    found = []
    while True:
        try:
            message = consumer.receive(RECEIVE_MS if not found else SILENCE_MS)
        except pulsar.Timeout:
            return found
        consumer.acknowledge(message)
        found.append((str(message.message_id()), message.data()))


def send_as(client, topic, name, numbers):
    producer = client.create_producer(topic, producer_name=name, batching_enabled=False)
    for number in numbers:
        producer.send(b"%d" % number, sequence_id=number)
    producer.close()


def fill(server):
    """Topics of some kinds, partly consumed; what is left of them."""
    tenant = {"allowedClusters": ["standalone"], "adminRoles": []}
    assert ask(server, "PUT", "/admin/v2/tenants/shop", tenant)[0] == 204
    assert ask(server, "PUT", NAMESPACE)[0] == 204
    retention = {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}
    assert ask(server, "POST", f"{NAMESPACE}/retention", retention)[0] == 204
    assert ask(server, "PUT", f"{TOPICS}/parts/partitions", 3)[0] == 204
    client = quiet_client(server.service_url)
    consumer = client.subscribe(PLAIN, "s", consumer_type=pulsar.ConsumerType.Shared)
    send_as(client, PLAIN, "p", range(20))
    left = []
    for number in range(20):
        message = consumer.receive(RECEIVE_MS)
        if number < 5 or number in (7, 11):
            consumer.acknowledge(message)
        else:
            left.append((str(message.message_id()), message.data()))
    parts = client.subscribe(PARTITIONED, "s")
    producer = client.create_producer(
        PARTITIONED, message_routing_mode=pulsar.PartitionsRoutingMode.RoundRobinDistribution
    )
    sent = [b"%d" % number for number in range(30)]
    for body in sent:
        producer.send(body)
    first = [parts.receive(RECEIVE_MS) for _ in range(10)]
    for message in first:
        parts.acknowledge(message)
    schema = pulsar.schema.AvroSchema(Order)
    client.subscribe(TYPED, "s", schema=schema).close()
    client.create_producer(TYPED, schema=schema).send(Order(number=7))
    client.close()
    return left, sorted(set(sent) - {message.data() for message in first})


def schema_versions(server):
    return ask(server, "GET", "/admin/v2/schemas/shop/orders/typed/schemas")


def test_a_standalone_broker_becomes_a_cluster_and_clients_go_on(zookeeper, tmp_path, servers):
    hosts = f"{zookeeper.hosts}/moved"
    alone = VelaServer(tmp_path, KEYS)
    start(servers, alone)
    left, left_of_parts = fill(alone)
    schemas = schema_versions(alone)
    assert "is in use" in refusal(copy(tmp_path / "data", hosts))
    alone.stop()

    done = copy(tmp_path / "data", hosts)
    assert done.returncode == 0, done.stderr
    assert f"bookieId={BOOKIE}\n" in done.stdout
    assert f"journalDirectories={tmp_path / 'data/bookkeeper/journal'}\n" in done.stdout
    assert "the metadata store is in use" in refusal(copy(tmp_path / "data", hosts))

    old = moved_bookie(tmp_path, hosts)
    new = [VelaBookie(tmp_path / f"bookie-{number}", hosts) for number in (1, 2)]
    start(servers, old, *new)
    keys = {**KEYS, **QUORUMS, "clusterName": CLUSTER}
    broker = VelaBroker(tmp_path / "broker", hosts, keys)
    start(servers, broker)
    assert schema_versions(broker) == schemas
    status, policies = ask(broker, "GET", NAMESPACE)
    assert (status, policies["replication_clusters"]) == (200, [CLUSTER])
    assert policies["retention_policies"]["retentionTimeInMinutes"] == -1

    client = quiet_client(broker.service_url)
    send_as(client, PLAIN, "p", range(15, 25))  # 15 to 19 were stored before
    consumer = client.subscribe(PLAIN, "s", consumer_type=pulsar.ConsumerType.Shared)
    found = sorted(drained(consumer), key=lambda each: int(each[1]))
    assert found[: len(left)] == left
    assert [body for _id, body in found[len(left) :]] == [b"%d" % each for each in range(20, 25)]
    parts = client.subscribe(PARTITIONED, "s")
    assert sorted(body for _id, body in drained(parts)) == left_of_parts
    typed = client.subscribe(TYPED, "s", schema=pulsar.schema.AvroSchema(Order))
    assert typed.receive(RECEIVE_MS).value().number == 7
    client.close()

    _, internal = ask(broker, "GET", f"{TOPICS}/plain/internalStats?metadata=true")
    copies = [row["metadata"] for row in internal["ledgers"]]
    assert f"127.0.0.1:{old.port}" in copies[0]
    assert "writeQuorumSize=2" in copies[-1]
    # What clients read, a stock broker does, too.
    everything = [b"%d" % number for number in range(25)]
    assert read_all(broker, PLAIN) == everything
    broker.stop()
    pulsar_broker = PulsarBroker(tmp_path / "pulsar", hosts, {**KEYS, **QUORUMS})
    start(servers, pulsar_broker)
    assert read_all(pulsar_broker, PLAIN) == everything
    client = quiet_client(pulsar_broker.service_url)
    send_as(client, PLAIN, "p", range(20, 30))
    consumer = client.subscribe(PLAIN, "s", consumer_type=pulsar.ConsumerType.Shared)
    assert [body for _id, body in drained(consumer)] == [b"%d" % each for each in range(25, 30)]
    client.close()
    pulsar_broker.stop()

    broker.start()
    client = quiet_client(broker.service_url)
    producer = client.create_producer(PLAIN, producer_name="p", batching_enabled=False)
    producer.send(b"30", sequence_id=30)
    retire(tmp_path, hosts, old, servers)
    producer.send(b"31", sequence_id=31)
    client.close()
    assert read_all(broker, PLAIN) == [b"%d" % number for number in range(32)]
    text = refusal(
        run("standalone", "--data-dir", tmp_path / "data", "--broker-port", 0, "--web-port", 0)
    )
    assert "belongs to another cluster" in text


def read_all(server, topic):
    client = quiet_client(server.service_url)
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    found = []
    while reader.has_message_available():
        found.append(reader.read_next(RECEIVE_MS).data())
    client.close()
    return found


def retire(directory, hosts, old, servers):
    """The old ledgers have one copy: it is copied while the bookie that has it runs."""
    start(servers, VelaAutorecovery(directory / "autorecovery", "autorecovery-1", hosts))
    decommission = ("bookie-decommission", "--config", old.configuration_path, "--wait-seconds", 60)
    assert "is running: stop it first" in refusal(run(*decommission))
    old.stop()
    assert "has the only copy of entries" in refusal(run(*decommission))
    old.start()
    uri = f"zk+hierarchical://{hosts}/ledgers"
    shell = BookKeeperShell(directory / "shell", {"metadataServiceUri": uri})
    recovered = shell.run("recover", "-f", BOOKIE)
    assert recovered.returncode == 0, recovered.stdout
    old.stop()
    done = run(*decommission)
    assert done.returncode == 0, done.stderr


def test_a_machine_of_two_bookies_becomes_a_cluster(zookeeper, tmp_path, servers):
    hosts = f"{zookeeper.hosts}/machine"
    alone = VelaMachine(tmp_path, 2, 2, KEYS)
    start(servers, alone)
    left, left_of_parts = fill(alone)
    alone.stop()
    done = copy(tmp_path / "data", hosts)
    assert done.returncode == 0, done.stderr
    start(servers, *(moved_bookie(tmp_path, hosts, number) for number in (1, 2)))
    broker = VelaBroker(tmp_path / "broker", hosts, {**KEYS, **QUORUMS, "clusterName": CLUSTER})
    start(servers, broker)
    client = quiet_client(broker.service_url)
    consumer = client.subscribe(PLAIN, "s", consumer_type=pulsar.ConsumerType.Shared)
    assert sorted(drained(consumer), key=lambda each: int(each[1])) == left
    parts = client.subscribe(PARTITIONED, "s")
    assert sorted(body for _id, body in drained(parts)) == left_of_parts
    client.close()


@pytest.mark.slow
def test_wrong_stores_and_directories_are_refused_in_one_line(zookeeper, tmp_path, servers):
    hosts = zookeeper.hosts
    assert "is not there" in refusal(copy(tmp_path / "none", hosts))
    alone = VelaServer(tmp_path, KEYS)
    start(servers, alone)
    alone.stop()
    data = tmp_path / "data"
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        assert "no ZooKeeper answered" in refusal(copy(data, f"127.0.0.1:{port}"))
    for url in ("a b", ":2181", "h:x", "h:2181/a//b"):
        assert refusal(copy(data, url))
    for url in ("rocksdb:/tmp/x", "memory:", "unix:/tmp/x", "etcd:http://h:1"):
        done = run(
            *("copy-metadata", "--data-dir", data, "--metadata-store", url),
            *("--web-service-url", "http://h:1"),
        )
        assert url in refusal(done)
    text = refusal(copy(data, f"{hosts}/small", "--node-bytes-max", 4_096, "--cluster", "a b"))
    assert "cannot be the name of a cluster" in text
