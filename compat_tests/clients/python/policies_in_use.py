"""What policies of namespaces do to clients of their topics, beyond what is set for a topic."""

from __future__ import annotations

import time
from itertools import count
from typing import TYPE_CHECKING, Any, Final

import pulsar
from pulsar.schema import Integer, JsonSchema, Long, Record, StringSchema

from compat_tests.clients.python.limits import Place
from compat_tests.clients.python.scenario import (
    Stage,
    receive_many,
    receive_together,
    receive_until_silence,
    scenario,
    send_all,
    texts,
)

if TYPE_CHECKING:
    from collections.abc import Callable

IN_FORCE_SECONDS_MAX: Final = 10.0
BROKER_RATE: Final = "brokerPublisherThrottlingMaxMessageRate"


def until(stage: Stage, what: str, wanted: Any, look: Callable[[], Any]) -> None:
    """Look until it is what is wanted: real Pulsar has policies in force a little after its
    answer."""
    deadline = time.monotonic() + IN_FORCE_SECONDS_MAX
    seen = look()
    while seen != wanted and time.monotonic() < deadline:
        time.sleep(0.05)
        seen = look()
    stage.see(what, seen)


def error_of(action: Callable[[], object]) -> str:
    try:
        action()
    except pulsar.PulsarException as refused:
        return type(refused).__name__
    return "none"


@scenario("publish-rate-of-the-broker")
def publish_rate_of_the_broker(stage: Stage) -> None:
    """All its producers are held by its rate, which is changed while it runs."""
    place = Place(stage)
    path = f"/admin/v2/brokers/configuration/{BROKER_RATE}"

    def limit(rate: int) -> None:
        status, told = place.ask.raw("POST", f"{path}/{rate}")
        assert status < 300, told
        shown = "/admin/v2/brokers/configuration/runtime"
        until(stage, "rate", str(rate), lambda: place.ask("GET", shown)[1][BROKER_RATE])

    producer = stage.new_client().create_producer(place.topic)
    sent = [f"m{number}" for number in range(170)]
    try:
        limit(100)
        start = time.monotonic()
        send_all(producer, sent)
        stage.see("held", 0.5 < time.monotonic() - start < 20)
    finally:
        limit(0)
        place.ask("DELETE", path)
    start = time.monotonic()
    send_all(producer, sent * 2)
    stage.see("not held", time.monotonic() - start < 2)


@scenario("automatic-creation")
def automatic_creation(stage: Stage) -> None:
    """Of topics and subscriptions of a namespace, by clients alone."""
    place = Place(stage)
    base = place.topic.removesuffix("/t")

    def produce(name: str) -> object:
        return stage.client.create_producer(f"{base}/{name}")

    def subscribe(name: str, subscription: str) -> object:
        return stage.client.subscribe(f"{base}/{name}", subscription)

    def partitions(name: str) -> int:
        return len(stage.client.get_topic_partitions(f"{base}/{name}"))

    topics = f"{place.namespace}/autoTopicCreation"
    place.set(topics, {"allowAutoTopicCreation": False})
    stage.see_error("a producer", lambda: produce("a"))
    stage.see_error("a consumer", lambda: subscribe("a", "s"))
    three = {"topicType": "partitioned", "defaultNumPartitions": 3}
    place.set(topics, {"allowAutoTopicCreation": True} | three)
    stage.see_error("a producer of three", lambda: produce("b"))
    stage.see("partitions", partitions("b"))
    place.set(topics, None)
    stage.see_error("a producer of one", lambda: produce("c"))
    stage.see("partition", partitions("c"))
    subscriptions = f"{place.namespace}/autoSubscriptionCreation"
    place.set(subscriptions, {"allowAutoSubscriptionCreation": False})
    impatient = stage.new_client(operation_timeout_seconds=2)
    stage.see_error("a subscription", lambda: impatient.subscribe(f"{base}/c", "s"))
    status, _ = place.ask("PUT", f"{place.path.removesuffix('/t')}/c/subscription/s")
    assert status == 204
    stage.see_error("one that is there", lambda: subscribe("c", "s"))
    place.set(subscriptions, None)
    stage.see_error("a new one", lambda: subscribe("c", "new"))


@scenario("deduplication")
def deduplication(stage: Stage) -> None:
    """Of the namespace, and of the topic against it."""
    place = Place(stage)
    consumer = stage.client.subscribe(place.topic, "s")
    number = count()

    def sent_twice() -> list[str]:
        producer = stage.client.create_producer(place.topic, f"p{next(number)}")
        for text, sequence_id in (("a", 1), ("a", 1), ("b", 2)):
            producer.send(text.encode(), sequence_id=sequence_id)
        producer.close()
        return texts(receive_until_silence(consumer, 200))

    stage.see("of nobody", sent_twice())
    place.set(f"{place.namespace}/deduplication", True)
    until(stage, "of the namespace", ["a", "b"], sent_twice)
    place.set(f"{place.path}/deduplicationEnabled", False)
    until(stage, "of the topic", ["a", "a", "b"], sent_twice)
    place.set(f"{place.path}/deduplicationEnabled", None)
    until(stage, "of the namespace again", ["a", "b"], sent_twice)


