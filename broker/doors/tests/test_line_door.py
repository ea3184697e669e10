"""A trial of the seam between topics and doors: one of lines, beside that of Pulsar's protocol."""

from __future__ import annotations

import ast
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from broker.doors.tests import line_door
from broker.doors.tests.line_door import LineDoor
from broker.net.listener import BrokerListener
from broker.net.tests.harness import T, running
from broker.topics.subscription.sub_types import SHARED
from protocol import client as c
from protocol.metadata import peek_and_payload
from protocol.topic_name import TopicName
from runtime.readers import Readers
from runtime.testing.conditions import SECONDS_MAX, eventually

TOPIC = "persistent://public/default/t"
LINES_MAX = 300


class Lines:
    """A client of the line door."""

    def __init__(self, stream):
        self.stream = stream
        self._rest = b""

    async def say(self, *lines):
        await self.stream.send_all("".join(f"{line}\n" for line in lines).encode())

    async def hear(self, count=1):
        """The next lines."""
        heard = []
        with trio.fail_after(SECONDS_MAX):
            while len(heard) < count:
                while b"\n" not in self._rest:
                    data = await self.stream.receive_some()
                    assert data, f"closed after {heard}"
                    self._rest += data
                line, _, self._rest = self._rest.partition(b"\n")
                heard.append(line.decode())
        return heard

    async def ask(self, line):
        await self.say(line)
        (answer,) = await self.hear()
        return answer

    async def nothing_more(self):
        """What it has been sent arrives before the answer to a later line."""
        answer = await self.ask("CONSUME persistent://public/default/other s Nonsense")
        assert answer.startswith("ERR"), answer


@asynccontextmanager
async def two_doors(**settings):
    """A broker with both doors, and how to connect to that of lines."""
    async with running(**settings) as broker, trio.open_nursery() as nursery:
        listener = BrokerListener(
            broker.service.connections, LineDoor(broker.service), Readers(), 0
        )
        await listener.bind("127.0.0.1", 0)
        await nursery.start(listener.run)

        async def lines():
            stream = await trio.open_tcp_stream("127.0.0.1", listener.port)
            broker.streams.append(stream)
            return Lines(stream)

        yield broker, lines
        for stream in broker.streams:
            await trio.aclose_forcefully(stream)
        nursery.cancel_scope.cancel()


def text(payload):
    return bytes(peek_and_payload(payload)[1]).decode()


def entry_of(line):
    """The `ledger:entry` in a line."""
    return line.split(" ")[1]


async def test_pulsar_clients_consume_what_lines_produce():
    async with two_doors() as (broker, lines):
        pulsar = await broker.connect()
        await pulsar.subscribe(TOPIC, permits=10)
        client = await lines()
        assert await client.ask(f"PRODUCE {TOPIC} p") == "OK"
        await client.say(*(f"SEND {number} text {number}" for number in range(5)))
        stored = await client.hear(5)
        assert [each.split(" ")[:2] for each in stored] == [["STORED", str(n)] for n in range(5)]
        for number, line in enumerate(stored):
            message, payload = await pulsar.expect(T.MESSAGE)
            identifier = message.message_id
            assert (text(payload), line.split(" ")[2]) == (
                f"text {number}",
                f"{identifier.ledgerId}:{identifier.entryId}",
            )


async def test_lines_consume_what_pulsar_clients_produce_as_many_as_they_want():
    async with two_doors() as (broker, lines):
        client = await lines()
        assert await client.ask(f"CONSUME {TOPIC} s") == "OK"
        pulsar = await broker.connect()
        await pulsar.producer(TOPIC)
        for number in range(7):
            await pulsar.publish(number, b"text %d" % number)
            await pulsar.expect(T.SEND_RECEIPT)
        await client.nothing_more()
        for granted, first in ((2, 0), (3, 2)):
            await client.say(f"FLOW {granted}")
            heard = await client.hear(granted)
            assert [each.split(" ", 3)[2:] for each in heard] == [
                ["0", f"text {first + number}"] for number in range(granted)
            ]
            await client.nothing_more()


