"""Several brokers and bookies on one machine, through the stock client: every process may be
killed, and what was acknowledged stays."""

from __future__ import annotations

import base64
import json
import os
import signal
import time
import urllib.request

import psutil
import pulsar
import pytest
import trio

from bookie.process.cluster import initialize_ledgers
from compat_tests.authorized_servers import SECRET, token
from compat_tests.oracle.server_process import ServerFailed
from compat_tests.oracle.vela_machine import VelaMachine
from compat_tests.oracle.zookeeper_server import ZooKeeperServer
from metadata.opening import open_store
from runtime.testing.ports import free_ports

TOPICS = [f"persistent://public/default/several-{number}" for number in range(8)]
MESSAGES = 20
WAIT_SECONDS_MAX = 120.0
KEEP_ALL = {"defaultRetentionTimeInMinutes": -1, "defaultRetentionSizeInMB": -1}
"""What one subscription acknowledged is read by the next."""


@pytest.fixture
def machine(tmp_path):
    machine = VelaMachine(tmp_path, 2, 2, KEEP_ALL)
    machine.start()
    yield machine
    if machine.is_running():
        machine.stop()


def client_of(machine):
    return pulsar.Client(
        machine.service_url,
        operation_timeout_seconds=60,
        logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error),
    )


def until(condition, seconds_max=WAIT_SECONDS_MAX):
    deadline = time.monotonic() + seconds_max
    while not condition():
        assert time.monotonic() < deadline, "not in time"
        time.sleep(0.05)


def publish(client, name, topics=TOPICS):
    """Messages `<name>-<n>` to each topic, all acknowledged."""
    for topic in topics:
        producer = client.create_producer(topic, send_timeout_millis=60_000)
        for number in range(MESSAGES):
            producer.send(f"{name}-{number}".encode())
        producer.close()


def received(client, names, subscription):
    """Check that each topic has the messages of all names, in order and none missing."""
    expected = [f"{name}-{number}".encode() for name in names for number in range(MESSAGES)]
    for topic in TOPICS:
        consumer = client.subscribe(
            topic, subscription, initial_position=pulsar.InitialPosition.Earliest
        )
        got = []
        while len(dict.fromkeys(got)) < len(expected):
            message = consumer.receive(60_000)
            got.append(message.data())
            consumer.acknowledge(message)
        consumer.close()
        assert list(dict.fromkeys(got)) == expected


def owners(machine):
    """The brokers that serve a topic."""
    found = set()
    for topic in TOPICS:
        path = topic.replace("://", "/")
        with urllib.request.urlopen(f"{machine.web_url}/lookup/v2/topic/{path}") as answer:
            found.add(json.loads(answer.read())["brokerUrl"])
    return found


def test_each_process_may_be_killed_and_is_started_again(machine):
    client = client_of(machine)
    publish(client, "first")
    assert len(owners(machine)) == 2, "one broker has all topics"
    names = ["first"]
    every = ["autorecovery-1", "bookie-1", "bookie-2", "broker-1", "broker-2"]
    for name in reversed(every):
        before = machine.children()
        assert sorted(before) == every
        killed = before[name]
        os.kill(killed.pid, signal.SIGKILL)
        publish(client, f"after-{name}")
        names.append(f"after-{name}")
        until(lambda name=name, killed=killed: is_replaced(machine, name, killed))
        received(client, names, f"sub-{name}")
    client.close()


def is_replaced(machine, name, killed):
    children = machine.children()
    return name in children and children[name].pid != killed.pid and len(children) == 5


def test_consumers_that_are_connected_go_on_after_their_broker_was_killed(machine):
    client = client_of(machine)
    consumers = [client.subscribe(topic, "sub") for topic in TOPICS]
    producers = [client.create_producer(topic, send_timeout_millis=60_000) for topic in TOPICS]
    for turn in range(4):
        name = f"broker-{turn % 2 + 1}"
        killed = machine.children()[name]
        os.kill(killed.pid, signal.SIGKILL)
        if turn > 1:  # else at once, while the other broker takes over
            until(lambda name=name, killed=killed: is_replaced(machine, name, killed))
        for producer in producers:
            producer.send(b"turn-%d" % turn)
        for consumer in consumers:
            data = None
            while data != b"turn-%d" % turn:  # those before may come again
                message = consumer.receive(60_000)
                data = message.data()
                consumer.acknowledge(message)
        until(lambda name=name, killed=killed: is_replaced(machine, name, killed))
    client.close()


def test_data_survive_sigterm_and_kill_of_the_parent(machine):
    client = client_of(machine)
    publish(client, "one")
    client.close()
    children = list(machine.children().values())
    assert machine.stop() == 0
    assert not any(each.is_running() for each in children)
    log = machine.log_tail(20_000)
    assert log.index("broker-1 | ", log.index("signal=SIGTERM")) < log.index(
        "bookie-1 | ", log.index("signal=SIGTERM")
    )

    machine.start()
    client = client_of(machine)
    received(client, ["one"], "a")
    publish(client, "two")
    children = list(machine.children().values())
    machine.kill()
    until(lambda: not any(is_alive(each) for each in children), 20)
    client.close()

    machine.start()
    client = client_of(machine)
    received(client, ["one", "two"], "b")
    client.close()


