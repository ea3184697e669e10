"""Rates that are set at one broker of a cluster hold at the one that serves the topic."""

from __future__ import annotations

import http.client
import json
import time
from urllib.parse import urlsplit

import pulsar
import pytest

from compat_tests.oracle.vela_machine import VelaMachine

TOPIC = "persistent://public/default/rated"
PATH = "/admin/v2/persistent/public/default/rated"
NAMESPACE = "/admin/v2/namespaces/public/default"
DYNAMIC = "/admin/v2/brokers/configuration/dispatchThrottlingRatePerTopicInMsg"
MESSAGES = 100
RATE = 25
SECONDS_MAX = 5.0
"""Until another broker has a change: it is there much earlier, unless the machine is busy."""


@pytest.fixture
def machine(tmp_path):
    machine = VelaMachine(tmp_path, 2, 2)
    machine.start()
    yield machine
    if machine.is_running():
        machine.stop()


def ask(web_url, method, path, body=None):
    connection = http.client.HTTPConnection(urlsplit(web_url).netloc, timeout=30)
    data = None if body is None else json.dumps(body)
    connection.request(method, path, data, {"Content-Type": "application/json"})
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    assert answer.status in (200, 204), (method, path, answer.status, text)
    return json.loads(text) if text else None


def until(condition):
    deadline = time.monotonic() + SECONDS_MAX
    while not condition():
        assert time.monotonic() < deadline, "not in force"
        time.sleep(0.02)


def seconds_of(producer, consumer):
    """How long the messages take."""
    start = time.monotonic()
    for number in range(MESSAGES):
        producer.send_async(b"%d" % number, lambda *_: None)
    producer.flush()
    for number in range(MESSAGES):
        message = consumer.receive(30_000)
        assert message.data() == b"%d" % number
        consumer.acknowledge(message)
    return time.monotonic() - start


def test_rates_set_at_another_broker_hold(machine):
    client = pulsar.Client(
        machine.service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    )
    consumer = client.subscribe(TOPIC, "s")
    producer = client.create_producer(TOPIC, batching_enabled=False)
    owner = ask(machine.web_url, "GET", f"/lookup/v2/topic/{TOPIC.replace('://', '/')}")["httpUrl"]
    [cluster] = ask(owner, "GET", "/admin/v2/clusters")
    brokers = [f"http://{each}" for each in ask(owner, "GET", f"/admin/v2/brokers/{cluster}")]
    [other] = [each for each in brokers if each != owner]
    rate = {"dispatchThrottlingRateInMsg": RATE, "ratePeriodInSecond": 1}
    held = (MESSAGES - RATE) / RATE  # all but what comes at once
    assert seconds_of(producer, consumer) < held

    ask(other, "POST", f"{NAMESPACE}/subscriptionDispatchRate", rate)
    applied = f"{PATH}/subscriptionDispatchRate?applied=true"
    until(lambda: ask(owner, "GET", applied)["dispatchThrottlingRateInMsg"] == RATE)
    assert seconds_of(producer, consumer) > 0.9 * held
    ask(other, "DELETE", f"{NAMESPACE}/subscriptionDispatchRate")
    until(lambda: ask(owner, "GET", applied)["dispatchThrottlingRateInMsg"] == 0)
    assert seconds_of(producer, consumer) < held

    ask(other, "POST", f"{DYNAMIC}/{RATE}")
    applied = f"{PATH}/dispatchRate?applied=true"
    until(lambda: ask(owner, "GET", applied)["dispatchThrottlingRateInMsg"] == RATE)
    assert seconds_of(producer, consumer) > 0.9 * held
    ask(owner, "POST", f"{PATH}/dispatchRate", {**rate, "dispatchThrottlingRateInMsg": 10_000})
    assert seconds_of(producer, consumer) < held
    client.close()
