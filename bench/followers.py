"""100,000 consumers of one broadcast on four brokers of one machine, with real ZooKeeper.

The first broker owns the source and serves a quarter of the consumers; each other one follows it
and serves a quarter. Everything every consumer receives is checked. What a message costs the owner
is measured three times on the same brokers: while it is alone with its own consumers, while the
others serve as many consumers of topics of their own, and while they serve theirs of its topic. A
busy machine makes every millisecond of CPU do less. So it is from the second to the third that the
cost must not grow by more than a tenth, and the first is shown.

    python -m bench.followers --consumers 100000 --messages 30
"""

from __future__ import annotations

import argparse
import json
import secrets
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from cli.perf.consumers import Behaviour
from cli.perf.fanout import BROADCAST, FILES_RESERVED, allow_open_files
from cli.perf.generator_processes import Processes
from cli.perf.process_meter import usage
from cli.perf.publisher import Publisher
from cli.perf.target import Target
from cli.perf.worker import FAILED, RECEIVED, SUBSCRIBED, WorkerPlan, WorkerResult
from compat_tests.oracle.shadows import make_shadow, topic_on
from compat_tests.oracle.vela_cluster import VelaCluster
from compat_tests.oracle.zookeeper_server import ZooKeeperServer
from protocol import pulsar_api_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from compat_tests.oracle.vela_broker import VelaBroker

GROWTH_MAX = 1.1
SUBSCRIBE_SECONDS_MAX = 600.0
DRAIN_SECONDS_MAX = 300.0
POLL_SECONDS = 0.1
SETTLE_SECONDS = 3.0
"""Until acknowledgements have arrived and been stored, which belongs to the cost of a message."""


STAY = {"loadBalancerSheddingEnabled": "false", "loadBalancerAutoBundleSplitEnabled": "false"}
"""Topics stay where they are: a bundle with so many sessions would be split during the run."""


class Wrong(Exception):
    """What the consumers got is not what was published. The text says in what."""