def is_alive(process):
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_a_port_that_is_taken_is_one_line_and_leaves_no_process(tmp_path, machine):
    port = machine.service_url.rpartition(":")[2]
    other = VelaMachine(tmp_path / "other", 1, 1, {"brokerServicePort": port})
    with pytest.raises(ServerFailed):
        other.start()
    refusals = [line for line in other.log_tail().splitlines() if line.startswith("vela: ")]
    assert len(refusals) == 1
    assert f":{port} (brokerServicePort)" in refusals[0]
    ours = [
        each
        for each in psutil.process_iter(["cmdline"])
        if str(other.directory) in str(each.info["cmdline"])
    ]
    assert not ours


def test_a_directory_in_use_is_one_line(tmp_path, machine):
    second = VelaMachine(machine.directory, 2, 2)
    with pytest.raises(ServerFailed, match=r"vela: data directory .* in use by process"):
        second.start()


@pytest.fixture
def zookeeper(tmp_path):
    server = ZooKeeperServer(tmp_path / "zookeeper")
    server.start()
    yield server
    server.kill()


async def _initialize(hosts, cluster):
    store = await open_store(f"zk:{hosts}", 10.0)
    try:
        await initialize_ledgers(store)
        await store.put(f"/admin/clusters/{cluster}", b"{}", None)
    finally:
        await store.aclose()


def test_zookeeper_takes_the_place_of_the_parents_store(tmp_path, zookeeper):
    trio.run(_initialize, zookeeper.hosts, "several")
    machine = VelaMachine(
        tmp_path / "machine",
        2,
        1,
        KEEP_ALL
        | {
            "metadataStoreUrl": f"zk:{zookeeper.hosts}",
            "clusterName": "several",
            "metadataStoreSessionTimeoutMillis": 3_000,
            "bookiePort": free_ports(1)[0],
        },
    )
    machine.start()
    try:
        client = client_of(machine)
        publish(client, "first")
        killed = machine.children()["broker-1"]
        os.kill(killed.pid, signal.SIGKILL)
        publish(client, "second")
        received(client, ["first", "second"], "sub")
        client.close()
        assert not (machine.directory / "data" / "metadata").exists()
    finally:
        assert machine.stop() == 0


@pytest.mark.slow
def test_copies_of_a_bookie_that_hangs_are_made_again_on_another(tmp_path):
    keys = {"lostBookieRecoveryDelay": 0, "openLedgerRereplicationGracePeriod": 500}
    machine = VelaMachine(tmp_path, 1, 3, KEEP_ALL | keys)
    machine.start()
    try:
        client = client_of(machine)
        publish(client, "first")
        hanging = machine.children()["bookie-1"]
        os.kill(hanging.pid, signal.SIGSTOP)
        until(lambda: "fragment replicated" in machine.log_of_start())
        publish(client, "second")
        received(client, ["first", "second"], "sub")
        os.kill(hanging.pid, signal.SIGCONT)
        client.close()
    finally:
        machine.kill()


def test_processes_of_one_machine_authenticate_to_each_other(tmp_path):
    own = tmp_path / "broker.token"
    own.write_text(token("broker"))
    package = "org.apache.pulsar."
    keys = KEEP_ALL | {
        "bookiePort": -1,  # the bookies listen at Unix sockets
        "authenticationEnabled": "true",
        "authenticationProviders": f"{package}broker.authentication.AuthenticationProviderToken",
        "tokenSecretKey": "data:;base64," + base64.b64encode(SECRET).decode(),
        "authorizationEnabled": "true",
        "superUserRoles": "admin,broker",
        "brokerClientAuthenticationPlugin": f"{package}client.impl.auth.AuthenticationToken",
        "brokerClientAuthenticationParameters": f"file://{own}",
    }
    machine = VelaMachine(tmp_path, 2, 2, keys)
    machine.start()
    try:
        client = pulsar.Client(
            machine.service_url,
            authentication=pulsar.AuthenticationToken(token("admin")),
            operation_timeout_seconds=60,
            logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error),
        )
        publish(client, "one")
        received(client, ["one"], "sub")
        client.close()
        # Each broker asks the other to give its bundles up.
        for url in machine.web_urls:
            request = urllib.request.Request(
                f"{url}/admin/v2/namespaces/public/default/unload", method="PUT"
            )
            request.add_header("Authorization", f"Bearer {token('admin')}")
            with urllib.request.urlopen(request) as answer:
                assert answer.status == 204
        log = machine.log_path.read_text()
        assert "credentials for other brokers" not in log
        assert token("broker") not in log
    finally:
        machine.stop()
