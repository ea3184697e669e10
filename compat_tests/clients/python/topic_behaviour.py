"""Policies of topics about what they keep and do: which values are taken, and what clients see."""

from __future__ import annotations

import time
from itertools import count
from typing import Any, Final

import pulsar

from compat_tests.clients.python.limits import Place
from compat_tests.clients.python.scenario import Stage, receive_until_silence, scenario, texts
from compat_tests.clients.python.wire import Wire, wire_schema
from protocol import client

FLAGS: Final = (True, False, "true", "x", 1, 0, b"null", None, [])
NUMBERS: Final = (5, 0, -1, 1.5, "5", "x", True, b"null", None, [])
DELAYED: Final = (
    {"tickTime": 2000, "active": True, "maxDeliveryDelayInMillis": 10},
    {"active": False},
    {},
    {"tickTime": -1, "maxDeliveryDelayInMillis": -4},
    {"active": "x"},
    b"null",
    None,
    5,
)
INACTIVE: Final = (
    {
        "inactiveTopicDeleteMode": "delete_when_subscriptions_caught_up",
        "maxInactiveDurationSeconds": 10,
        "deleteWhileInactive": True,
    },
    {},
    {"maxInactiveDurationSeconds": -5, "other": 1},
    {"maxInactiveDurationSeconds": "x"},
    b"null",
    None,
    5,
)
RETENTION: Final = (
    {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1},
    {"retentionTimeInMinutes": 10},
    {},
    {"retentionTimeInMinutes": -2, "retentionSizeInMB": 1},
    b"null",
    None,
    5,
)
CREATION: Final = ({"allowAutoSubscriptionCreation": True}, {}, b"null", None, 5, {"x": 1})
CLUSTERS: Final = (["standalone", "standalone"], [], ["other"], ["global"], b"null", None, "x")
FILTERS: Final = ({"entryFilterNames": "a,b"}, {"entryFilterNames": ""}, {}, b"null", None, 5)
STRATEGIES: Final = ("FULL", "UNDEFINED", "ALWAYS_INCOMPATIBLE", b"null", None, [])
OF_BOTH: Final = (
    ("deduplicationSnapshotInterval", "POST", NUMBERS),
    ("delayedDelivery", "POST", DELAYED),
    ("inactiveTopicPolicies", "POST", INACTIVE),
    ("entryFilters", "POST", FILTERS),
    ("dispatcherPauseOnAckStatePersistent", "POST", FLAGS),
    ("autoSubscriptionCreation", "POST", CREATION),
    ("schemaCompatibilityStrategy", "PUT", STRATEGIES),
    ("schemaValidationEnforced", "POST", FLAGS),
    ("retention", "POST", RETENTION),
    ("replication", "POST", CLUSTERS),
)
OF_NAMESPACES: Final = (
    *OF_BOTH,
    ("deduplication", "POST", FLAGS),
    ("compactionThreshold", "PUT", (*NUMBERS, 10**12)),
    ("offloadThreshold", "PUT", (-1, -7, "x", True, None, [])),
    ("schemaAutoUpdateCompatibilityStrategy", "PUT", ("Full", b"null", None)),
    ("allowedClusters", "POST", (["standalone"], [], ["other"], "x")),
)
OF_TOPICS: Final = (
    *OF_BOTH,
    ("deduplicationEnabled", "POST", FLAGS),
    ("compactionThreshold", "POST", (*NUMBERS, 10**12)),
)
NOT_REMOVED: Final = frozenset(
    {
        "schemaValidationEnforced",
        "schemaCompatibilityStrategy",
        "schemaAutoUpdateCompatibilityStrategy",
        "replication",
        "allowedClusters",
        "offloadThreshold",
        "deduplicationSnapshotInterval",
    }
)
"""Pulsar has no removal of them for namespaces."""


def _try_values(stage: Stage, where: str, policies: Any) -> None:
    place = Place(stage)
    base = place.namespace if where == "namespace" else place.path
    for policy, method, values in policies:
        path = f"{base}/{policy}"
        stage.see(f"{policy} unset", place.told("GET", path))
        stage.see("applied", place.told("GET", f"{path}?applied=true"))
        for value in values:
            stage.see(f"{policy} {value!r}", place.told(method, path, value))
            stage.see("kept", place.told("GET", path))
        stage.see("applied", place.told("GET", f"{path}?applied=true"))
        if policy not in NOT_REMOVED or (where, policy) == (
            "topic",
            "deduplicationSnapshotInterval",
        ):
            stage.see("removed", place.told("DELETE", path))
            stage.see("left", place.told("GET", path))
            stage.see("applied", place.told("GET", f"{path}?applied=true"))


