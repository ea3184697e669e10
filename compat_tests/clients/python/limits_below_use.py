"""Limits that are set below what is in use: what is there stays, and after an unload it comes back
as far as there is room."""

from __future__ import annotations

import time
from itertools import count
from typing import TYPE_CHECKING, Any, Final

import pulsar

from compat_tests.clients.admin_requests import AdminRequests, topic_path
from compat_tests.clients.python.limits import Place
from compat_tests.clients.python.policies_in_use import error_of, until
from compat_tests.clients.python.scenario import (
    Stage,
    receive_many,
    scenario,
    send_all,
    texts,
)

if TYPE_CHECKING:
    from collections.abc import Callable

SHARED: Final = pulsar.ConsumerType.Shared
SUBSCRIPTIONS: Final = ("a", "b", "s")
PAYLOAD: Final = b"there"
SHOWN_SECONDS_MAX: Final = 10.0
PAUSE_SECONDS: Final = 0.25
"""For messages that an acknowledgement lets go."""


class _InUse:
    """A topic with three of everything."""

    def __init__(self, stage: Stage, place: Place, name: str) -> None:
        self._stage, self._place = stage, place
        self._names = count()
        self._client = stage.new_client(operation_timeout_seconds=5)
        self._topic = place.topic.removesuffix("/t") + f"/{name}"
        self.path = place.path.removesuffix("/t") + f"/{name}"
        self.producers = [self._client.create_producer(self._topic) for _ in range(3)]
        self.consumers = [self._subscribe("s") for _ in range(3)]
        self.others = [self._subscribe(name) for name in ("a", "b")]

    def _subscribe(self, name: str) -> pulsar.Consumer:
        return self._client.subscribe(
            self._topic, name, consumer_type=SHARED, receiver_queue_size=1
        )

    def produces(self) -> str:
        """What one more producer is told."""
        return error_of(lambda: self._client.create_producer(self._topic).close())

    def consumes(self, name: str = "s") -> str:
        """What one more consumer is told."""
        return error_of(lambda: self._subscribe(name).close())

    def subscribes_anew(self) -> str:
        """What the consumer of one more subscription is told. None is left behind."""
        return error_of(lambda: self._subscribe(f"new-{next(self._names)}").unsubscribe())

    def limit(self, policy: str, value: int | None) -> None:
        """None: there is no limit any more."""
        path = f"{self._place.namespace}/{policy}"
        self._place.set(path, value)
        until(self._stage, policy, value, lambda: self._place.ask("GET", path)[1])

    def refuses(self, what: str, error: str, attempt: Callable[[], str]) -> None:
        """The limit is in force."""
        until(self._stage, what, error, attempt)

    def leave(self, what: str, clients: list[Any], attempt: Callable[[], str]) -> None:
        """One after the other; the last one makes room."""
        for number, client in enumerate(clients):
            client.close()
            self._stage.see(f"{number + 1} {what} less", attempt())

    def shown(self) -> list[Any]:
        """How many producers there are, and how many consumers by subscription."""
        stats = self._place.ask("GET", f"{self.path}/stats")[1]
        consumers = {name: len(each["consumers"]) for name, each in stats["subscriptions"].items()}
        return [len(stats["publishers"]), dict(sorted(consumers.items()))]


@scenario("limits-below-use")
def limits_below_use(stage: Stage) -> None:
    """Three of each, and a limit of one."""
    place = Place(stage)
    there, unloaded = _InUse(stage, place, "t"), _InUse(stage, place, "unloaded")
    there.limit("maxProducersPerTopic", 1)
    there.refuses("one more producer", "ProducerBusy", there.produces)
    there.limit("maxConsumersPerSubscription", 1)
    there.refuses("one more consumer", "ConsumerBusy", there.consumes)
    there.limit("maxSubscriptionsPerTopic", 1)
    there.refuses("one more subscription", "NotAllowedError", there.subscribes_anew)
    for producer in there.producers:
        producer.send(PAYLOAD)
    for consumer in (*there.consumers, *there.others):
        expected = 1 if consumer in there.consumers else 3
        stage.see("received", texts(receive_many(consumer, expected)))
    _unload(stage, place, unloaded)
    there.leave("producer", there.producers, there.produces)
    there.leave("consumer", there.consumers, there.consumes)
    _consumers_of_topic(there)
    _subscriptions(stage, place, there)
    _sizes(stage, place)


def _unload(stage: Stage, place: Place, there: _InUse) -> None:
    """One of each comes back, and all subscriptions."""
    status, told = place.ask.raw("PUT", f"{there.path}/unload")
    assert status == 204, told
    until(stage, "loaded again", [1, dict.fromkeys(SUBSCRIPTIONS, 1)], there.shown)


