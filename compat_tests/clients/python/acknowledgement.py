"""Acks of every kind and what comes again without them, with the redelivery count."""

from __future__ import annotations

import time

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

ACK_GROUPING_SECONDS = 0.4  # the client sends acks in groups every 100 ms


@scenario("individual-ack")
def individual_ack(stage: Stage) -> None:
    for kind in ("Exclusive", "Shared", "Failover", "KeyShared"):
        topic = stage.topic("-" + kind)
        consumer_type = getattr(pulsar.ConsumerType, kind)
        consumer = stage.client.subscribe(topic, "s", consumer_type=consumer_type)
        producer = stage.client.create_producer(topic)
        send_all(producer, [str(number) for number in range(10)])
        for number, message in enumerate(receive_many(consumer, 10, acknowledge=False)):
            if number in (0, 1, 4, 7):
                consumer.acknowledge(message)
        time.sleep(ACK_GROUPING_SECONDS)
        consumer.close()
        again = stage.client.subscribe(topic, "s", consumer_type=consumer_type)
        for message in receive_many(again, 6):
            stage.see_message(f"{kind} came again", message)
        stage.see("more", texts(receive_until_silence(again)))


@scenario("cumulative-ack")
def cumulative_ack(stage: Stage) -> None:
    consumer = stage.client.subscribe(stage.topic(), "s")
    producer = stage.client.create_producer(stage.topic())
    send_all(producer, [str(number) for number in range(10)])
    got = receive_many(consumer, 10, acknowledge=False)
    consumer.acknowledge_cumulative(got[6])
    consumer.acknowledge_cumulative(got[3])  # an older one changes nothing
    time.sleep(ACK_GROUPING_SECONDS)
    consumer.close()
    again = stage.client.subscribe(stage.topic(), "s")
    stage.see("came again", texts(receive_many(again, 3)))
    stage.see("more", texts(receive_until_silence(again)))
    shared = stage.client.subscribe(
        stage.topic(), "shared", consumer_type=pulsar.ConsumerType.Shared
    )
    send_all(producer, ["x"])
    message = shared.receive(10_000)
    stage.see_error("cumulative on Shared", lambda: shared.acknowledge_cumulative(message))


@scenario("batch-index-ack")
def batch_index_ack(stage: Stage) -> None:
    for enabled in (True, False):
        topic = stage.topic(f"-{enabled}")
        consumer = stage.client.subscribe(
            topic,
            "s",
            consumer_type=pulsar.ConsumerType.Shared,
            batch_index_ack_enabled=enabled,
        )
        producer = stage.client.create_producer(
            topic,
            batching_enabled=True,
            batching_max_messages=10,
            batching_max_publish_delay_ms=5000,
        )
        send_all(producer, [str(number) for number in range(10)])
        for number, message in enumerate(receive_many(consumer, 10, acknowledge=False)):
            if number % 3 == 0:
                consumer.acknowledge(message)
        time.sleep(ACK_GROUPING_SECONDS)
        consumer.close()
        again = stage.client.subscribe(
            topic,
            "s",
            consumer_type=pulsar.ConsumerType.Shared,
            batch_index_ack_enabled=enabled,
        )
        for message in receive_together([again], 6)[0]:
            stage.see_message(f"batch index ack {enabled}: came again", message)
            stage.see("batch index", message.message_id().batch_index())
        time.sleep(ACK_GROUPING_SECONDS)
        again.close()
        last = stage.client.subscribe(
            topic,
            "s",
            consumer_type=pulsar.ConsumerType.Shared,
            batch_index_ack_enabled=enabled,
        )
        stage.see("left at last", texts(receive_until_silence(last)))


