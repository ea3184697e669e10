"""A broadcast subscription, seen by stock clients and stock tools. Vela only: real Pulsar has none.

1,200 consumers of three client libraries share one subscription; each gets everything, in order.
"""

from __future__ import annotations

import json
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pulsar
import pytest

from compat_tests.clients.builds import go_command, java_command
from compat_tests.clients.driver import ClientAbsent, Driver
from compat_tests.oracle.distribution import pulsar_home
from compat_tests.servers import Wanted, start_servers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from compat_tests.oracle.server_process import ServerProcess

pytestmark = pytest.mark.broadcast

PYTHON_CONSUMERS = 1_000
PYTHON_CLIENTS = 4
OTHERS_CONSUMERS = 100
MESSAGES = [str(number) for number in range(40)]
SUBSCRIPTION = "everybody"
BROADCAST = {"vela.broadcast": "true"}
WAIT_SECONDS_MAX = 100.0
SHOWN_CONSUMERS_MAX = 20
OUTPUT_BYTES_MAX = 64 * 1024

TYPES = {
    "exclusive": pulsar.ConsumerType.Exclusive,
    "shared": pulsar.ConsumerType.Shared,
}


@pytest.fixture(scope="module")
def vela(
    tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config
) -> Iterator[ServerProcess]:
    """A Vela of this module's own, standalone or a cluster."""
    directory = tmp_path_factory.mktemp("broadcast")
    wanted = Wanted(vela=True, releases=(), cluster=pytestconfig.getoption("--cluster"))
    started = start_servers(directory, wanted)
    (server,) = started.values()
    yield server
    server.stop()
    server.close()


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Driver]]:
    """The Java and the Go program, as far as their languages are installed."""
    directory = tmp_path_factory.mktemp("programs")
    commands: dict[str, Callable[[], list[str]]] = {"java": java_command, "go": go_command}
    drivers = {}
    for client, command in commands.items():
        try:
            drivers[client] = Driver(client, command(), directory / f"{client}.log", directory)
        except ClientAbsent as absent:
            print(f"without {client}: {absent}")
    yield drivers
    for driver in drivers.values():
        driver.close()


def shown(server: ServerProcess, topic: str) -> Any:
    """The subscription in the statistics of its topic; None before it is there."""
    status, stats = server.http("GET", f"/admin/v2/persistent/{topic}/stats")
    return stats["subscriptions"].get(SUBSCRIPTION) if status == 200 else None


def wait_until(holds: Callable[[], bool], what: str) -> None:
    """Poll, with a bound."""
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while not holds():
        assert time.monotonic() < deadline, f"not within {WAIT_SECONDS_MAX} s: {what}"
        time.sleep(0.05)


def new_client(server: ServerProcess, stack: ExitStack) -> pulsar.Client:
    """A stock client, closed with the stack."""
    log = str(server.directory / "python-client.log")
    client = pulsar.Client(
        server.service_url,
        operation_timeout_seconds=30,
        logger=pulsar.FileLogger(pulsar.LoggerLevel.Warn, log),
    )
    stack.callback(client.close)
    return client


def subscribe_all(
    server: ServerProcess, stack: ExitStack, topic: str, kind: pulsar.ConsumerType, count: int
) -> list[pulsar.Consumer]:
    """So many consumers of the Python client, each with a name of its own."""
    clients = [new_client(server, stack) for _ in range(PYTHON_CLIENTS)]
    return [
        clients[number % PYTHON_CLIENTS].subscribe(
            f"persistent://{topic}",
            SUBSCRIPTION,
            kind,
            consumer_name=f"python-{number}",
            properties=BROADCAST,
        )
        for number in range(count)
    ]


def publish(server: ServerProcess, stack: ExitStack, topic: str) -> None:
    """All messages, half of them in batches."""
    client = new_client(server, stack)
    half = len(MESSAGES) // 2
    for batching, payloads in ((False, MESSAGES[:half]), (True, MESSAGES[half:])):
        producer = client.create_producer(f"persistent://{topic}", batching_enabled=batching)
        for payload in payloads:
            producer.send_async(payload.encode(), None)
        producer.flush()
        producer.close()


