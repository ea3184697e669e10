"""A broadcast subscription of Vela that real Pulsar has for a while.

Real Pulsar sees one ordinary subscription: the main cursor, which is at the slowest consumer.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pulsar

from compat_tests.oracle.steady_load import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from compat_tests.migration.site import Site

SUBSCRIPTION = "everybody"
COUNT = 50
PROPERTIES = {"vela.broadcast": "true"}


class Everybody:
    """Consumers by name, and how much each has acknowledged."""

    def __init__(self, namespace: str) -> None:
        self.path = f"{namespace}/broadcast"
        self.topic = f"persistent://{self.path}"

    def _subscribe(self, site: Site, name: str) -> pulsar.Consumer:
        return site.subscribe(self.topic, SUBSCRIPTION, consumer_name=name, properties=PROPERTIES)

    @contextmanager
    def _together(self, site: Site, *names: str) -> Iterator[list[pulsar.Consumer]]:
        consumers = [self._subscribe(site, name) for name in names]
        yield consumers
        for consumer in consumers:
            consumer.close()

    def backlog(self, site: Site) -> int:
        return site.backlogs(f"/persistent/{self.path}/stats")[SUBSCRIPTION]

    def write(self, site: Site) -> None:
        """Under Vela: the slowest has 10, one 20, the fastest 40 and one hole more."""
        with self._together(site, "slow", "middle", "fast") as (slow, middle, fast):
            producer = site.client.create_producer(self.topic)
            for number in range(COUNT):
                producer.send(b"%d" % number)
            for consumer, count in ((slow, 10), (middle, 20), (fast, 40)):
                for number in range(COUNT):
                    message = consumer.receive(60_000)
                    assert message.data() == b"%d" % number
                    if number < count or (consumer is fast and number == 45):
                        consumer.acknowledge(message)
            wait_until(lambda: self.backlog(site) == COUNT - 10)

    def consume(self, site: Site, up_to: int) -> None:
        """Under real Pulsar: one consumer goes on where the slowest was."""
        assert self.backlog(site) == COUNT - 10
        consumer = site.client.subscribe(
            self.topic, SUBSCRIPTION, consumer_type=pulsar.ConsumerType.Exclusive
        )
        for number in range(10, up_to):
            message = consumer.receive(60_000)
            assert message.data() == b"%d" % number
        consumer.acknowledge_cumulative(message)
        consumer.close()
        wait_until(lambda: self.backlog(site) == COUNT - up_to)

    def check(self, site: Site, up_to: int) -> None:
        """Under Vela again: nobody is before the main cursor, and nobody lost a position."""
        stats = site.ask("GET", f"/persistent/{self.path}/stats")["subscriptions"][SUBSCRIPTION]
        assert stats["type"] == "Broadcast"
        left = {
            "slow": range(up_to, COUNT),
            "middle": range(up_to, COUNT),
            "fast": [*range(40, 45), *range(46, COUNT)],
        }
        seen: dict[str, list[int]] = {}
        with self._together(site, *left) as consumers:
            for name, consumer in zip(left, consumers, strict=True):
                messages: list[Any] = [consumer.receive(60_000) for _ in left[name]]
                seen[name] = [int(message.data()) for message in messages]
                for message in messages:
                    consumer.acknowledge(message)
            assert seen == {name: list(numbers) for name, numbers in left.items()}
            for consumer in consumers:
                try:
                    late = consumer.receive(300)
                except pulsar.Timeout:
                    continue
                raise AssertionError(f"{late.data()!r} came again")
            wait_until(lambda: self.backlog(site) == 0)
