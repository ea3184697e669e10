"""A bookie leaves a running cluster of processes for good, and every message can be read."""

import json
import os
import shutil
import signal
import subprocess
import sys
import urllib.request
from contextlib import asynccontextmanager, closing

import pulsar
import trio

from cli.machine.plan import read_machine
from cli.machine.running import running_machine, socket_path_in
from runtime.line_writer import LineWriter
from settings.reading import Setting

SECONDS_MAX = 240.0
PORTS = {"brokerServicePort": 0, "webServicePort": 0}
TOPICS = [f"persistent://public/default/topic-{number}" for number in range(8)]
ENTRIES = 20
LEAVING = "leaving-bookie"
KEYS = {
    "bookiePort": "0",
    "defaultRetentionTimeInMinutes": "-1",
    "defaultRetentionSizeInMB": "-1",
    "lostBookieRecoveryDelay": "3600",
}


def start_bookie(directory, socket_path):
    """`vela bookie` beside those of the machine, ready."""
    directory.mkdir()
    keys = {
        "bookieId": LEAVING,
        "bookiePort": "0",
        "bindAddress": "127.0.0.1",
        "advertisedAddress": "127.0.0.1",
        "allowLoopback": "true",
        "journalDirectories": str(directory / "journal"),
        "ledgerDirectories": str(directory / "ledgers"),
        "metadataServiceUri": f"metadata-store:unix:{socket_path}",
    }
    file = directory / "bookkeeper.conf"
    file.write_text("".join(f"{key}={value}\n" for key, value in keys.items()))
    started = subprocess.Popen(
        [sys.executable, "-m", "cli", "bookie", "--config", str(file), "--log-level", "warning"],
        stdout=subprocess.PIPE,
        text=True,
    )
    ready = started.stdout.readline()
    assert ready.startswith("vela bookie ready: ")
    return started, file, ready.split()[-1].removeprefix("bookie://")


def stop(started):
    started.send_signal(signal.SIGTERM)
    assert started.wait(SECONDS_MAX) == 0
    started.stdout.close()


def decommission(file):
    return subprocess.run(
        [
            *(sys.executable, "-m", "cli", "bookie-decommission", "--config", str(file)),
            *("--wait-seconds", "120"),
        ],
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        env=dict(os.environ),
    )


def client_of(service_url):
    logger = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    return closing(pulsar.Client(service_url, logger=logger))


def send(service_url):
    with client_of(service_url) as client:
        for topic in TOPICS:
            producer = client.create_producer(topic)
            for number in range(ENTRIES):
                producer.send(b"%d" % number)


def read(service_url):
    found = {}
    with client_of(service_url) as client:
        for topic in TOPICS:
            reader = client.create_reader(topic, pulsar.MessageId.earliest)
            messages = [reader.read_next(60_000) for _ in range(ENTRIES)]
            found[topic] = [int(message.data()) for message in messages]
    return found


def ask(web_url, topic, what):
    with urllib.request.urlopen(f"{web_url}/admin/v2/{topic.replace('://', '/')}/{what}") as answer:
        return json.load(answer)["ledgers"]


def ledgers(web_url, address):
    """Of each ledger: whether the bookie is named, by its id or its address, and whether it is
    shown as under-replicated."""
    rows = []
    for topic in TOPICS:
        shown = {
            each["ledgerId"]: each["underReplicated"]
            for each in ask(web_url, topic, "internalStats?metadata=true")
        }
        for each in ask(web_url, topic, "ledgerLayouts"):
            named = {bookie for part in each["ensembles"] for bookie in part["bookies"]}
            rows.append((bool({LEAVING, address} & named), shown[each["ledgerId"]]))
    return rows


@asynccontextmanager
async def machine_of_three(data):
    socket_path = socket_path_in(data)
    settings = [Setting(key, value, "test") for key, value in KEYS.items()]
    machine, _ = read_machine(1, 3, settings, PORTS, socket_path, strict=True)
    with trio.fail_after(SECONDS_MAX):
        async with running_machine(machine, data, socket_path, "warning", LineWriter()) as running:
            yield running


async def test_every_message_is_read_after_a_bookie_has_left(tmp_path):
    in_thread = trio.to_thread.run_sync
    async with machine_of_three(tmp_path / "data") as running:
        service_url, web_url = running.urls[:2]
        directory = tmp_path / "leaving"
        bookie, file, address = await in_thread(
            start_bookie, directory, socket_path_in(tmp_path / "data")
        )
        await in_thread(send, service_url)
        assert (True, False) in await in_thread(ledgers, web_url, address)
        refused = await in_thread(decommission, file)
        assert refused.returncode == 1, refused
        assert "stop" in refused.stderr
        await in_thread(stop, bookie)
        shown = await in_thread(ledgers, web_url, address)
        assert all(is_named is is_under_replicated for is_named, is_under_replicated in shown)
        assert (True, True) in shown

        left = await in_thread(decommission, file)
        assert left.returncode == 0, left
        await in_thread(shutil.rmtree, directory)
        assert {(False, False)} == set(await in_thread(ledgers, web_url, address))
        found = await in_thread(read, service_url)
        assert found == {topic: list(range(ENTRIES)) for topic in TOPICS}
