"""The limit on unacknowledged messages of a whole broker, for servers of `CONFIGURATION`.

Real Pulsar looks for it every 30 seconds, for the first time ten minutes after its start. Played by
`test_broker_unacked.py` alone.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

import pulsar

from compat_tests.clients.python.limits import Place

if TYPE_CHECKING:
    from collections.abc import Callable

    from compat_tests.clients.python.scenario import Stage

CONFIGURATION: Final = {
    "maxUnackedMessagesPerBroker": "200",
    "maxUnackedMessagesPerSubscriptionOnBrokerBlocked": "0.16",
}
"""A share of 32."""
WAIT_SECONDS: Final = 700.0
NAMES: Final = ("big", "middle", "small")


def broker_unacked(stage: Stage) -> None:
    """Who holds more than a share waits, until it or all together have acknowledged enough."""
    holders = _Holders(stage)
    holders.send(big=150, middle=40, small=20)
    holders.wait("all are sent", lambda: holders.unacked() == [150, 40, 20])
    holders.wait("the limit is seen", lambda: holders.blocked() == [True, True, False])
    holders.send(big=10, middle=10, small=10)
    holders.wait("the small one is served", lambda: holders.unacked()[2] == 30)
    # Pulsar may send one that it had read before.
    stage.see(
        "others wait",
        [held <= most for held, most in zip(holders.unacked(), (151, 41, 30), strict=True)],
    )
    holders.wait(
        "types without a limit are served",
        lambda: holders.of("big", "exclusive")["msgOutCounter"] == 160,
    )
    holders.send(small=40)
    holders.wait("the small one, too", lambda: holders.blocked() == [True, True, True])
    stage.see("some of it waits", holders.unacked()[2] < 70)
    holders.acknowledge("middle", holders.unacked()[1] - 20)
    time.sleep(0.5)
    stage.see("above half of the share", holders.blocked())
    holders.acknowledge("middle", 10)
    holders.wait("below it", lambda: holders.blocked() == [True, False, True])
    holders.wait(
        "the rest of it", lambda: holders.of("middle")["msgBacklog"] == holders.unacked()[1]
    )
    holders.acknowledge("big", 90)
    time.sleep(0.5)
    stage.see("above half of the limit", holders.blocked())
    holders.acknowledge("big", holders.unacked()[0])
    holders.wait("below it", lambda: holders.blocked() == [False, False, False])
    holders.wait(
        "everything is sent",
        lambda: holders.unacked() == [holders.of(name)["msgBacklog"] for name in NAMES],
    )


class _Holders:
    """One Shared subscription of each of three topics, and an Exclusive one of the first."""

    def __init__(self, stage: Stage) -> None:
        self._stage, self._place = stage, Place(stage)
        base = self._place.topic.removesuffix("/t")
        self._path = self._place.path.removesuffix("/t")
        self._consumers = {
            name: stage.client.subscribe(
                f"{base}/{name}", "s", consumer_type=pulsar.ConsumerType.Shared
            )
            for name in NAMES
        }
        self._exclusive = stage.client.subscribe(f"{base}/big", "exclusive")
        self._producers = {
            name: stage.client.create_producer(f"{base}/{name}", batching_enabled=False)
            for name in NAMES
        }

    def send(self, **counts: int) -> None:
        for name, count in counts.items():
            for number in range(count):
                self._producers[name].send(b"%d" % number)

    def acknowledge(self, name: str, count: int) -> None:
        consumer = self._consumers[name]
        for _ in range(count):
            consumer.acknowledge(consumer.receive(10_000))

    def of(self, name: str, subscription: str = "s") -> dict[str, Any]:
        shown: dict[str, Any] = self._place.ask("GET", f"{self._path}/{name}/stats")[1]
        found: dict[str, Any] = shown["subscriptions"][subscription]
        return found

    def unacked(self) -> list[int]:
        return [self.of(name)["unackedMessages"] for name in NAMES]

    def blocked(self) -> list[bool]:
        return [self.of(name)["blockedSubscriptionOnUnackedMsgs"] for name in NAMES]

    def wait(self, what: str, holds: Callable[[], bool]) -> None:
        end = time.monotonic() + WAIT_SECONDS
        while not holds():
            assert time.monotonic() < end, (what, self.unacked(), self.blocked())
            time.sleep(0.2)
        self._stage.see(what)
