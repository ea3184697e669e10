"""Delivery: the four subscription types, several subscriptions, leaving for good."""

from __future__ import annotations

import time
from collections import defaultdict

import pulsar

from compat_tests.clients.python.scenario import (
    Stage,
    receive_many,
    receive_together,
    receive_until_silence,
    scenario,
    send_all,
    texts,
)
from compat_tests.clients.python.wire import Wire


@scenario("exclusive")
def exclusive(stage: Stage) -> None:
    first = stage.client.subscribe(stage.topic(), "s")
    for kind in ("Exclusive", "Shared", "Failover", "KeyShared"):
        stage.see_error(
            f"a second consumer, {kind}",
            lambda kind=kind: stage.client.subscribe(
                stage.topic(), "s", consumer_type=getattr(pulsar.ConsumerType, kind)
            ),
        )
    producer = stage.client.create_producer(stage.topic())
    send_all(producer, ["a", "b", "c"])
    stage.see("first got", texts(receive_many(first, 3, acknowledge=False)))
    first.close()
    second = stage.client.subscribe(stage.topic(), "s")
    for message in receive_many(second, 3):
        stage.see_message("second got", message)


@scenario("failover")
def failover(stage: Stage) -> None:
    consumers = {
        name: stage.client.subscribe(
            stage.topic(), "s", consumer_type=pulsar.ConsumerType.Failover, consumer_name=name
        )
        for name in ("consumer-b", "consumer-a", "consumer-c")
    }
    time.sleep(1.5)  # the broker delays a change of the active consumer by up to a second
    producer = stage.client.create_producer(stage.topic())
    for turn in range(3):
        send_all(producer, [f"turn {turn} message {number}" for number in range(5)])
        got: dict[str, list[str]] = {}
        for name, messages in zip(
            consumers, receive_together(list(consumers.values()), 5), strict=True
        ):
            if messages:
                got[name] = texts(messages)
        stage.see(f"turn {turn}", got)
        active = next(iter(got))
        consumers.pop(active).close()
        time.sleep(1.5)
        if not consumers:
            break


@scenario("shared")
def shared(stage: Stage) -> None:
    consumers = [
        stage.client.subscribe(
            stage.topic(), "s", consumer_type=pulsar.ConsumerType.Shared, consumer_name=f"c{n}"
        )
        for n in range(3)
    ]
    producer = stage.client.create_producer(stage.topic())
    for number in range(60):
        producer.send(f"message {number}".encode())
    taken = [texts(part) for part in receive_together(consumers, 60)]
    together = sorted((text for part in taken for text in part), key=lambda t: int(t.split()[1]))
    assert all(taken), [len(part) for part in taken]
    stage.see("all consumers together", together)
    stage.see(
        "each in order", [part == sorted(part, key=lambda t: int(t.split()[1])) for part in taken]
    )


@scenario("shared-unacked-go-to-the-others")
def shared_unacked_go_to_the_others(stage: Stage) -> None:
    kind = pulsar.ConsumerType.Shared
    first = stage.client.subscribe(stage.topic(), "s", consumer_type=kind)
    producer = stage.client.create_producer(stage.topic())
    send_all(producer, [str(number) for number in range(10)])
    got = receive_many(first, 10, acknowledge=False)
    for message in got[::2]:
        first.acknowledge(message)
    time.sleep(0.5)  # let the grouped acks leave
    second = stage.client.subscribe(stage.topic(), "s", consumer_type=kind)
    first.close()
    rest = sorted(receive_many(second, 5), key=lambda message: message.data())
    for message in rest:
        stage.see_message("second got", message)
    stage.see("more", texts(receive_until_silence(second)))


@scenario("key-shared-auto")
def key_shared_auto(stage: Stage) -> None:
    kind = pulsar.ConsumerType.KeyShared
    consumers = [
        stage.client.subscribe(stage.topic(), "s", consumer_type=kind, consumer_name=f"c{n}")
        for n in range(2)
    ]
    producer = stage.client.create_producer(
        stage.topic(), batching_enabled=True, batching_type=pulsar.BatchingType.KeyBased
    )
    keys = [f"key-{number}" for number in range(24)]
    for number in range(10):
        for key in keys:
            producer.send_async(f"{number}".encode(), None, partition_key=key)
    producer.flush()
    owners: dict[str, set[int]] = defaultdict(set)
    order: dict[str, list[str]] = defaultdict(list)
    for index, got in enumerate(receive_together(consumers, 240)):
        assert got, f"consumer {index} got nothing"
        for message in got:
            owners[message.partition_key()].add(index)
            order[message.partition_key()].append(message.data().decode())
    stage.see("owners of a key", {key: len(owners[key]) for key in sorted(owners)})
    stage.see("order within a key", {key: order[key] for key in sorted(order)})
    consumers[0].close()
    for key in keys:
        producer.send(b"after", partition_key=key)
    stage.see("the one left", sorted(m.partition_key() for m in receive_many(consumers[1], 24)))


@scenario("key-shared-sticky")
def key_shared_sticky(stage: Stage) -> None:
    def subscribe(name: str, ranges: list[tuple[int, int]]) -> pulsar.Consumer:
        return stage.client.subscribe(
            stage.topic(),
            "s",
            consumer_type=pulsar.ConsumerType.KeyShared,
            consumer_name=name,
            key_shared_policy=pulsar.ConsumerKeySharedPolicy(
                key_shared_mode=pulsar.KeySharedMode.Sticky, sticky_ranges=ranges
            ),
        )

    low, high = subscribe("low", [(0, 30000)]), subscribe("high", [(30001, 65535)])
    stage.see_error("overlapping", lambda: subscribe("third", [(100, 200)]))
    producer = stage.client.create_producer(stage.topic())
    for number in range(40):
        producer.send(str(number).encode(), partition_key=f"key-{number}")
    for name, got in zip(("low", "high"), receive_together([low, high], 40), strict=True):
        assert got
        stage.see(name, [message.partition_key() for message in got])


