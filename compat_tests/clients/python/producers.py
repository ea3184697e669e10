"""Producers: names, sequence ids, access modes and the errors that go with them."""

from __future__ import annotations

import threading

import pulsar

from compat_tests.clients.python.scenario import Stage, receive_many, scenario, send_all, texts


@scenario("producer-name-in-use")
def producer_name_in_use(stage: Stage) -> None:
    first = stage.client.create_producer(stage.topic(), producer_name="p")
    other = stage.new_client()
    stage.see_error(
        "the same name again", lambda: other.create_producer(stage.topic(), producer_name="p")
    )
    first.close()
    stage.see_error(
        "after the first has closed",
        lambda: other.create_producer(stage.topic(), producer_name="p"),
    )


@scenario("producer-access-modes")
def producer_access_modes(stage: Stage) -> None:
    modes = pulsar.ProducerAccessMode

    def create(mode: pulsar.ProducerAccessMode, part: str = "") -> pulsar.Producer:
        return stage.client.create_producer(
            stage.topic(part), access_mode=mode, send_timeout_millis=3000
        )

    exclusive = create(modes.Exclusive)
    exclusive.send(b"from the exclusive one")
    stage.see_error("Shared beside Exclusive", lambda: create(modes.Shared))
    stage.see_error("Exclusive beside Exclusive", lambda: create(modes.Exclusive))
    created: list[pulsar.Producer] = []
    waiting = threading.Thread(target=lambda: created.append(create(modes.WaitForExclusive)))
    waiting.start()
    waiting.join(1.0)
    stage.see("one that waits is there at once", bool(created))
    exclusive.close()
    waiting.join(15.0)
    stage.see("one that waits is there after the close", bool(created))
    created[0].send(b"from the one that waited")
    fenced = create(modes.Exclusive, "-fenced")
    fenced.send(b"before")
    fencing = stage.new_client().create_producer(
        stage.topic("-fenced"), access_mode=modes.ExclusiveWithFencing
    )
    fencing.send(b"from the fencing one")
    stage.see_error("send of the fenced one", lambda: fenced.send(b"no"))
    shared = create(modes.Shared, "-shared")
    stage.see_error("Exclusive beside Shared", lambda: create(modes.Exclusive, "-shared"))
    shared.send(b"from the shared one")
    consumer = stage.client.subscribe(
        stage.topic(), "s", initial_position=pulsar.InitialPosition.Earliest
    )
    stage.see("all", texts(receive_many(consumer, 2)))


@scenario("sequence-ids")
def sequence_ids(stage: Stage) -> None:
    producer = stage.client.create_producer(stage.topic(), producer_name="p")
    stage.see("new", producer.last_sequence_id())
    send_all(producer, ["a", "b", "c"])
    stage.see("after three", producer.last_sequence_id())
    producer.send(b"d", sequence_id=17)
    stage.see("after a given one", producer.last_sequence_id())
    producer.close()
    again = stage.client.create_producer(
        stage.topic("-other"), producer_name="p", initial_sequence_id=41
    )
    again.send(b"e")
    stage.see("with an initial one", again.last_sequence_id())
    consumer = stage.client.subscribe(
        stage.topic(), "s", initial_position=pulsar.InitialPosition.Earliest
    )
    got = receive_many(consumer, 4)
    stage.see("all", texts(got))
    stage.see("producer names", [message.producer_name() for message in got])


@scenario("names-refused")
def names_refused(stage: Stage) -> None:
    for what, topic in (
        ("unknown tenant", "persistent://no-such-tenant/ns/t"),
        ("unknown namespace", "persistent://public/no-such-namespace/t"),
        ("no topic name", "persistent://public/default"),
    ):
        stage.see_error(
            f"producer, {what}", lambda topic=topic: stage.client.create_producer(topic)
        )
        stage.see_error(f"consumer, {what}", lambda topic=topic: stage.client.subscribe(topic, "s"))


@scenario("many-producers-on-one-topic")
def many_producers_on_one_topic(stage: Stage) -> None:
    consumer = stage.client.subscribe(stage.topic(), "s")
    producers = [stage.client.create_producer(stage.topic()) for _ in range(20)]
    for number, producer in enumerate(producers):
        send_all(producer, [f"{number} {turn}" for turn in range(10)])
    by_producer: dict[str, list[str]] = {}
    for text in texts(receive_many(consumer, 200)):
        by_producer.setdefault(text.split()[0], []).append(text)
    stage.see("by producer", by_producer)
