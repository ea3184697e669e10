"""Rates of dispatch and of subscribing: which values are taken, and what they do to consumers."""

from __future__ import annotations

import time
from typing import Any, Final

import pulsar

from compat_tests.clients.python.limits import Place, try_values
from compat_tests.clients.python.scenario import Stage, receive_many, scenario, send_all, texts

FULL: Final = {
    "dispatchThrottlingRateInMsg": 10,
    "dispatchThrottlingRateInByte": 20,
    "ratePeriodInSecond": 2,
    "relativeToPublishRate": True,
}
DISPATCH_RATES: Final = (
    FULL,
    {"dispatchThrottlingRateInMsg": 10},
    {},
    {"dispatchThrottlingRateInMsg": -5, "ratePeriodInSecond": -3},
    {"dispatchThrottlingRateInMsg": 1.5, "relativeToPublishRate": None, "other": 1},
    {"dispatchThrottlingRateInByte": "7", "relativeToPublishRate": 1},
    {"relativeToPublishRate": "x"},
    {"dispatchThrottlingRateInMsg": 2**31},
    b"null",
    None,
    5,
)
SUBSCRIBE_RATES: Final = (
    {"subscribeThrottlingRatePerConsumer": 10, "ratePeriodInSecond": 20},
    {"subscribeThrottlingRatePerConsumer": 10},
    {},
    {"subscribeThrottlingRatePerConsumer": -5, "ratePeriodInSecond": -7},
    b"null",
    None,
    5,
)
RATES: Final = (
    ("dispatchRate", DISPATCH_RATES),
    ("subscriptionDispatchRate", DISPATCH_RATES),
    ("replicatorDispatchRate", DISPATCH_RATES[:4] + DISPATCH_RATES[-3:]),
    ("subscribeRate", SUBSCRIBE_RATES),
)


@scenario("delivery-rate-values")
def delivery_rate_values(stage: Stage) -> None:
    """Of a namespace, of a topic, and of a subscription."""
    place = Place(stage)
    try_values(stage, place, place.namespace, RATES)
    try_values(stage, place, place.path, RATES)
    try_values(stage, place, f"{place.path}/s", RATES[:1])
    for level in (place.namespace, place.path):
        place.set(f"{level}/subscriptionDispatchRate", {"ratePeriodInSecond": 4})
        applied = f"{place.path}/s/dispatchRate?applied=true"
        stage.see("applied to a subscription", place.told("GET", applied))


def _rate(messages: int = 0, size_bytes: int = 0) -> dict[str, Any]:
    return {
        "dispatchThrottlingRateInMsg": messages,
        "dispatchThrottlingRateInByte": size_bytes,
        "ratePeriodInSecond": 1,
    }


def _throttled(place: Place, name: str) -> list[str]:
    """The fields of the statistics that count how often a rate held the subscription."""
    _, stats = place.ask("GET", f"{place.path}/stats")
    subscription = stats["subscriptions"][name]
    return sorted(each for each in subscription if "Throttled" in each and subscription[each])


@scenario("dispatch-rate")
def dispatch_rate(stage: Stage) -> None:
    """What is over the rate comes later, whatever the type. None is lost. A rate that is removed
    lets those that wait go on."""
    place = Place(stage)
    place.set(f"{place.namespace}/subscriptionDispatchRate", _rate(50))
    types = (
        pulsar.ConsumerType.Exclusive,
        pulsar.ConsumerType.Failover,
        pulsar.ConsumerType.Shared,
        pulsar.ConsumerType.KeyShared,
    )
    consumers = {
        each: stage.client.subscribe(place.topic, each.name, consumer_type=each) for each in types
    }
    free = stage.client.subscribe(f"{place.topic}-free", "s")
    sent = [f"m{number}" for number in range(120)]
    start = time.monotonic()
    for topic in (place.topic, f"{place.topic}-free"):
        send_all(stage.client.create_producer(topic), sent)
    place.set(f"{place.path}-free/subscriptionDispatchRate", _rate(100_000))
    for kind, consumer in consumers.items():
        stage.see(kind.name, texts(receive_many(consumer, 120)))
    stage.see("held", 1 < time.monotonic() - start < 10)
    stage.see("counted", _throttled(place, "Shared"))
    stage.see("free", texts(receive_many(free, 120)))


@scenario("dispatch-rate-of-one-subscription")
def dispatch_rate_of_one_subscription(stage: Stage) -> None:
    """Its own rate decides, and a topic that stores nothing has none."""
    place = Place(stage)
    place.set(f"{place.path}/slow/dispatchRate", _rate(10))
    passing = f"non-{place.topic}-passing"
    place.set(f"{place.namespace}/dispatchRate", _rate(1_000, 100_000_000))
    slow, quick = (stage.client.subscribe(place.topic, name) for name in ("slow", "quick"))
    passes = stage.client.create_producer(passing)
    unstored = stage.client.subscribe(passing, "s")
    sent = [f"m{number}" for number in range(60)]
    producer = stage.client.create_producer(place.topic)
    start = time.monotonic()
    send_all(producer, sent)
    stage.see("quick", texts(receive_many(quick, 60)))
    send_all(passes, sent)
    stage.see("not stored", texts(receive_many(unstored, 60)))
    stage.see("not held", time.monotonic() - start < 3)
    stage.see("first", texts(receive_many(slow, 10)))
    start = time.monotonic()
    status, _ = place.ask("DELETE", f"{place.path}/slow/dispatchRate")
    stage.see("removed", status)
    stage.see("rest", texts(receive_many(slow, 50)))
    stage.see("no longer held", time.monotonic() - start < 4)


@scenario("subscribe-rate")
def subscribe_rate(stage: Stage) -> None:
    """A consumer that comes again too soon is refused, and another one is not."""
    place = Place(stage)
    place.set(
        f"{place.path}/subscribeRate",
        {"subscribeThrottlingRatePerConsumer": 1, "ratePeriodInSecond": 30},
    )
    for client_number in range(2):
        client = stage.new_client()
        for name in ("a", "b"):
            try:
                client.subscribe(place.topic, "s", consumer_name=name).close()
                stage.see(f"{client_number} {name}", "ok")
            except pulsar.PulsarException as error:
                stage.see(f"{client_number} {name}", str(error).partition("\n")[0])
