"""A part of topics that the broker is assembled with: it counts messages, and needs nothing of the
rooms of topics but the interface of parts."""

from __future__ import annotations

import shutil
from contextlib import asynccontextmanager

import pytest
import trio

from broker.assembly.app import running_broker
from broker.http.tests.conftest import CONFIG
from broker.net.tests.harness import Connection, T
from broker.topics.topic.parts import PartKind, TopicPart, replay
from protocol import client as c
from protocol.errors import ServerError
from protocol.position import EARLIEST
from protocol.topic_name import TopicName

TOPIC = "persistent://public/default/counted"
NAME = TopicName.parse(TOPIC)
CURSOR = "test.count"
COUNT = "count"


class CountingPart(TopicPart):
    """How many messages a topic has ever stored, kept with the position up to which they count."""

    name = "counting"

    def __init__(self, topic):
        super().__init__()
        self._topic = topic
        self._cursor = None
        self._position = None
        self.count = self.replayed = 0

    async def load(self):
        ledger = self._topic.ledger
        self._cursor = await ledger.open_part_cursor(CURSOR, EARLIEST)
        self.count = self._cursor.position_properties.get(COUNT, 0)
        self._position = self._cursor.mark_delete
        await replay(ledger, self._position, self._replay)

    def _replay(self, entries):
        self.replayed += len(entries)
        self.stored(entries, [])

    def stored(self, entries, publishes):
        self.count += len(entries)
        self._position = entries[-1].position
        return ()

    async def snapshot(self):
        self._cursor.position_properties = {COUNT: self.count}
        self._cursor.ack_cumulative(self._position)
        self._cursor.touch()
        await self._cursor.flush()

    async def close(self):
        await self.snapshot()


class CountingKind(PartKind):
    name = CountingPart.name
    cursors = frozenset({CURSOR})

    def __init__(self):
        super().__init__()
        self.is_wanted = True

    def wants(self, topic):
        return self.is_wanted and not topic.name.is_system

    def make(self, topic):
        return CountingPart(topic)

    async def discard(self, topic):
        if CURSOR in topic.ledger.cursors:
            await topic.ledger.delete_cursor(CURSOR)


class Running:
    """A broker with the part, and a connection to it."""

    def __init__(self, broker, kind, connection):
        self.broker, self.kind, self.connection = broker, kind, connection

    @property
    def part(self):
        (part,) = self.kind.loaded
        return part

    @property
    def topic(self):
        return self.broker.service.topics[TOPIC]

    async def publish(self, *sequence_ids):
        """Together, as one run."""
        messages = [
            c.send(1, each, c.message(b"x", producer_name="p", sequence_id=each))
            for each in sequence_ids
        ]
        await self.connection.send(b"".join(messages))
        for _ in sequence_ids:
            await self.connection.expect(T.SEND_RECEIPT)


@asynccontextmanager
async def running(directory):
    kind = CountingKind()
    async with running_broker(CONFIG, directory, (kind,)) as broker:
        port = int(broker.broker_service_url.rpartition(":")[2])
        stream = await trio.open_tcp_stream("127.0.0.1", port)
        connection = Connection(stream)
        try:
            await connection.handshake()
            await connection.producer(TOPIC, producer_name="p")
            yield Running(broker, kind, connection)
        finally:
            await trio.aclose_forcefully(stream)


async def test_a_part_counts_messages_over_a_restart(tmp_path):
    async with running(tmp_path) as it:
        await it.publish(0)
        await it.publish(*range(1, 6))
        assert it.part.count == 6
    async with running(tmp_path) as it:
        assert (it.part.count, it.part.replayed) == (6, 0)
        await it.publish(7, 8)
        assert it.part.count == 8


async def test_after_a_crash_a_part_goes_on_from_its_snapshot_and_the_entries_after_it(tmp_path):
    lived, crashed = tmp_path / "lived", tmp_path / "crashed"
    async with running(lived) as it:
        await it.publish(0, 1, 2)
        await it.part.snapshot()
        await it.publish(3, 4)
        # As after a power cut: nothing that is written from now on is there.
        await trio.to_thread.run_sync(shutil.copytree, lived, crashed)
        await it.publish(5)
    async with running(crashed) as it:
        assert (it.part.count, it.part.replayed) == (5, 2)
        await it.publish(5)
        assert it.part.count == 6


async def test_a_part_is_deleted_with_its_topic(tmp_path):
    async with running(tmp_path) as it:
        await it.publish(0, 1)
        await it.broker.service.delete_topic(NAME, force=True)
        assert not it.kind.loaded
        topic = await it.broker.service.get_or_load_topic(NAME, create=True)
        assert it.part.count == 0
        assert list(topic.ledger.cursors) == [CURSOR]


async def test_no_subscription_has_the_cursor_of_a_part(tmp_path):
    async with running(tmp_path) as it:
        await it.connection.send(c.subscribe(TOPIC, CURSOR, 1, it.connection.rid()))
        assert (await it.connection.error()).error == ServerError.ProducerBusy
        assert not it.topic.subscriptions
    async with running(tmp_path) as it:
        assert not it.topic.subscriptions


async def test_a_part_that_begins_under_way_misses_no_message_and_counts_none_twice(tmp_path):
    async with running(tmp_path) as it:
        it.kind.is_wanted = False
        await it.topic.apply_policies()
        assert not it.topic.parts
        assert CURSOR not in it.topic.ledger.cursors
        await it.publish(*range(50))
        it.kind.is_wanted = True
        async with trio.open_nursery() as nursery:
            nursery.start_soon(it.publish, *range(50, 100))
            nursery.start_soon(it.topic.apply_policies)
        await it.publish(100)
        assert it.part.count == it.topic.ledger.entries == 101


async def test_a_part_counts_what_deduplication_lets_pass(tmp_path):
    async with running(tmp_path) as it:
        await it.broker.service.namespaces.change_policies(
            "public/default", lambda given: given.with_fields(deduplicationEnabled=True)
        )
        await it.publish(0, 1, 2)
        await it.publish(1, 2, 3)
        assert it.part.count == it.topic.ledger.entries == 4


async def test_the_ledger_is_closed_though_a_part_cannot_store_its_state(tmp_path):
    async def full():
        raise OSError("full")

    async with running(tmp_path) as it:
        await it.publish(0)
        ledger, it.part.snapshot = it.topic.ledger, full
        with pytest.raises(OSError, match="full"):
            await it.broker.service.unload_topic(NAME)
        assert ledger.state.value == "Closed"
        assert not it.kind.loaded
    async with running(tmp_path) as it:
        assert (it.part.count, it.part.replayed) == (1, 1)