@pytest.mark.parametrize("kind", ["Shared", "Exclusive", "Failover", "Key_Shared"])
async def test_what_lines_acknowledge_is_not_delivered_after_the_topic_was_loaded_anew(kind):
    async with two_doors() as (broker, lines):
        client, producer = await lines(), await lines()
        assert await client.ask(f"CONSUME {TOPIC} s {kind}") == "OK"
        if kind == "Failover":
            assert await client.hear() == ["ACTIVE yes"]
        await client.say("FLOW 10")
        assert await producer.ask(f"PRODUCE {TOPIC} p") == "OK"
        await producer.say(*(f"SEND {number} {number}" for number in range(5)))
        await producer.hear(5)
        delivered = await client.hear(5)
        await client.say(*(f"ACK {entry_of(delivered[at])}" for at in (0, 1, 3)))
        await client.nothing_more()
        await broker.service.unload_topic(TopicName.parse(TOPIC))
        assert await client.hear() == ["CLOSED consumer"]
        assert await producer.hear() == ["CLOSED producer"]
        assert await client.ask(f"CONSUME {TOPIC} s {kind}") == "OK"
        if kind == "Failover":
            assert await client.hear() == ["ACTIVE yes"]
        await client.say("FLOW 10")
        assert await client.hear(2) == [delivered[2], delivered[4]]
        await client.nothing_more()


async def test_lines_get_each_message_of_a_batch():
    async with two_doors() as (broker, lines):
        client = await lines()
        assert await client.ask(f"CONSUME {TOPIC} s") == "OK"
        await client.say("FLOW 10")
        pulsar = await broker.connect()
        name = (await pulsar.producer(TOPIC)).producer_name
        batch = c.batch([b"first", b"second"], producer_name=name)
        await pulsar.send(c.send(1, 0, batch, num_messages=2))
        await pulsar.expect(T.SEND_RECEIPT)
        heard = await client.hear(2)
        assert [each.split(" ", 3)[2:] for each in heard] == [["0", "first"], ["0", "second"]]


async def test_messages_that_a_line_client_leaves_behind_go_to_a_pulsar_client():
    async with two_doors() as (broker, lines):
        client = await lines()
        assert await client.ask(f"CONSUME {TOPIC} s") == "OK"
        await client.say("FLOW 10")
        pulsar = await broker.connect()
        await pulsar.producer(TOPIC)
        await pulsar.publish(0, b"text")
        await pulsar.expect(T.SEND_RECEIPT)
        await client.hear()
        await pulsar.subscribe(TOPIC, permits=10, sub_type=SHARED)
        await client.stream.aclose()
        _, payload = await pulsar.expect(T.MESSAGE)
        assert text(payload) == "text"


async def test_a_message_that_a_limit_refuses_is_answered_by_a_line():
    async with two_doors(maxPublishRatePerTopicInMessages=20) as (broker, lines):
        client = await lines()
        assert await client.ask(f"PRODUCE {TOPIC} p") == "OK"
        name = TopicName.parse(TOPIC)
        await broker.service.namespaces.set_topic_policy(name, "max_message_size", 200)
        await client.say("SEND 0 small", f"SEND 1 {'x' * 500}", "SEND 2 small")
        # A refusal is no matter of the ledger, so it may come first.
        assert sorted(each.rpartition(" ")[0] for each in await client.hear(3)) == [
            "REFUSED 1 NotAllowedError Exceed maximum message",
            "STORED 0",
            "STORED 2",
        ]