class Small(Record):
    number = Integer()


class Large(Record):
    number = Integer()
    more = Long(required=True)


@scenario("schema-policies")
def schema_policies(stage: Stage) -> None:
    """Which schemas come next to that of a topic, and whether producers need one."""
    place = Place(stage)

    def produce(schema: Any = None) -> str:
        more = {} if schema is None else {"schema": schema}
        return error_of(lambda: stage.client.create_producer(place.topic, **more).close())

    strategy = f"{place.path}/schemaCompatibilityStrategy"
    stage.see("the first", produce(JsonSchema(Small)))
    for value in ("ALWAYS_INCOMPATIBLE", "FORWARD"):
        status, _ = place.ask.raw("PUT", strategy, value)
        assert status == 204
        applied = f"{strategy}?applied=true"
        until(stage, "strategy", value, lambda path=applied: place.ask("GET", path)[1])
        stage.see("the same", produce(JsonSchema(Small)))
        stage.see("another", produce(StringSchema()))
        stage.see("more", produce(JsonSchema(Large)))
    stage.see("without a schema", produce())
    place.set(f"{place.namespace}/schemaValidationEnforced", True)
    until(stage, "enforced", "IncompatibleSchema", produce)
    place.set(f"{place.namespace}/schemaValidationEnforced", False)
    until(stage, "no longer enforced", "none", produce)


@scenario("limits-of-unacknowledged")
def limits_of_unacknowledged(stage: Stage) -> None:
    """What is above the limit waits for acknowledgements; none is lost. Real Pulsar may send a few
    more than the limit when two consumers are served at once."""
    place = Place(stage)
    consumers = [
        stage.client.subscribe(
            place.topic, "s", consumer_type=pulsar.ConsumerType.Shared, receiver_queue_size=1
        )
        for _ in range(2)
    ]
    producer = stage.client.create_producer(place.topic, batching_enabled=False)
    for path, value in (
        (f"{place.path}/maxUnackedMessagesOnConsumer", 5),
        (f"{place.namespace}/maxUnackedMessagesPerSubscription", 6),
    ):
        place.set(path, value)
        until(stage, "limit", value, lambda path=path: place.ask("GET", path)[1])
        send_all(producer, [str(number) for number in range(40)])
        first = [receive_until_silence(each, 400, acknowledge=False) for each in consumers]
        came = [text for part in first for text in texts(part)]
        stage.see("some wait", 5 <= len(came) < 30)
        for consumer, part in zip(consumers, first, strict=True):
            for message in part:
                consumer.acknowledge(message)
        for part in receive_together(consumers, 40 - len(came)):
            came += texts(part)
        stage.see("all", sorted(came, key=int))
        place.set(path, None)


@scenario("retention")
def retention(stage: Stage) -> None:
    """What is acknowledged is kept as long as the topic says, or else the namespace."""
    place = Place(stage)
    topic, namespace = (f"{base}/retention" for base in (place.path, place.namespace))
    unlimited = {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}
    consumer = stage.client.subscribe(place.topic, "s")
    producer = stage.client.create_producer(place.topic)
    place.set(namespace, unlimited)
    producer.send(b"old")
    receive_many(consumer, 1)
    producer.close()
    consumer.close()

    def backlog() -> int:
        shown = place.ask("GET", f"{place.path}/stats")[1]["subscriptions"]["s"]
        return int(shown["msgBacklog"])

    def backlog_after_skip() -> int:
        place.ask.raw("POST", f"{place.path}/subscription/s/skip_all")
        return backlog()

    until(stage, "acknowledged", 0, backlog)
    status, _ = place.ask.raw("PUT", f"{place.path}/unload")
    assert status == 204
    # Its ledger is closed when it is loaded again. Real Pulsar may lose an acknowledgement in an
    # unload, even one that its statistics have counted.
    until(stage, "skipped", 0, backlog_after_skip)

    def earliest() -> str:
        status, told = place.ask.raw("POST", f"{place.path}/trim")
        assert status < 300, told
        reader = stage.client.create_reader(place.topic, pulsar.MessageId.earliest)
        try:
            return reader.read_next(500).data().decode()
        except pulsar.Timeout:
            return "nothing"
        finally:
            reader.close()

    def entries() -> int:
        assert place.ask.raw("POST", f"{place.path}/trim")[0] < 300
        return int(place.ask("GET", f"{place.path}/internalStats")[1]["numberOfEntries"])

    stage.see("kept by the namespace", earliest())
    place.set(topic, unlimited)
    until(stage, "retention", unlimited, lambda: place.ask("GET", topic)[1])
    place.set(namespace, None)
    stage.see("kept by the topic", earliest())
    place.set(topic, None)
    until(stage, "entries", 0, entries)  # A reader would keep them in real Pulsar.
    stage.see("trimmed", earliest())