@scenario("behaviour-values-of-namespaces")
def behaviour_values_of_namespaces(stage: Stage) -> None:
    _try_values(stage, "namespace", OF_NAMESPACES)


@scenario("behaviour-values-of-topics")
def behaviour_values_of_topics(stage: Stage) -> None:
    _try_values(stage, "topic", OF_TOPICS)


def _until(stage: Stage, what: str, wanted: Any, look: Any) -> None:
    """Real Pulsar has a policy of a topic in force a little after its answer."""
    seen = look()
    for _ in range(50):
        if seen == wanted:
            break
        time.sleep(0.1)
        seen = look()
    stage.see(what, seen)


@scenario("behaviour-of-a-topic")
def behaviour_of_a_topic(stage: Stage) -> None:
    """Each policy is in force on a topic that is in use, and no longer after its removal."""
    place = Place(stage)
    consumer = stage.client.subscribe(place.topic, "s", pulsar.ConsumerType.Shared)
    wire = Wire(stage.server.service_url)
    try:
        _delays(stage, place, wire)
        _subscriptions(stage, place, wire)
        _deduplication(stage, place, consumer)
        _schemas(stage, place, wire)
    finally:
        wire.close()


def _delays(stage: Stage, place: Place, wire: Wire) -> None:
    def told(delay_ms: int) -> list[Any]:
        times: dict[str, Any] = {"publish_time": 1_000, "deliver_at_time": 1_000 + delay_ms}
        return wire.try_publish(place.topic, client.message(b"x", **times))

    taken = told(10_000)
    stage.see("any delay", taken)
    place.set(f"{place.path}/delayedDelivery", {"active": True, "maxDeliveryDelayInMillis": 500})
    text = "Exceeds max allowed delivery delay of 500 milliseconds"
    _until(stage, "a longer delay", ["NotAllowedError", text], lambda: told(501))
    stage.see("the longest delay", told(500))
    place.set(f"{place.path}/delayedDelivery", None)
    _until(stage, "any delay again", taken, lambda: told(501))


def _subscriptions(stage: Stage, place: Place, wire: Wire) -> None:
    path = f"{place.path}/autoSubscriptionCreation"
    number = count()

    def told() -> str:
        return str(wire.keep_consumer(place.topic, f"other-{next(number)}")[0])

    place.set(path, {"allowAutoSubscriptionCreation": False})
    _until(stage, "no new subscription", "SubscriptionNotFound", told)
    place.set(path, {"allowAutoSubscriptionCreation": True})
    _until(stage, "a new subscription", "SUCCESS", told)
    place.set(path, None)


def _deduplication(stage: Stage, place: Place, consumer: pulsar.Consumer) -> None:
    place.set(f"{place.path}/deduplicationEnabled", True)
    time.sleep(1)
    producer = stage.client.create_producer(place.topic, "named")
    for sequence_id, text in ((1, "a"), (1, "again"), (2, "b"), (1, "late")):
        producer.send(text.encode(), sequence_id=sequence_id)
    place.set(f"{place.path}/deduplicationEnabled", False)
    time.sleep(1)
    producer.send(b"twice", sequence_id=2)
    producer.close()
    found = texts(receive_until_silence(consumer))
    stage.see("stored once", [each for each in found if each != "x"])


def _schemas(stage: Stage, place: Place, wire: Wire) -> None:
    topic, path = f"{place.topic}-with-schema", f"{place.path}-with-schema"
    policy = f"{path}/schemaValidationEnforced"
    assert place.ask.raw("PUT", path)[0] == 204
    record = '{"type": "record", "name": "r", "fields": [{"name": "a", "type": "int"}]}'
    stage.see("first", wire.produce(topic, wire_schema("AVRO", record))[0])

    def told() -> str:
        return str(wire.keep_producer(topic)[0])

    stage.see("a producer without schema", told())
    assert place.ask.raw("POST", policy, True)[0] == 204
    _until(stage, "refused", "IncompatibleSchema", told)
    assert place.ask.raw("POST", policy, False)[0] == 204
    _until(stage, "taken again", "PRODUCER_SUCCESS", told)