def _consumers_of_topic(there: _InUse) -> None:
    there.limit("maxConsumersPerSubscription", None)
    there.limit("maxConsumersPerTopic", 1)
    there.refuses("one more of the topic", "ConsumerBusy", there.consumes)
    there.leave("consumer of the topic", there.others, there.consumes)
    there.limit("maxConsumersPerTopic", None)


def _subscriptions(stage: Stage, place: Place, there: _InUse) -> None:
    for name in SUBSCRIPTIONS:
        stage.see(f"consumer of {name}", there.consumes(name))
    for name in SUBSCRIPTIONS:
        stage.see("deleted", place.ask("DELETE", f"{place.path}/subscription/{name}"))
        stage.see("one subscription more", there.subscribes_anew())
    stage.see("left", there.shown())


def _sizes(stage: Stage, place: Place) -> None:
    """What is stored is delivered, whatever its size."""
    consumer = stage.client.subscribe(place.topic, "new")
    producer = stage.client.create_producer(place.topic)
    producer.send(b"x" * 1_000)
    place.set(f"{place.path}/maxMessageSize", 100)
    stage.see_message("larger than the limit", consumer.receive(10_000))


@scenario("limits-of-zero")
def limits_of_zero(stage: Stage) -> None:
    """No limit by count, whatever the namespace says. By rate, 0 and less say nothing: that of the
    namespace counts."""
    place = Place(stage)
    there = _InUse(stage, place, "t")
    attempts = {
        "maxProducers": ("maxProducersPerTopic", there.produces),
        "maxConsumers": ("maxConsumersPerTopic", there.consumes),
        "maxConsumersPerSubscription": ("maxConsumersPerSubscription", there.consumes),
        "maxSubscriptionsPerTopic": ("maxSubscriptionsPerTopic", there.subscribes_anew),
    }
    for policy, (of_namespace, attempt) in attempts.items():
        there.limit(of_namespace, 1)
        error = {"maxProducers": "ProducerBusy", "maxSubscriptionsPerTopic": "NotAllowedError"}
        there.refuses(f"one over {of_namespace}", error.get(policy, "ConsumerBusy"), attempt)
        place.set(f"{there.path}/{policy}", 0)
        until(stage, f"{policy} of 0", "none", attempt)
        there.limit(of_namespace, None)
    place.set(f"{place.namespace}/publishRate", {"publishThrottlingRateInMsg": 20})
    for rate in (0, -1):
        value = {"publishThrottlingRateInMsg": rate, "publishThrottlingRateInByte": rate}
        path = f"{place.path.removesuffix('/t')}/rate{rate}"
        status, told = place.ask.raw("PUT", path)
        assert status == 204, told
        place.set(f"{path}/publishRate", value)
        until(stage, "rate", value, lambda path=path: place.ask("GET", f"{path}/publishRate")[1])
        producer = stage.client.create_producer(f"{place.topic.removesuffix('/t')}/rate{rate}")
        start = time.monotonic()
        send_all(producer, [str(number) for number in range(45)])  # A second's pass at once.
        stage.see(f"held by {rate}", 0.6 < time.monotonic() - start < 20)


@scenario("unacknowledged-at-half")
def unacknowledged_at_half(stage: Stage) -> None:
    """After how many acknowledgements a consumer or a subscription at its limit gets more."""
    for policy in ("consumer", "subscription"):
        stage.see(policy, _until_more(stage, policy, limit=5))


def _until_more(stage: Stage, policy: str, limit: int) -> int:
    ask = AdminRequests(stage.server.web_url)
    namespace = f"public/{stage.scenario_name}{stage.mark}-{policy}"
    given = {f"max_unacked_messages_per_{policy}": limit}
    status, told = ask.raw("PUT", f"/admin/v2/namespaces/{namespace}", given)
    assert status == 204, told
    topic = f"persistent://{namespace}/t"
    consumer = stage.client.subscribe(topic, "s", consumer_type=SHARED)
    producer = stage.client.create_producer(topic, batching_enabled=False)

    def shown(field: str) -> int:
        stats = ask("GET", f"{topic_path(topic)}/stats")[1]
        return int(stats["subscriptions"]["s"][field])

    def wait(field: str, value: int) -> None:
        deadline = time.monotonic() + SHOWN_SECONDS_MAX
        while shown(field) != value:
            assert time.monotonic() < deadline, f"{field} is {shown(field)} and not {value}"

    for number in range(limit):  # One by one: real Pulsar may send some more at once.
        producer.send(b"%d" % number)
        wait("msgOutCounter", number + 1)
    send_all(producer, ["more"] * 3)
    for acknowledged in range(1, limit + 1):
        consumer.acknowledge(consumer.receive(10_000))
        wait("msgBacklog", limit + 3 - acknowledged)
        time.sleep(PAUSE_SECONDS)
        if shown("msgOutCounter") > limit:
            return acknowledged
    return -1