@scenario("negative-ack")
def negative_ack(stage: Stage) -> None:
    for kind in ("Exclusive", "Shared", "Failover", "KeyShared"):
        topic = stage.topic("-" + kind)
        consumer = stage.client.subscribe(
            topic,
            "s",
            consumer_type=getattr(pulsar.ConsumerType, kind),
            negative_ack_redelivery_delay_ms=200,
        )
        producer = stage.client.create_producer(topic)
        send_all(producer, ["a", "b", "c"])
        for turn in range(4):
            messages = receive_many(consumer, 3, acknowledge=False)
            for message in sorted(messages, key=lambda m: m.data()):
                stage.see_message(f"{kind} turn {turn}", message)
                if turn < 3:
                    consumer.negative_acknowledge(message)
                else:
                    consumer.acknowledge(message)
        stage.see("more", texts(receive_until_silence(consumer)))


@scenario("negative-ack-of-one")
def negative_ack_of_one(stage: Stage) -> None:
    consumer = stage.client.subscribe(
        stage.topic(),
        "s",
        consumer_type=pulsar.ConsumerType.Shared,
        negative_ack_redelivery_delay_ms=200,
    )
    producer = stage.client.create_producer(stage.topic())
    send_all(producer, [str(number) for number in range(5)])
    for message in receive_many(consumer, 5, acknowledge=False):
        if message.data() == b"2":
            consumer.negative_acknowledge(message)
        else:
            consumer.acknowledge(message)
    stage.see_message("came again", consumer.receive(10_000))
    stage.see("more", texts(receive_until_silence(consumer)))


@scenario("redeliver-unacknowledged")
def redeliver_unacknowledged(stage: Stage) -> None:
    for kind in ("Exclusive", "Shared"):
        topic = stage.topic("-" + kind)
        consumer = stage.client.subscribe(
            topic, "s", consumer_type=getattr(pulsar.ConsumerType, kind)
        )
        producer = stage.client.create_producer(topic)
        send_all(producer, [str(number) for number in range(6)])
        for number, message in enumerate(receive_many(consumer, 6, acknowledge=False)):
            if number < 2:
                consumer.acknowledge(message)
        time.sleep(ACK_GROUPING_SECONDS)
        consumer.redeliver_unacknowledged_messages()
        for message in sorted(receive_many(consumer, 4), key=lambda m: m.data()):
            stage.see_message(f"{kind} came again", message)
        stage.see("more", texts(receive_until_silence(consumer)))


@scenario("ack-timeout")
def ack_timeout(stage: Stage) -> None:
    consumer = stage.client.subscribe(
        stage.topic(),
        "s",
        consumer_type=pulsar.ConsumerType.Shared,
        unacked_messages_timeout_ms=10_000,
    )
    producer = stage.client.create_producer(stage.topic())
    send_all(producer, ["kept", "acked"])
    for message in receive_many(consumer, 2, acknowledge=False):
        if message.data() == b"acked":
            consumer.acknowledge(message)
    again = consumer.receive(25_000)
    stage.see_message("came again", again)
    consumer.acknowledge(again)
    stage.see("more", texts(receive_until_silence(consumer)))


@scenario("dead-letter-topic")
def dead_letter_topic(stage: Stage) -> None:
    dead = stage.client.subscribe(stage.topic("-dead"), "dead")
    consumer = stage.client.subscribe(
        stage.topic(),
        "s",
        consumer_type=pulsar.ConsumerType.Shared,
        negative_ack_redelivery_delay_ms=200,
        dead_letter_policy=pulsar.ConsumerDeadLetterPolicy(2, stage.topic("-dead"), "initial"),
    )
    producer = stage.client.create_producer(stage.topic())
    producer.send(b"bad", properties={"why": "bad"})
    for _ in range(3):
        message = consumer.receive(10_000)
        stage.see_message("tried", message)
        consumer.negative_acknowledge(message)
    letter = dead.receive(15_000)
    stage.see("dead letter", texts([letter]))
    stage.see("dead letter properties", sorted(letter.properties()))
    stage.see("more", texts(receive_until_silence(consumer)))
