"""Limits by count and size: who is refused, how, and that those above a new limit stay."""

from __future__ import annotations

import time
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from compat_tests.clients.python.limits import Place
from compat_tests.clients.python.scenario import Stage, scenario
from compat_tests.clients.python.wire import Wire
from protocol import pulsar_api_pb2 as pb
from protocol.client import message

if TYPE_CHECKING:
    from collections.abc import Callable

SHARED: Final = pb.CommandSubscribe.Shared
PRODUCES: Final = "PRODUCER_SUCCESS"
CONSUMES: Final = "SUCCESS"
IN_FORCE_SECONDS_MAX: Final = 5.0


class Attaching:
    """Producers and consumers of one topic, told of in the trace."""

    def __init__(self, stage: Stage, wire: Wire, domain: str) -> None:
        self._stage, self._wire = stage, wire
        self.place = Place(stage, domain)
        self._tries = count()

    def limit_topic(self, policy: str, value: Any) -> None:
        """None: no limit any more."""
        self.place.set(f"{self.place.path}/{policy}", value)

    def limit_namespace(self, policy: str, value: Any) -> None:
        """None: no limit any more."""
        self.place.set(f"{self.place.namespace}/{policy}", value)

    def produce(self, what: str, until: str = PRODUCES) -> None:
        """Open a producer. `until`: the answer waited for, as Pulsar acts on a policy of a topic a
        little later."""
        self._see(what, lambda: self._wire.keep_producer(self.place.topic), until)

    def consume(
        self, what: str, name: str = "s", *, until: str = CONSUMES, new: bool = False, **fields: Any
    ) -> None:
        """Subscribe. `new`: to a subscription that is not there yet, whatever was tried before."""
        fields.setdefault("sub_type", SHARED)

        def subscribe() -> list[Any]:
            subscription = f"{name}-{next(self._tries)}" if new else name
            return self._wire.keep_consumer(self.place.topic, subscription, **fields)

        self._see(what, subscribe, until)

    def publish(self, what: str, data: bytes, until: str = "SEND_RECEIPT") -> None:
        """Publish one message."""
        self._see(what, lambda: self._wire.try_publish(self.place.topic, data), until)

    def _see(self, what: str, attach: Callable[[], list[Any]], until: str) -> None:
        deadline = time.monotonic() + IN_FORCE_SECONDS_MAX
        told = attach()
        while told[0] != until and time.monotonic() < deadline:
            time.sleep(0.05)
            told = attach()
        name, mark = self._stage.scenario_name, self._stage.mark
        self._stage.see(what, [each.replace(name + mark, name) for each in told])


@scenario("limits-of-counts")
def limits_of_counts(stage: Stage) -> None:
    """Each limit is set below what is in use: what is there stays, and no more comes."""
    wire = Wire(stage.server.service_url)
    try:
        for domain in ("persistent", "non-persistent"):
            attaching = Attaching(stage, wire, domain)
            _producers(attaching)
            _consumers(attaching)
            _subscriptions(stage, attaching)
            _sizes(attaching)
    finally:
        wire.close()


def _producers(attaching: Attaching) -> None:
    for number in range(3):
        attaching.produce(f"producer {number}")
    attaching.limit_topic("maxProducers", 2)
    attaching.produce("over the limit of the topic", until="ProducerBusy")
    attaching.limit_topic("maxProducers", None)
    attaching.limit_namespace("maxProducersPerTopic", 1)
    attaching.produce("over the limit of the namespace", until="ProducerBusy")
    attaching.limit_topic("maxProducers", 1_000)
    attaching.produce("the topic's own is the nearer one")


def _consumers(attaching: Attaching) -> None:
    for number in range(3):
        attaching.consume(f"consumer {number}")
    for policy, name in (("maxConsumersPerSubscription", "s"), ("maxConsumers", "other")):
        attaching.limit_topic(policy, 2)
        attaching.consume(f"over {policy}", name, until="ConsumerBusy")
        attaching.limit_topic(policy, None)
        attaching.consume(f"without {policy}", name)
    attaching.limit_namespace("maxConsumersPerTopic", 2)
    attaching.consume("over the limit of the namespace", until="ConsumerBusy")
    attaching.limit_namespace("maxConsumersPerTopic", None)
    attaching.consume("properties", until="MetadataError", metadata={"key": "x" * 1022})
    attaching.consume("property", metadata={"key": "x" * 1021})


def _subscriptions(stage: Stage, attaching: Attaching) -> None:
    """Those of a non-persistent topic are not limited."""
    limited = attaching.place.topic.startswith("persistent")
    refused = "NotAllowedError" if limited else CONSUMES
    attaching.limit_topic("maxSubscriptionsPerTopic", 2)
    attaching.consume("one more subscription", until=refused, new=True)
    attaching.consume("one that is there")
    path = f"{attaching.place.path}/subscription/{{}}"
    status, _ = attaching.place.ask.raw("PUT", path.format("made"))
    stage.see("made by the administrator", status)
    attaching.limit_topic("maxSubscriptionsPerTopic", None)
    attaching.limit_topic("subscriptionTypesEnabled", ["Shared"])
    for name, number in pb.CommandSubscribe.SubType.items():
        until = CONSUMES if name == "Shared" else refused
        attaching.consume(name, until=until, new=True, sub_type=number)
    different = "NotAllowedError" if limited else "ConsumerBusy"
    attaching.consume("of another type", until=different, sub_type=pb.CommandSubscribe.Exclusive)


def _sizes(attaching: Attaching) -> None:
    """Headers count as well."""
    small, large = (message(b"x" * size, sequence_id=0) for size in (900, 1_100))
    attaching.publish("without a limit", large)
    attaching.limit_topic("maxMessageSize", 1_000)
    attaching.publish("a large one", large, until="NotAllowedError")
    attaching.publish("a small one", small)
    payload = b"x" * (1_000 - len(message(b"", sequence_id=0)))
    attaching.publish("one of exactly the size", message(payload, sequence_id=0))
    one_more = message(payload + b"x", sequence_id=0)
    attaching.publish("one byte more", one_more, until="NotAllowedError")