def plan_of(
    broker: VelaBroker, topic: str, consumers: int, connections: int, run_id: bytes, size: int
) -> WorkerPlan:
    """The consumers of one broker, in one process."""
    bounds = [consumers * at // connections for at in range(connections + 1)]
    return WorkerPlan(
        target=Target("127.0.0.1", broker.broker_port),
        topic=topic,
        subscription="everybody",
        own=False,
        name_prefix=f"perf-{run_id.hex()[:6]}",
        sub_type=pb.CommandSubscribe.Exclusive,
        metadata=BROADCAST,
        permits=1000,
        behaviour=Behaviour(run_id=run_id, window=100, lookups=True, acks=True),
        message_bytes_max=size + 1024,
        connections=[(start, end - start) for start, end in pairwise(bounds)],
    )


@dataclass(frozen=True)
class Setting:
    """Who serves whom during one measurement."""

    owner: VelaBroker
    sources: list[tuple[VelaBroker, str]]
    """Topics that are published to; the first one is the owner's."""
    served: list[tuple[VelaBroker, str]]
    """Brokers, and the topics of which each serves a share of the consumers."""

    def end(self) -> None:
        """Delete all topics."""
        for broker, topic in {*self.served, *self.sources}:
            broker.http("DELETE", f"/admin/v2/{topic.replace('://', '/')}?force=true")


def alone(cluster: VelaCluster) -> Setting:
    """The owner with its own consumers."""
    owner = cluster.brokers[0]
    source = new_source(cluster, owner)
    return Setting(owner, [(owner, source)], [(owner, source)])


def beside_strangers(cluster: VelaCluster) -> Setting:
    """The other brokers serve as many consumers of topics of their own: the machine is as busy as
    with followers, and the owner has nothing to do with it."""
    sources = [(broker, new_source(cluster, broker)) for broker in cluster.brokers]
    return Setting(cluster.brokers[0], sources, sources)


def with_followers(cluster: VelaCluster) -> Setting:
    """The other brokers serve shares of the owner's topic."""
    owner, *followers = cluster.brokers
    source = new_source(cluster, owner)
    served = [(owner, source)]
    for broker in followers:
        shadow = topic_on(cluster, broker, f"shadow-{secrets.token_hex(4)}")
        make_shadow(broker, shadow, source)
        served.append((broker, shadow))
    return Setting(owner, [(owner, source)], served)


SETTINGS = {
    "alone": alone,
    "beside strangers": beside_strangers,
    "with followers": with_followers,
}


def new_source(cluster: VelaCluster, broker: VelaBroker) -> str:
    """A new topic of this broker."""
    source = topic_on(cluster, broker, f"source-{secrets.token_hex(4)}")
    status, answer = broker.http("PUT", f"/admin/v2/{source.replace('://', '/')}")
    assert status < 300, answer
    return source


def measure(setting: Setting, plans: Sequence[WorkerPlan], options: Options) -> dict[str, float]:
    """Milliseconds of the owner's CPU per message, and what the consumers got.

    Raises: Wrong.
    """
    consumers = sum(count for plan in plans for _, count in plan.connections)
    run_id = plans[0].behaviour.run_id
    allow_open_files(max(len(plan.connections) for plan in plans) + FILES_RESERVED)
    with ExitStack() as stack:
        processes = stack.enter_context(Processes(plans))
        processes.wait_ready()
        publishers = [
            stack.enter_context(
                Publisher(Target("127.0.0.1", broker.broker_port), topic, run_id, options.size)
            )
            for broker, topic in setting.sources
        ]
        begun = time.monotonic()
        processes.tell("go")
        wait(
            publishers,
            lambda: processes.total(SUBSCRIBED) + processes.total(FAILED),
            consumers,
            SUBSCRIBE_SECONDS_MAX,
        )
        subscribed_seconds = time.monotonic() - begun
        for publisher in publishers:
            publisher.publish()  # these are not measured
        wait(publishers, lambda: processes.total(RECEIVED), consumers, DRAIN_SECONDS_MAX)
        listen(publishers, SETTLE_SECONDS)
        before = usage(setting.owner.pid).cpu_seconds
        begun = time.monotonic()
        for number in range(options.messages):
            listen(publishers, begun + number / options.rate - time.monotonic())
            for publisher in publishers:
                publisher.publish()
        expected = consumers * (1 + options.messages)
        wait(publishers, lambda: processes.total(RECEIVED), expected, DRAIN_SECONDS_MAX)
        delivered_seconds = time.monotonic() - begun
        listen(publishers, SETTLE_SECONDS)
        spent = usage(setting.owner.pid).cpu_seconds - before
        results = processes.stop(publishers[0].published)
    check(results)
    return {
        "consumers": consumers,
        "owner_ms_per_message": round(1000 * spent / options.messages, 2),
        "subscribed_seconds": round(subscribed_seconds, 2),
        "delivered_seconds": round(delivered_seconds, 2),
        "received": sum(result.received for result in results),
    }


def check(results: Sequence[WorkerResult]) -> None:
    """Raises: Wrong: somebody did not get every message once and in order."""
    wrong = {
        name: sum(getattr(result, name) for result in results)
        for name in ("lost", "duplicated", "out_of_order", "corrupt", "foreign")
    }
    failures = [reason for result in results for reason in result.failures]
    if any(wrong.values()) or failures:
        raise Wrong(f"{wrong} {failures[:3]}")


def wait(
    publishers: Sequence[Publisher], reached: Callable[[], int], wanted: int, seconds_max: float
) -> None:
    """Raises: Wrong: it is not reached in time."""
    deadline = time.monotonic() + seconds_max
    while reached() < wanted:
        if time.monotonic() > deadline:
            raise Wrong(f"{reached():,} of {wanted:,} after {seconds_max:g} s")
        listen(publishers, POLL_SECONDS)


def listen(publishers: Sequence[Publisher], seconds: float) -> None:
    """Let time pass, and answer the brokers meanwhile."""
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0:
        for publisher in publishers:
            publisher.listen(min(left, POLL_SECONDS) / len(publishers))


class Options(argparse.Namespace):
    """Of the command line."""

    consumers: int
    connections: int
    messages: int
    rate: float
    size: int
    rounds: int
    brokers: int


Figures = dict[str, dict[str, float]]


def run(cluster: VelaCluster, options: Options) -> list[Figures]:
    """Every setting in every round, in turn. Raises: Wrong."""
    rounds = []
    for _ in range(options.rounds):
        figures = {}
        for name, setting_of in SETTINGS.items():
            setting = setting_of(cluster)
            run_id = secrets.token_bytes(8)
            each = options.consumers // len(cluster.brokers)
            lanes = max(1, options.connections // len(cluster.brokers))
            plans = [
                plan_of(broker, topic, each, lanes, run_id, options.size)
                for broker, topic in setting.served
            ]
            figures[name] = measure(setting, plans, options)
            setting.end()
            print(name, json.dumps(figures[name]), flush=True)
        rounds.append(figures)
    return rounds


def growth(rounds: list[Figures], beside: str) -> float:
    """Of the owner's CPU per message with followers, over that in another setting: the median."""
    return median(
        each["with followers"]["owner_ms_per_message"] / each[beside]["owner_ms_per_message"]
        for each in rounds
    )


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--consumers", type=int, default=100_000)
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--messages", type=int, default=30)
    parser.add_argument("--rate", type=float, default=0.5, help="messages per second")
    parser.add_argument("--size", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--brokers", type=int, default=4)
    options = parser.parse_args(namespace=Options())
    with tempfile.TemporaryDirectory() as name:
        zookeeper = ZooKeeperServer(Path(name) / "zookeeper")
        zookeeper.start()
        try:
            cluster = VelaCluster(Path(name) / "cluster", zookeeper)
            cluster.keys |= STAY
            try:
                cluster.initialize()
                cluster.add_bookie()
                for _ in range(options.brokers):
                    cluster.add_broker()
                rounds = run(cluster, options)
            except Wrong as wrong:
                raise SystemExit(str(wrong)) from None
            finally:
                cluster.kill()
        finally:
            zookeeper.kill()
    for name in ("alone", "beside strangers"):
        print(f"the owner's CPU per message: {growth(rounds, name):.3f} of that {name}")
    sys.exit(growth(rounds, "beside strangers") > GROWTH_MAX)


if __name__ == "__main__":
    main()
