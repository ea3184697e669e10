"""Operations of newer Spark connectors in the binary protocol, run with the stock client.

Their driver holds a durable Exclusive consumer per topic-partition that reads nothing: it asks for
the last id at every trigger, and at every commit seeks to the end of the batch. Executors read with
readers that start at the end of the batch before and throw the first message away.
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

import pulsar

from compat_tests.clients.admin_requests import AdminRequests, topic_path
from compat_tests.clients.python.scenario import (
    Stage,
    receive_many,
    receive_until_silence,
    scenario,
    send_all,
    texts,
)

if TYPE_CHECKING:
    from collections.abc import Callable


def _driver_consumer(stage: Stage, topic: str, name: str = "") -> pulsar.Consumer:
    return stage.client.subscribe(
        topic,
        name or f"spark-pulsar-7f0c-{topic}",
        consumer_type=pulsar.ConsumerType.Exclusive,
        initial_position=pulsar.InitialPosition.Earliest,
    )


def _executor_read(
    stage: Stage, topic: str, start: pulsar.MessageId | None, end: pulsar.MessageId
) -> list[str]:
    """The messages after `start` up to and including `end`."""
    reader = stage.client.create_reader(
        topic, start or pulsar.MessageId.earliest, start_message_id_inclusive=True
    )
    read: list[str] = []
    try:
        if start is not None:
            first = reader.read_next(10_000)
            assert first.message_id() == start, "the batch does not start where the last one ended"
            if start == end:
                return read
        while True:
            message = reader.read_next(10_000)
            read.append(message.data().decode())
            if message.message_id() == end:
                return read
    finally:
        reader.close()


def _when_connected(action: Callable[[], object]) -> None:
    """A client that was sent away, by a seek too, is back by itself; until then it refuses."""
    deadline = time.monotonic() + 20.0
    while True:
        try:
            action()
            return
        except pulsar.PulsarException:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def _names(stage: Stage, topic: str) -> list[str]:
    """Subscriptions of the topic, those of readers left out."""
    _, names = AdminRequests(stage.server.web_url)("GET", topic_path(topic) + "/subscriptions")
    return sorted(name for name in names if "reader" not in name)


def _producer(stage: Stage, topic: str, batched: bool) -> pulsar.Producer:
    return stage.client.create_producer(
        topic,
        batching_enabled=batched,
        batching_max_messages=5,
        batching_max_publish_delay_ms=5000,
    )


@scenario("connector-driver-triggers")
def triggers(stage: Stage) -> None:
    """Last id, read, seek: over triggers with and without data, batched and not."""
    for batched in (False, True):
        topic = stage.topic(f"-{batched}")
        producer = _producer(stage, topic, batched)
        driver = _driver_consumer(stage, topic)
        start: pulsar.MessageId | None = None
        sent = 0
        for count in (7, 0, 1, 10, 0, 5):
            send_all(producer, [str(number) for number in range(sent, sent + count)])
            sent += count
            end = driver.get_last_message_id()
            stage.see("batch index", end.batch_index())
            stage.see("batch", _executor_read(stage, topic, start, end))
            driver.seek(end)
            start = end
        stage.see("pushed to the driver", texts(receive_until_silence(driver, acknowledge=False)))
        stage.see("subscriptions", _names(stage, topic))
        _when_connected(driver.unsubscribe)
        stage.see("subscriptions left", _names(stage, topic))


@scenario("connector-driver-partitions")
def partitions(stage: Stage) -> None:
    """One consumer per partition; ids carry the partition; unsubscribing one leaves the others."""
    topic = stage.topic()
    stage.partition(topic, 3)
    names = [f"{topic}-partition-{index}" for index in range(3)]
    drivers = [_driver_consumer(stage, name) for name in names]
    for index, name in enumerate(names):
        send_all(_producer(stage, name, True), [f"{index} {turn}" for turn in range(index * 3)])
    for index, (name, driver) in enumerate(zip(names, drivers, strict=True)):
        end = driver.get_last_message_id()
        stage.see("last id", [end.partition(), end.entry_id(), end.batch_index()])
        if index:
            stage.see("batch", _executor_read(stage, name, None, end))
            driver.seek(end)
    _when_connected(drivers[1].unsubscribe)
    for name in names:
        stage.see("subscriptions left", _names(stage, name))


BEYOND = {
    "the entry after the last": (1, 0),
    "far beyond in the ledger": (1000, 0),
    "the next ledger": (0, 1),
    "a far ledger": (0, 100_000),
}


def _beyond(last: pulsar.MessageId, entries: int, ledgers: int) -> pulsar.MessageId:
    entry_id = entries if ledgers else last.entry_id() + entries
    return pulsar.MessageId(-1, last.ledger_id() + ledgers, entry_id, -1)


def _receive_distinct(driver: pulsar.Consumer, count: int) -> list[pulsar.Message]:
    """The first `count` different texts: around a seek or an unload one may come twice."""
    received: dict[bytes, pulsar.Message] = {}
    while len(received) < count:
        [message] = receive_many(driver, 1, acknowledge=False)
        received.setdefault(message.data(), message)
    return list(received.values())


@scenario("connector-driver-seeks-beyond-the-end")
def seeks_beyond_the_end(stage: Stage) -> None:
    """An id that does not exist yet is taken, and the next consumer gets what came since.

    The one that sought gets nothing up to that id: its client leaves it out.
    """
    admin = AdminRequests(stage.server.web_url)
    for unloaded in (False, True):
        for what, (entries, ledgers) in BEYOND.items():
            topic = stage.topic(f"-{unloaded}-{entries}-{ledgers}")
            producer = _producer(stage, topic, False)
            driver = _driver_consumer(stage, topic)
            send_all(producer, list("abc"))
            last = driver.get_last_message_id()
            if unloaded:
                stage.see("unload", admin("PUT", topic_path(topic) + "/unload")[0])
            target = _beyond(last, entries, ledgers)
            _when_connected(partial(driver.seek, target))
            stage.see(f"{what}, ledger closed {unloaded}", _silence(driver))
            driver.close()
            send_all(producer, ["d", "e"])
            driver = _driver_consumer(stage, topic)
            stage.see("then", texts(_receive_distinct(driver, 2)))
            driver.seek(last)
            stage.see("back", texts(_receive_distinct(driver, 2)))
            driver.close()


@scenario("connector-driver-seeks-to-the-next-entry")
def seeks_to_the_next_entry(stage: Stage) -> None:
    """A reader at the end of a batch seeks to the entry after it, which comes later."""
    admin = AdminRequests(stage.server.web_url)
    for rolled in (False, True):
        topic = stage.topic(f"-{rolled}")
        producer = _producer(stage, topic, True)
        send_all(producer, list("abcde"))
        last = _driver_consumer(stage, topic).get_last_message_id()
        reader = stage.client.create_reader(topic, last, start_message_id_inclusive=True)
        reader.read_next(10_000)
        reader.seek(pulsar.MessageId(-1, last.ledger_id(), last.entry_id() + 1, -1))
        if rolled:
            stage.see("unload", admin("PUT", topic_path(topic) + "/unload")[0])
        send_all(producer, list("fghij"))
        send_all(producer, list("klmno"))
        read: list[str] = []
        while not read or read[-1] != "o":
            read.append(reader.read_next(10_000).data().decode())
        stage.see(f"rolled {rolled}", read)


def _silence(consumer: pulsar.Consumer) -> list[str]:
    return texts(receive_until_silence(consumer, acknowledge=False))


@scenario("connector-driver-reconnects")
def reconnects(stage: Stage) -> None:
    """The position of the last commit outlives the driver; a second one is refused meanwhile."""
    topic = stage.topic()
    producer = _producer(stage, topic, False)
    ids = [producer.send(str(number).encode()) for number in range(10)]
    driver = _driver_consumer(stage, topic, "mine")
    driver.seek(ids[4])
    stage.see_error("a second query", lambda: _driver_consumer(stage, topic, "mine"))
    driver.close()
    again = _driver_consumer(stage, topic, "mine")
    stage.see("goes on", texts(receive_many(again, 5, acknowledge=False)))
    again.seek(ids[9])
    again.close()
    stage.see("at the end", _silence(_driver_consumer(stage, topic, "mine")))


@scenario("connector-driver-empty-topic")
def empty_topic(stage: Stage) -> None:
    topic = stage.topic()
    driver = _driver_consumer(stage, topic)
    end = driver.get_last_message_id()
    stage.see("last id", [end.partition(), end.ledger_id(), end.entry_id(), end.batch_index()])
    for target in (pulsar.MessageId.earliest, pulsar.MessageId.latest):
        driver.seek(target)
    send_all(_producer(stage, topic, True), ["a", "b"])
    stage.see("then", texts(receive_many(driver, 2, acknowledge=False)))
    end = driver.get_last_message_id()
    stage.see("last id", [end.partition(), end.entry_id(), end.batch_index()])
