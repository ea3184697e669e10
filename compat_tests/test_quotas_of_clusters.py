"""A backlog quota that is set at one broker of a cluster holds at the one that serves the topic."""

from __future__ import annotations

import pulsar
import pytest

from compat_tests.oracle.vela_machine import VelaMachine
from compat_tests.test_rates_of_clusters import ask, until

TOPIC = "persistent://public/default/filled"
PATH = "/admin/v2/persistent/public/default/filled"
QUOTA = "/admin/v2/namespaces/public/default/backlogQuota"
LIMIT_BYTES = 10_240


@pytest.fixture
def machine(tmp_path):
    machine = VelaMachine(tmp_path, 2, 2)
    machine.start()
    yield machine
    if machine.is_running():
        machine.stop()


def test_a_quota_set_at_another_broker_holds(machine):
    client = pulsar.Client(
        machine.service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    )
    client.subscribe(TOPIC, "s").close()
    producer = client.create_producer(TOPIC)
    owner = ask(machine.web_url, "GET", f"/lookup/v2/topic/{TOPIC.replace('://', '/')}")["httpUrl"]
    [cluster] = ask(owner, "GET", "/admin/v2/clusters")
    brokers = [f"http://{each}" for each in ask(owner, "GET", f"/admin/v2/brokers/{cluster}")]
    [other] = [each for each in brokers if each != owner]

    def shown():
        return ask(owner, "GET", f"{PATH}/stats")

    ask(other, "POST", QUOTA, {"limitSize": LIMIT_BYTES, "policy": "producer_exception"})
    until(lambda: shown()["backlogQuotaLimitSize"] == LIMIT_BYTES)
    for _ in range(10):
        producer.send(b"x" * 1_024)
    with pytest.raises(pulsar.ProducerBlockedQuotaExceededException):
        producer.send(b"x" * 1_024)
    assert LIMIT_BYTES <= shown()["backlogSize"] < LIMIT_BYTES * 1.1
    assert shown()["publishers"] == []

    ask(other, "DELETE", QUOTA)
    until(lambda: shown()["backlogQuotaLimitSize"] == -1)
    client.create_producer(TOPIC).send(b"there is room")
    client.close()
