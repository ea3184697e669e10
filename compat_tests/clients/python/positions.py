"""Where reading starts: readers, seeks by id and by time, the last message id."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

import pulsar

from compat_tests.clients.python.scenario import (
    Stage,
    receive_many,
    receive_until_silence,
    scenario,
    send_all,
    texts,
)

if TYPE_CHECKING:
    from collections.abc import Container, Mapping


def _read_all(reader: pulsar.Reader) -> list[str]:
    read: list[str] = []
    while reader.has_message_available():
        read.append(reader.read_next(10_000).data().decode())
    return read


@scenario("reader")
def reader(stage: Stage) -> None:
    for batched in (False, True):
        topic = stage.topic(f"-{batched}")
        producer = stage.client.create_producer(
            topic,
            batching_enabled=batched,
            batching_max_messages=4,
            batching_max_publish_delay_ms=5000,
        )
        send_all(producer, [str(number) for number in range(10)])
        first = stage.client.create_reader(topic, pulsar.MessageId.earliest)
        messages = [first.read_next(10_000) for _ in range(10)]
        stage.see(f"batched {batched}: earliest", texts(messages))
        stage.see("more", first.has_message_available())
        for index in (0, 3, 5, 9):
            start = messages[index].message_id()
            after = stage.client.create_reader(topic, start)
            stage.see(f"after {index}", _read_all(after))
            after.close()
            inclusive = stage.client.create_reader(topic, start, start_message_id_inclusive=True)
            stage.see(f"from {index}", _read_all(inclusive))
            inclusive.close()
        latest = stage.client.create_reader(topic, pulsar.MessageId.latest)
        stage.see("latest has more", latest.has_message_available())
        last = stage.client.create_reader(
            topic, pulsar.MessageId.latest, start_message_id_inclusive=True
        )
        stage.see("latest inclusive", _read_all(last))
        send_all(producer, ["new"])
        stage.see("latest then", texts([latest.read_next(10_000)]))
        stage.see("first then", texts([first.read_next(10_000)]))


@scenario("reader-seek")
def reader_seek(stage: Stage) -> None:
    producer = stage.client.create_producer(stage.topic())
    ids = [producer.send(str(number).encode()) for number in range(10)]
    read = stage.client.create_reader(stage.topic(), pulsar.MessageId.earliest)
    stage.see("first", _read_all(read))
    for name, target in (
        ("earliest", pulsar.MessageId.earliest),
        ("the fifth", ids[5]),
        ("latest", pulsar.MessageId.latest),
        ("the last", ids[9]),
    ):
        read.seek(target)
        stage.see(f"after a seek to {name}", _read_all(read))


@scenario("seek-by-id")
def seek_by_id(stage: Stage) -> None:
    for kind in ("Exclusive", "Shared", "Failover"):
        topic = stage.topic("-" + kind)
        consumer = stage.client.subscribe(
            topic, "s", consumer_type=getattr(pulsar.ConsumerType, kind)
        )
        producer = stage.client.create_producer(topic)
        send_all(producer, [str(number) for number in range(10)])
        messages = receive_many(consumer, 10)
        for name, target, count in (
            ("earliest", pulsar.MessageId.earliest, 10),
            ("the fourth", messages[4].message_id(), 5),
            ("the last", messages[9].message_id(), 0),
            ("latest", pulsar.MessageId.latest, 0),
        ):
            consumer.seek(target)
            for message in receive_many(consumer, count):
                stage.see_message(f"{kind} after a seek to {name}", message)
            stage.see("more", texts(receive_until_silence(consumer, 400)))
        send_all(producer, ["new"])
        stage.see("new", texts(receive_many(consumer, 1)))


@scenario("seek-by-time")
def seek_by_time(stage: Stage) -> None:
    consumer = stage.client.subscribe(stage.topic(), "s")
    producer = stage.client.create_producer(stage.topic())
    moments: list[int] = []
    for number in range(4):
        time.sleep(0.05)
        moments.append(int(time.time() * 1000))
        time.sleep(0.05)
        producer.send(str(number).encode())
    receive_many(consumer, 4)
    for number, moment in enumerate([*moments, int(time.time() * 1000) + 60_000, 0]):
        consumer.seek(moment)
        count = {4: 0, 5: 4}.get(number, 4 - number)
        stage.see(f"seek to moment {number}", texts(receive_many(consumer, count)))
        stage.see("more", texts(receive_until_silence(consumer, 400)))


@scenario("last-message-id")
def last_message_id(stage: Stage) -> None:
    for batched in (False, True):
        topic = stage.topic(f"-{batched}")
        consumer = stage.client.subscribe(topic, "s")
        empty = consumer.get_last_message_id()
        stage.see("empty topic", [empty.ledger_id(), empty.entry_id(), empty.batch_index()])
        producer = stage.client.create_producer(
            topic,
            batching_enabled=batched,
            batching_max_messages=4,
            batching_max_publish_delay_ms=5000,
        )
        send_all(producer, [str(number) for number in range(8)])
        received = receive_many(consumer, 8)
        last = consumer.get_last_message_id()
        stage.see("is the last received", last == received[-1].message_id())
        stage.see("batch index", last.batch_index())
        stage.see("entries", last.entry_id() - received[0].message_id().entry_id() + 1)


_KINDS: Final = {
    "exclusive": pulsar.ConsumerType.Exclusive,
    "failover": pulsar.ConsumerType.Failover,
    "shared": pulsar.ConsumerType.Shared,
    "key-shared": pulsar.ConsumerType.KeyShared,
}
_WAIT_SECONDS_MAX: Final = 10.0
_OF_CURSORS: Final = (
    "numberOfEntriesSinceFirstNotAckedMessage",
    "messagesConsumedCounter",
    "totalNonContiguousDeletedMessagesRange",
    "subscriptionHavePendingRead",
    "subscriptionHavePendingReplayRead",
    "waitingReadOp",
    "state",
    "active",
)


@scenario("cursor-positions")
def cursor_positions(stage: Stage) -> None:
    """How far cursors have read and acknowledged. Everything that was published has been received
    or is acknowledged when they are looked at, as a server may read ahead. A server may also begin
    again without consumers, so that is looked at for the types with one active consumer."""
    topic = stage.topic()
    path = f"/admin/v2/{topic.replace('://', '/')}"

    def cursors() -> Mapping[str, Mapping[str, Any]]:
        status, found = stage.server.http("GET", f"{path}/internalStats")
        assert status == 200
        by_name: Mapping[str, Mapping[str, Any]] = found["cursors"]
        return by_name

    def wait_until(member: str, value: object) -> None:
        """Of all cursors. After `_WAIT_SECONDS_MAX` they are looked at as they are."""
        end = time.monotonic() + _WAIT_SECONDS_MAX
        while time.monotonic() < end and any(each[member] != value for each in cursors().values()):
            time.sleep(0.1)

    def look(when: str, of: Container[str] = _KINDS) -> None:
        for name, cursor in sorted(cursors().items()):
            if name not in of:
                continue
            read, mark = (
                int(cursor[each].partition(":")[2])
                for each in ("readPosition", "markDeletePosition")
            )
            stage.see(f"{when}: {name}", [read, mark, *(cursor[each] for each in _OF_CURSORS)])

    consumers = {
        name: stage.client.subscribe(topic, name, consumer_type=kind)
        for name, kind in _KINDS.items()
    }
    wait_until("waitingReadOp", True)
    look("empty")
    producer = stage.client.create_producer(topic)
    send_all(producer, [str(number) for number in range(6)])
    received = {name: receive_many(each, 6, acknowledge=False) for name, each in consumers.items()}
    wait_until("waitingReadOp", True)  # messages arrive before a server reads on
    look("all received")
    for name, each in consumers.items():
        each.acknowledge(received[name][0])
        each.acknowledge(received[name][3])
    wait_until("totalNonContiguousDeletedMessagesRange", 1)
    wait_until("state", "Open")  # a server may store acknowledgements together
    look("two acknowledged")
    for each in consumers.values():
        each.close()
    wait_until("active", False)
    look("nobody there", ("exclusive", "failover"))
    consumers = {
        name: stage.client.subscribe(topic, name, consumer_type=kind)
        for name, kind in _KINDS.items()
    }
    for each in consumers.values():
        receive_many(each, 4, acknowledge=False)
    wait_until("waitingReadOp", True)
    look("received again")
    for name in _KINDS:
        assert stage.server.http("POST", f"{path}/subscription/{name}/skip_all")[0] == 204
    wait_until("waitingReadOp", True)
    look("all skipped")
