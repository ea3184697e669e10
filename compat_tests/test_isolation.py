"""Isolation policies and heartbeat namespaces in a cluster of a broker of Pulsar and one of Vela:
each follows what the other wrote."""

from __future__ import annotations

import json
import subprocess
import urllib.error
import urllib.request
from contextlib import ExitStack

import pulsar
import pytest

from compat_tests.oracle.bookkeeper_shell import small_jvm
from compat_tests.oracle.distribution import pulsar_home
from compat_tests.oracle.pulsar_broker import CLUSTER, PulsarBroker, initialise_cluster
from compat_tests.oracle.steady_load import wait_until
from compat_tests.oracle.vela_bookie import VelaBookie
from compat_tests.oracle.vela_broker import VelaBroker
from compat_tests.oracle.zookeeper_server import ZooKeeperServer

POLICIES = f"/admin/v2/clusters/{CLUSTER}/namespaceIsolationPolicies"
ADMIN_SECONDS_MAX = 120.0


@pytest.fixture(scope="module")
def mixed(tmp_path_factory):
    """(a broker of Pulsar, one of Vela) of one cluster, at different addresses of this machine."""
    directory = tmp_path_factory.mktemp("isolation")
    with ExitStack() as stack:
        zookeeper = ZooKeeperServer(directory / "zookeeper")
        zookeeper.start()
        stack.callback(zookeeper.kill)
        initialise_cluster(directory, zookeeper.hosts)
        bookie = VelaBookie(directory / "bookie", zookeeper.hosts)
        bookie.start()
        stack.callback(bookie.kill)
        apache = PulsarBroker(directory / "pulsar", zookeeper.hosts)
        stack.callback(apache.kill)
        apache.start()
        vela = VelaBroker(
            directory / "vela",
            zookeeper.hosts,
            {
                "clusterName": CLUSTER,
                "advertisedAddress": "localhost",
                "managedLedgerDefaultEnsembleSize": 1,
                "managedLedgerDefaultWriteQuorum": 1,
                "managedLedgerDefaultAckQuorum": 1,
            },
        )
        stack.callback(vela.kill)
        vela.start()
        yield apache, vela


def request(broker, method, path, body=None):
    data = None if body is None else json.dumps(body).encode()
    asked = urllib.request.Request(broker.web_url + path, data, method=method)
    asked.add_header("Content-Type", "application/json")
    try:
        with urllib.request.urlopen(asked, timeout=60) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code, refused.read()


def policy(namespace, primary):
    return {
        "namespaces": [namespace],
        "primary": [primary],
        "secondary": [],
        "auto_failover_policy": {
            "policy_type": "min_available",
            "parameters": {"min_limit": "1", "usage_threshold": "100"},
        },
        "unload_scope": "all_matching",
    }


def owners_of(asked, namespace, count=12):
    """The web addresses of the owners of topics, as one broker sends clients to them."""
    owners = set()
    for number in range(count):
        path = f"/lookup/v2/topic/persistent/{namespace}/t{number}"
        status, answer = request(asked, "GET", path)
        if status != 200:
            return {status}
        owners.add(json.loads(answer)["httpUrl"])
    return owners


def host_of(broker):
    return "localhost" if isinstance(broker, VelaBroker) else "127.0.0.1"


def web_url_of(broker):
    return f"http://{host_of(broker)}:{broker.web_port}"


@pytest.mark.parametrize("number", [0, 1], ids=["pulsar", "vela"])
def test_a_policy_written_by_pulsar_isolates_a_namespace_whoever_places_it(mixed, number):
    apache, _vela = mixed
    primary = mixed[number]
    namespace = f"public/isolated-{number}"
    assert request(apache, "PUT", f"/admin/v2/namespaces/{namespace}", {})[0] == 204
    host = host_of(primary).replace(".", r"\.")
    assert request(apache, "POST", f"{POLICIES}/one", policy(namespace, host))[0] == 204
    for asked in mixed:
        wait_until(
            lambda asked=asked: owners_of(asked, namespace) == {web_url_of(primary)}, seconds_max=60
        )
    assert request(apache, "DELETE", f"{POLICIES}/one")[0] == 204


def test_each_broker_owns_its_heartbeat_namespaces_as_the_other_sees_it(mixed):
    for asked in mixed:
        for owner in mixed:
            broker_id = f"{host_of(owner)}:{owner.web_port}"
            path = f"/lookup/v2/topic/persistent/pulsar/{broker_id}/healthcheck"
            if asked is mixed[0]:
                status, answer = request(asked, "GET", path)
                assert (status, json.loads(answer)["httpUrl"]) == (200, web_url_of(owner))
        assert request(asked, "GET", "/admin/v2/brokers/health")[0] == 200


def test_clients_publish_to_an_isolated_namespace_through_either_broker(mixed):
    apache, vela = mixed
    assert request(apache, "PUT", "/admin/v2/namespaces/public/clients", {})[0] == 204
    one = policy("public/clients", "localhost")
    assert request(apache, "POST", f"{POLICIES}/clients", one)[0] == 204
    for asked in mixed:
        client = pulsar.Client(
            f"pulsar://127.0.0.1:{asked.broker_port}",
            logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error),
        )
        try:
            producer = client.create_producer("persistent://public/clients/t")
            assert producer.send(b"x") is not None
        finally:
            client.close()
    assert owners_of(apache, "public/clients", 1) == {web_url_of(vela)}


def admin(broker, directory, *arguments):
    """What the distribution's `pulsar-admin` prints."""
    done = subprocess.run(
        [
            str(pulsar_home() / "bin" / "pulsar-admin"),
            *("--admin-url", broker.web_url),
            *arguments,
        ],
        cwd=directory,
        env=small_jvm(directory),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=ADMIN_SECONDS_MAX,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def test_the_bookies_group_of_pulsar_admin(mixed, tmp_path):
    """One process for all commands would not be `pulsar-admin`; each of these takes seconds."""
    _apache, vela = mixed
    status, listed = request(vela, "GET", "/admin/v2/bookies/all")
    assert status == 200
    (bookie_id,) = [each["bookieId"] for each in json.loads(listed)["bookies"]]
    code, printed = admin(vela, tmp_path, "bookies", "list-bookies")
    assert code == 0
    assert bookie_id in printed
    rack = ("--bookie", bookie_id)
    code, printed = admin(
        vela,
        tmp_path,
        *("bookies", "set-bookie-rack", *rack, "--rack", "/r1", "--hostname", "h", "--group", "g"),
    )
    assert code == 0, printed
    code, printed = admin(vela, tmp_path, "bookies", "racks-placement")
    assert code == 0
    assert "/r1" in printed
    code, printed = admin(vela, tmp_path, "bookies", "get-bookie-rack", *rack)
    assert code == 0
    assert "/r1" in printed
    code, printed = admin(vela, tmp_path, "bookies", "delete-bookie-rack", *rack)
    assert code == 0, printed
    code, printed = admin(vela, tmp_path, "bookies", "get-bookie-rack", *rack)
    assert code != 0
    assert "configuration not found" in printed
