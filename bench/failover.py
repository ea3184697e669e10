"""Many topics on several brokers of one machine, one of which is killed: how soon is each served?

A producer of the stock client is open on each topic. The first broker is killed, and every producer
sends one message at once. A topic is served again when that message is acknowledged. The bound is
the session timeout and ten seconds. The CPU and memory of each kind of process are reported per
topic, for the opening and for the failover.

    python -m bench.failover --topics 20000 --brokers 2 --bookies 1
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pulsar

from broker.cluster.bundles import parse_bundle
from compat_tests.oracle.vela_machine import VelaMachine
from protocol.topic_name import TopicName

if TYPE_CHECKING:
    import psutil

SESSION_SECONDS = 30
MARGIN_SECONDS = 10
CLIENTS = 4
OPENED_AT_ONCE = 128
PATIENCE_SECONDS = 300.0
TOLD_EVERY = 2_000
"""Topics opened."""


class Served:
    """When each topic was served again, in seconds after the kill."""

    def __init__(self, topics: int, moved: frozenset[int]) -> None:
        """`moved`: numbers of the topics of the broker that is killed."""
        self._topics = topics
        self.moved = moved
        self._lock = threading.Lock()
        self._begun = 0.0
        self.seconds: dict[int, float] = {}
        """By number, for each topic that was served."""
        self.refusals: list[str] = []
        self.all_are = threading.Event()

    def begin(self) -> None:
        self._begun = time.monotonic()

    def note(self, number: int, result: pulsar.Result, _message_id: object) -> None:
        """The callback of a send."""
        with self._lock:
            if result == pulsar.Result.Ok:
                self.seconds[number] = time.monotonic() - self._begun
            else:
                self.refusals.append(str(result))
            if len(self.seconds) + len(self.refusals) == self._topics:
                self.all_are.set()

    def tell(self) -> None:
        """Of the topics that moved to another broker, and of those that stayed."""
        for what, is_moved in (("moved", True), ("stayed", False)):
            seconds = sorted(
                each for number, each in self.seconds.items() if (number in self.moved) is is_moved
            )
            if seconds:
                shares = ", ".join(
                    f"{name} after {seconds[min(int(share * len(seconds)), len(seconds) - 1)]:.1f}"
                    for name, share in (("half", 0.5), ("99 %", 0.99), ("all", 1.0))
                )
                tell(f"{len(seconds)} topics {what}: {shares} s")


def name_of(number: int) -> str:
    """The topic with this number."""
    return f"persistent://public/default/failover-{number}"


def topics_of_first_broker(machine: VelaMachine, topics: int) -> frozenset[int]:
    """Their numbers."""
    _, clusters = machine.http("GET", "/admin/v2/clusters")
    (cluster,) = (name for name in clusters if name != "global")
    broker_id = machine.web_urls[0].removeprefix("http://")
    _, owned = machine.http("GET", f"/admin/v2/brokers/{cluster}/{broker_id}/ownedNamespaces")
    bundles = [bundle for bundle in map(parse_bundle, owned) if bundle is not None]
    names = [TopicName.parse(name_of(number)) for number in range(topics)]
    return frozenset(
        number
        for number, name in enumerate(names)
        if any(bundle.contains(name) for bundle in bundles)
    )


def tell(text: str) -> None:
    """A line for the person who waits."""
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


class Spent:
    """CPU of a machine's processes since the beginning."""

    def __init__(self, machine: VelaMachine) -> None:
        self._machine = machine
        self._before = machine.cpu_by_kind()
        self._begun = time.monotonic()

    def without(self, process: psutil.Process) -> None:
        """This broker is about to end, and its CPU is no longer counted then."""
        times = process.cpu_times()
        self._before["broker"] -= times.user + times.system

    def tell(self, what: str, topics: int) -> None:
        """Seconds, and CPU by kind of process per topic."""
        spent = {
            kind: after - self._before[kind] for kind, after in self._machine.cpu_by_kind().items()
        }
        each = ", ".join(
            f"{kind} {seconds * 1e6 / max(topics, 1):.0f}" for kind, seconds in spent.items()
        )
        seconds = time.monotonic() - self._begun
        tell(f"{what}: {topics} topics in {seconds:.1f} s; us of CPU per topic: {each}")


def open_producers(clients: list[pulsar.Client], topics: int) -> list[pulsar.Producer]:
    """One on each topic, and a message in each."""

    def opened(number: int) -> pulsar.Producer:
        client = clients[number % len(clients)]
        producer = client.create_producer(
            name_of(number), send_timeout_millis=0, max_pending_messages=2
        )
        producer.send(b"before")
        return producer

    producers: list[pulsar.Producer] = []
    with ThreadPoolExecutor(OPENED_AT_ONCE) as pool:
        for producer in pool.map(opened, range(topics)):
            producers.append(producer)
            if len(producers) % TOLD_EVERY == 0:
                tell(f"{len(producers)} topics are open")
    return producers


def measure(directory: Path, topics: int, brokers: int, bookies: int) -> Served:
    """Kill a broker of a new machine that serves this many topics."""
    machine = VelaMachine(
        directory,
        brokers,
        bookies,
        {
            # No bundle is so large that it would be split in the middle of the measurement.
            "defaultNumberOfNamespaceBundles": 64,
            "loadBalancerNamespaceBundleMaxTopics": topics,
            "metadataStoreSessionTimeoutMillis": SESSION_SECONDS * 1000,
        },
    )
    machine.start()
    clients = [
        pulsar.Client(
            machine.service_url,
            operation_timeout_seconds=60,
            concurrent_lookup_requests=5_000,
            logger=pulsar.FileLogger(pulsar.LoggerLevel.Warn, str(directory / "clients.log")),
        )
        for _ in range(CLIENTS)
    ]
    try:
        opening = Spent(machine)
        producers = open_producers(clients, topics)
        opening.tell("opened", topics)
        served = Served(topics, topics_of_first_broker(machine, topics))
        killed = machine.children()["broker-1"]
        failover = Spent(machine)
        failover.without(killed)
        served.begin()
        os.kill(killed.pid, signal.SIGKILL)
        for number, producer in enumerate(producers):
            producer.send_async(b"after", partial(served.note, number))
        if not served.all_are.wait(PATIENCE_SECONDS):
            tell(f"{topics - len(served.seconds)} topics not served in {PATIENCE_SECONDS:g} s")
        failover.tell("failover", len(served.moved))
        return served
    finally:
        machine.stop()
        for client in clients:
            client.shutdown()


def main() -> None:
    """Print the times; exit code 1 above the bound."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--topics", type=int, default=20_000)
    parser.add_argument("--brokers", type=int, default=2)
    parser.add_argument("--bookies", type=int, default=1)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="vela-failover-") as directory:
        served = measure(Path(directory), given.topics, given.brokers, given.bookies)
    bound = SESSION_SECONDS + MARGIN_SECONDS
    served.tell()
    if served.refusals:
        print(f"{len(served.refusals)} sends refused: {sorted(set(served.refusals))}")
    seconds = served.seconds.values()
    is_within = len(seconds) == given.topics and max(seconds) <= bound
    print(f"bound {bound} s: {'kept' if is_within else 'EXCEEDED'}")
    sys.exit(0 if is_within else 1)


if __name__ == "__main__":
    main()
