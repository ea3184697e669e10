"""Limits of namespaces and topics: which values are taken, and what they do to clients."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from compat_tests.clients.admin_requests import AdminRequests
from compat_tests.clients.python.scenario import (
    Receipts,
    Stage,
    receive_many,
    scenario,
    send_all,
    texts,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

PUBLISH_RATES: Final = (
    {"publishThrottlingRateInMsg": 10, "publishThrottlingRateInByte": 20},
    {"publishThrottlingRateInMsg": 10},
    {},
    {"publishThrottlingRateInMsg": -5, "publishThrottlingRateInByte": -7},
    {"publishThrottlingRateInMsg": 1.5, "other": 1},
    {"publishThrottlingRateInMsg": "7"},
    {"publishThrottlingRateInMsg": None},
    {"publishThrottlingRateInMsg": "x"},
    {"publishThrottlingRateInMsg": True},
    {"publishThrottlingRateInMsg": 2**31},
    b"null",
    None,
    5,
    [],
)
NUMBERS: Final = (5, 0, -1, 1.5, "5", "x", True, b"null", None, [], {})
TYPES: Final = (["Shared"], ["Exclusive", "Failover"], [], ["Shared", "Shared"])
RATES: Final = (("publishRate", PUBLISH_RATES),)
OF_NAMESPACES: Final = (
    *RATES,
    ("maxProducersPerTopic", NUMBERS),
    ("maxConsumersPerTopic", NUMBERS),
    ("maxSubscriptionsPerTopic", NUMBERS),
    ("maxConsumersPerSubscription", NUMBERS),
    ("maxUnackedMessagesPerConsumer", NUMBERS),
    ("maxUnackedMessagesPerSubscription", NUMBERS),
    ("subscriptionTypesEnabled", TYPES),
)
OF_TOPICS: Final = (
    *RATES,
    ("maxProducers", NUMBERS),
    ("maxConsumers", NUMBERS),
    ("maxSubscriptionsPerTopic", NUMBERS),
    ("maxConsumersPerSubscription", NUMBERS),
    ("maxMessageSize", (*NUMBERS, 10**9)),
    ("maxUnackedMessagesOnConsumer", NUMBERS),
    ("maxUnackedMessagesOnSubscription", NUMBERS),
    ("subscriptionTypesEnabled", TYPES),
)


class Place:
    """A namespace of the scenario's own, with a topic."""

    def __init__(self, stage: Stage, domain: str = "persistent") -> None:
        name = f"public/{stage.scenario_name}{stage.mark}-{domain}"
        self.ask = AdminRequests(stage.server.web_url)
        self.namespace = f"/admin/v2/namespaces/{name}"
        self.topic = f"{domain}://{name}/t"
        self.path = f"/admin/v2/{domain}/{name}/t"
        for path in (self.namespace, self.path):
            status, told = self.ask.raw("PUT", path)
            assert status == 204, (path, status, told)

    def told(self, method: str, path: str, body: Any = None) -> list[Any]:
        """Status and answer. Why JSON cannot be read is said in words of each server's own. Names
        are sorted: those in a set of Java have another order in each process."""
        status, answer = self.ask(method, path, body)
        if isinstance(answer, list) and all(isinstance(each, str) for each in answer):
            answer = sorted(answer)
        return [status, None if status == 400 else answer]

    def set(self, path: str, value: Any) -> None:
        """Set a policy, which must be taken. None: remove it."""
        status, told = self.ask.raw("DELETE" if value is None else "POST", path, value)
        assert status == 204, (path, value, status, told)


def try_values(
    stage: Stage, place: Place, base: str, policies: Sequence[tuple[str, Sequence[Any]]]
) -> None:
    """Set each value of each policy below a path, and show what it is then."""
    for policy, values in policies:
        path = f"{base}/{policy}"
        stage.see(f"{policy} unset", place.told("GET", path))
        stage.see("applied", place.told("GET", f"{path}?applied=true"))
        for value in values:
            stage.see(f"{policy} {value!r}", place.told("POST", path, value))
            stage.see("kept", place.told("GET", path))
        stage.see("applied", place.told("GET", f"{path}?applied=true"))
        for _ in range(2):
            stage.see("removed", place.told("DELETE", path))
        stage.see("left", place.told("GET", path))


@scenario("limit-values-of-namespaces")
def limit_values_of_namespaces(stage: Stage) -> None:
    place = Place(stage)
    try_values(stage, place, place.namespace, OF_NAMESPACES)


@scenario("limit-values-of-topics")
def limit_values_of_topics(stage: Stage) -> None:
    place = Place(stage)
    try_values(stage, place, place.path, OF_TOPICS)


@scenario("limits-of-what-is-not-there")
def limits_of_what_is_not_there(stage: Stage) -> None:
    place = Place(stage)
    tail = place.path.removeprefix("/admin/v2/persistent/").removesuffix("/t")
    for policy, values in OF_TOPICS:
        if policy == "maxMessageSize":
            continue  # it alone asks for the tenant first, on Pulsar
        for path in (f"{tail}/absent", f"{tail}-absent/t", "absent/absent/t"):
            for method, body in (("GET", None), ("POST", values[0]), ("DELETE", None)):
                status, told = place.ask(method, f"/admin/v2/persistent/{path}/{policy}", body)
                stage.see(f"{method} {policy} of {path}", [status, told])


@scenario("publish-rate")
def publish_rate(stage: Stage) -> None:
    """A second's messages pass at once, and the others at the rate. None is refused."""
    place = Place(stage)
    rate = f"{place.namespace}/publishRate"
    place.set(rate, {"publishThrottlingRateInMsg": 50, "publishThrottlingRateInByte": -1})
    consumer = stage.client.subscribe(place.topic, "s")
    limited = stage.new_client().create_producer(place.topic)
    sent = [f"m{number}" for number in range(200)]
    start = time.monotonic()
    send_all(limited, sent)
    seconds = time.monotonic() - start
    stage.see("held", 2 < seconds < 20)
    stage.see("received", texts(receive_many(consumer, 200)))
    # The topic's own rate is the nearer one, also when it is above that of the namespace.
    place.set(f"{place.path}/publishRate", {"publishThrottlingRateInMsg": 100_000})
    start = time.monotonic()
    send_all(limited, sent * 3)  # at 50 a second they would take ten seconds and more
    stage.see("no longer held", time.monotonic() - start < 9)
    stage.see("received", texts(receive_many(consumer, 600)))


@scenario("publish-rate-in-bytes")
def publish_rate_in_bytes(stage: Stage) -> None:
    """Another connection's producer on another topic is not held."""
    place = Place(stage)
    place.set(f"{place.path}/publishRate", {"publishThrottlingRateInByte": 10_000})
    limited = stage.new_client().create_producer(place.topic)
    free = stage.client.create_producer(f"{place.topic}-free")
    receipts = Receipts()
    start = time.monotonic()
    for _ in range(30):
        limited.send_async(b"x" * 1_000, receipts)
    for number in range(30):
        free.send(b"%d" % number)
    stage.see("the other one was first", len(receipts) < 30)
    limited.flush()
    stage.see("held", 1.5 < time.monotonic() - start < 20)
    stage.see("results", sorted({str(result) for result in receipts.take(30)}))