@pytest.mark.parametrize("stated", sorted(TYPES))
def test_everyone_gets_everything_in_order(
    stated: str, vela: ServerProcess, programs: dict[str, Driver]
) -> None:
    topic = f"public/default/broadcast-{stated}"
    with ExitStack() as stack:
        pool = stack.enter_context(ThreadPoolExecutor(len(programs) or 1))
        consumers = subscribe_all(vela, stack, topic, TYPES[stated], PYTHON_CONSUMERS)
        playing = {
            client: pool.submit(driver.play, f"broadcast-{stated}", vela, topic=topic)
            for client, driver in programs.items()
        }
        everybody = PYTHON_CONSUMERS + OTHERS_CONSUMERS * len(programs)
        wait_until(
            lambda: (
                shown(vela, topic)["consumersCount"] == everybody
                or any(future.done() for future in playing.values())
            ),
            f"{everybody} consumers are connected",
        )
        publish(vela, stack, topic)
        for consumer in consumers:
            got = [consumer.receive(100_000) for _ in MESSAGES]
            assert [message.data().decode() for message in got] == MESSAGES
            if stated == "shared":
                for message in got:
                    consumer.acknowledge(message)
            else:
                consumer.acknowledge_cumulative(got[-1])
        for future in playing.values():
            told = future.result(WAIT_SECONDS_MAX)
            assert told == [["consumers that got everything in order", OTHERS_CONSUMERS]]
        wait_until(lambda: shown(vela, topic)["msgBacklog"] == 0, "everything is acknowledged")
        for consumer in consumers:
            with pytest.raises(pulsar.Timeout):
                consumer.receive(1)


@pytest.mark.slow
def test_pulsar_admin_shows_two_thousand_consumers_in_a_bounded_output(vela: ServerProcess) -> None:
    admin = str(pulsar_home() / "bin" / "pulsar-admin")
    # A cluster splits a bundle with so many sessions. Its topics then begin new ledgers. Without
    # retention the old ones would be deleted before the cursor is reset to them.
    vela.http("PUT", "/admin/v2/namespaces/public/broadcast-admin")
    kept = {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}
    vela.http("POST", "/admin/v2/namespaces/public/broadcast-admin/retention", kept)
    topic = "public/broadcast-admin/broadcast-admin"

    def ran(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [admin, "--admin-url", vela.web_url, "topics", *arguments],
            capture_output=True,
            text=True,
            timeout=WAIT_SECONDS_MAX,
            check=False,
        )

    def run(*arguments: str) -> str:
        done = ran(*arguments)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    name = f"persistent://{topic}"
    vela.http("PUT", f"/admin/v2/persistent/{topic}")
    run("create-subscription", "-s", SUBSCRIPTION, "-p", "vela.broadcast=true", name)
    with ExitStack() as stack:
        kind = pulsar.ConsumerType.Shared
        subscribe_all(vela, stack, topic, kind, 2 * PYTHON_CONSUMERS)
        publish(vela, stack, topic)
        printed = run("stats", name)
        assert len(printed) < OUTPUT_BYTES_MAX
        seen = json.loads(printed)["subscriptions"][SUBSCRIPTION]
        assert seen["type"] == "Broadcast"
        assert len(seen["consumers"]) <= SHOWN_CONSUMERS_MAX
        assert seen["msgBacklog"] > 0
        assert len(run("stats-internal", name)) < OUTPUT_BYTES_MAX
        run("clear-backlog", "-s", SUBSCRIPTION, name)
        wait_until(lambda: shown(vela, topic)["msgBacklog"] == 0, "everything is skipped")
        run("reset-cursor", "-s", SUBSCRIPTION, "-t", "1h", name)
        wait_until(lambda: shown(vela, topic)["msgBacklog"] > 0, "the cursor is reset")
        refused = ran("expire-messages-all-subscriptions", "-t", "100000", name)
        assert refused.returncode == 1
        assert "Expire message by timestamp not issued" in refused.stderr
        assert shown(vela, topic)["msgBacklog"] > 0
    run("unsubscribe", "-s", SUBSCRIPTION, name)
    assert shown(vela, topic) is None