async def test_lines_over_the_publish_rate_wait_and_are_stored_in_order():
    async with two_doors(maxPublishRatePerTopicInMessages=10) as (_, lines):
        client = await lines()
        assert await client.ask(f"PRODUCE {TOPIC} p") == "OK"
        began = trio.current_time()
        await client.say(*(f"SEND {number} text" for number in range(15)))
        stored = [each.split(" ")[1] for each in await client.hear(15)]
        assert stored == [str(number) for number in range(15)]
        assert trio.current_time() - began > 0.2


async def test_a_terminated_topic_ends_lines_and_refuses_them(monkeypatch):
    async with two_doors() as (broker, lines):
        client = await lines()
        assert await client.ask(f"PRODUCE {TOPIC} p") == "OK"
        stored = await client.ask("SEND 0 first")
        consumer = await lines()
        assert await consumer.ask(f"CONSUME {TOPIC} s") == "OK"
        await consumer.say("FLOW 10")
        put, begun, go_on = broker.store.put, trio.Event(), trio.Event()

        async def slow(*arguments, **keywords):
            begun.set()
            await go_on.wait()
            return await put(*arguments, **keywords)

        topic = broker.topic(TOPIC)
        async with trio.open_nursery() as nursery:
            monkeypatch.setattr(broker.store, "put", slow)
            nursery.start_soon(topic.terminate)
            await begun.wait()
            await client.say("SEND 1 late", "SEND 2 later")
            await eventually(lambda: topic._taken == 3)
            go_on.set()
        assert await client.hear() == ["CLOSED producer"]
        assert [each.split(" ")[:3] for each in await client.hear(2)] == [
            ["REFUSED", str(number), "TopicTerminatedError"] for number in (1, 2)
        ]
        assert (await client.ask(f"PRODUCE {TOPIC} p")).startswith("ERR TopicTerminatedError")
        (message,) = await consumer.hear()
        assert entry_of(message) == stored.split(" ")[2]
        assert await consumer.ask(f"ACK {entry_of(message)}") == "ENDED"


async def test_both_doors_join_one_broadcast():
    async with two_doors() as (broker, lines):
        pulsar = await broker.connect()
        await pulsar.subscribe(TOPIC, permits=10, metadata={"vela.broadcast": "true"})
        clients = [await lines() for _ in range(3)]
        for client in clients:
            assert await client.ask(f"CONSUME {TOPIC} s") == "OK"
            await client.say("FLOW 2")
        await pulsar.producer(TOPIC)
        for number in range(3):
            await pulsar.publish(number, b"text %d" % number)
        for client in clients:
            assert [each.split(" ", 3)[3] for each in await client.hear(2)] == ["text 0", "text 1"]
            await client.nothing_more()


async def test_a_name_that_one_door_holds_is_free_for_the_other_when_its_client_is_gone():
    async with two_doors() as (broker, lines):
        client = await lines()
        assert await client.ask(f"PRODUCE {TOPIC} p") == "OK"
        pulsar = await broker.connect()
        request = c.producer(TOPIC, 1, pulsar.rid(), producer_name="p")
        await pulsar.send(request)
        assert "already connected" in (await pulsar.error()).message
        await client.stream.aclose()
        await eventually(lambda: not broker.topic(TOPIC).access.producers)
        await pulsar.producer(TOPIC, producer_name="p")
        client = await lines()
        assert (await client.ask(f"PRODUCE {TOPIC} p")).startswith("ERR ProducerBusy")


def test_the_line_door_is_small_and_knows_no_frames():
    source = Path(line_door.__file__).read_text(encoding="utf-8")
    assert len(source.splitlines()) < LINES_MAX
    imported = [
        each.module for each in ast.walk(ast.parse(source)) if isinstance(each, ast.ImportFrom)
    ]
    assert [each for each in imported if each.startswith("broker.doors")] == []
    known = {each for each in imported if each.startswith("protocol")}
    # `pulsar_api_pb2` for the metadata of a message, which are stored.
    assert known <= {
        "protocol",
        "protocol.errors",
        "protocol.metadata",
        "protocol.new_messages",
        "protocol.topic_name",
    }