@scenario("several-subscriptions")
def several_subscriptions(stage: Stage) -> None:
    earliest = pulsar.InitialPosition.Earliest
    early = stage.client.subscribe(stage.topic(), "early")
    producer = stage.client.create_producer(stage.topic())
    send_all(producer, ["before 1", "before 2"])
    late = stage.client.subscribe(stage.topic(), "late")
    from_start = stage.client.subscribe(stage.topic(), "start", initial_position=earliest)
    send_all(producer, ["after 1", "after 2"])
    for name, consumer, count in (
        ("early", early, 4),
        ("late", late, 2),
        ("from start", from_start, 4),
    ):
        stage.see(name, texts(receive_together([consumer], count)[0]))


@scenario("unsubscribe")
def unsubscribe(stage: Stage) -> None:
    consumer = stage.client.subscribe(stage.topic(), "s")
    producer = stage.client.create_producer(stage.topic())
    send_all(producer, ["one", "two"])
    stage.see("first got", texts(receive_many(consumer, 1)))
    consumer.unsubscribe()
    stage.see_error("receive after it", lambda: consumer.receive(500))
    again = stage.client.subscribe(stage.topic(), "s")
    stage.see("a new one of the name", texts(receive_until_silence(again)))
    second = stage.client.subscribe(
        stage.topic(), "shared", consumer_type=pulsar.ConsumerType.Shared
    )
    other = stage.client.subscribe(
        stage.topic(), "shared", consumer_type=pulsar.ConsumerType.Shared
    )
    stage.see_error("unsubscribe with another one there", second.unsubscribe)
    other.close()
    stage.see_error("unsubscribe alone", second.unsubscribe)


@scenario("replicated-subscription-state")
def replicated_subscription_state(stage: Stage) -> None:
    """Once wanted, it stays so: without the next consumer's wish, and after the topic is loaded
    again."""
    topic, wire = stage.topic(), Wire(stage.server.service_url)
    path = "/admin/v2/" + topic.replace("://", "/")

    def look(when: str) -> None:
        stage.see(when, wire.try_consumer(topic, "s", replicate_subscription_state=False))
        status, stats = stage.server.http("GET", f"{path}/stats")
        found = stats["subscriptions"]["s"]
        stage.see(when, [status, found["isReplicated"], found["replicated"]])

    try:
        look("new")
        stage.see("wanted", wire.try_consumer(topic, "s", replicate_subscription_state=True))
        look("then")
        stage.see("unload", stage.server.http("PUT", f"{path}/unload")[0])
        look("loaded again")
    finally:
        wire.close()


@scenario("replicated-subscription-status")
def replicated_subscription_status(stage: Stage) -> None:
    """The status of each partition, which an administrator sets and takes back."""
    plain, parted = stage.topic(), stage.topic("-parted")
    stage.partition(parted, 2)
    for name in (plain, parted):
        for subscription in ("s", "other"):
            stage.client.subscribe(name, subscription).close()
    stage.client.subscribe(f"{parted}-partition-0", "one").close()
    bodies = (True, False, "true", "yes", 1, 0, 2, [], {}, None)
    for topic in (plain, parted, f"{parted}-partition-1"):
        path = _status_path(topic, "s")
        _see_status(stage, "at first", topic, "s")
        for body in bodies:
            stage.see(f"set to {body!r}", _without_ids(stage, "POST", path, body))
            _see_status(stage, "then", topic, "s")
        stage.server.http("POST", path, True)
        assert stage.server.http("PUT", f"/admin/v2/{topic.replace('://', '/')}/unload")[0] == 204
        _see_status(stage, "loaded again", topic, "s")
        _see_status(stage, "the other one", topic, "other")
        stage.see("taken back", _without_ids(stage, "POST", path, False))
        assert stage.server.http("PUT", f"/admin/v2/{topic.replace('://', '/')}/unload")[0] == 204
        _see_status(stage, "loaded again", topic, "s")
    for topic, subscription in (
        (plain, "none"),
        (stage.topic("-absent"), "s"),
        (parted, "none"),
        (parted, "one"),
        (f"{parted}-partition-1", "none"),
        (stage.topic("-light", "non-persistent"), "s"),
    ):
        path = _status_path(topic, subscription)
        _see_status(stage, "refused", topic, subscription)
        stage.see("refused", _without_ids(stage, "POST", path, True))
    _see_status(stage, "after the refusals", f"{parted}-partition-0", "one")


def _status_path(topic: str, subscription: str) -> str:
    path = topic.replace("://", "/")
    return f"/admin/v2/{path}/subscription/{subscription}/replicatedSubscriptionStatus"


def _see_status(stage: Stage, when: str, topic: str, subscription: str) -> None:
    stage.see(when, _without_ids(stage, "GET", _status_path(topic, subscription)))


def _without_ids(stage: Stage, method: str, path: str, body: object = None) -> list[object]:
    """Status and body; of a refusal the status alone."""
    status, answer = stage.server.http(method, path, body)
    if status >= 300:
        return [status]
    return [status, sorted(answer.items()) if isinstance(answer, dict) else answer]
