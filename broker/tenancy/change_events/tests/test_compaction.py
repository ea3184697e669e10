"""The log of policies is kept short."""

from __future__ import annotations

import pytest
import trio

from broker.assembly.app import running_broker
from broker.http.tests.conftest import CONFIG
from broker.net.tests.harness import running
from broker.tenancy.change_events.tests.test_one_broker import (
    LOG,
    A,
    level_of,
    limit_of,
    load,
    messages_in_log,
    set_limit,
)
from broker.topics.topic import log_compaction
from broker.topics.topic.log_compaction import (
    COMPACTED_LEDGER,
    COMPACTION_CURSOR,
    LOG_COMPACTION,
)
from protocol import client as c
from protocol.topic_name import TopicName
from runtime.testing.conditions import SECONDS_MAX, eventually

FIRST_AT = 20
B = TopicName.parse("b")


@pytest.fixture(autouse=True)
def early(monkeypatch):
    monkeypatch.setattr(log_compaction, "ENTRIES_MIN", FIRST_AT)


async def compact(broker):
    (kind,) = (each for each in broker.service.services.part_kinds if each.name == LOG_COMPACTION)
    await kind.check()


def compacted(topic):
    return topic.part(LOG_COMPACTION).log


def log_of(broker):
    return broker.service.topics[LOG.full]


async def change_often(broker, count, name=A):
    for value in range(1, count + 1):
        await set_limit(broker, value, name)


async def test_the_log_is_bounded_by_what_is_in_force_and_the_policies_hold(tmp_path):
    value = 0
    for restart in range(3):
        async with running_broker(CONFIG, tmp_path) as broker:
            topics = [await load(broker, each) for each in (A, B)]
            assert [limit_of(each) for each in topics] == ([value, 7] if restart else [0, 0])
            await set_limit(broker, 7, B)
            for _ in range(3):
                for _ in range(FIRST_AT):
                    value += 1
                    await set_limit(broker, value)
                await compact(broker)
                log = log_of(broker)
                assert compacted(log).kept_count <= 4
                await eventually(lambda log=log: log.ledger.entries == 0)
            topics = [await load(broker, each) for each in (A, B)]
            assert [limit_of(each) for each in topics] == [value, 7]


async def test_a_log_is_not_compacted_for_a_few_changes():
    async with running() as broker:
        await load(broker)
        await change_often(broker, FIRST_AT - 1)
        await compact(broker)
        assert compacted(log_of(broker)).kept_count == 0


async def test_policies_that_were_removed_stay_so_and_leave_the_log():
    async with running(defaultRetentionTimeInMinutes=0, defaultRetentionSizeInMB=0) as broker:
        for name in (A, B):
            await load(broker, name)
            await set_limit(broker, 5, name)
        await set_limit(broker, None)
        for _ in range(3):
            await change_often(broker, FIRST_AT, B)
            await compact(broker)
        assert [each.metadata.partition_key for each in compacted(log_of(broker)).kept] == [B.full]
        await broker.service.unload_topic(LOG)
        assert limit_of(await load(broker)) == 0
        assert list((await level_of(broker)).map.fields) == [("persistent", "b")]


async def test_readers_of_both_kinds_are_served_after_a_compaction():
    async with running(defaultRetentionTimeInMinutes=0, defaultRetentionSizeInMB=0) as broker:
        await load(broker)
        await change_often(broker, FIRST_AT)
        await set_limit(broker, 3, B)
        before = log_of(broker).ledger.last_confirmed
        await compact(broker)
        log = log_of(broker)
        await eventually(lambda: log.ledger.entries == 0)
        connection = await broker.connect()
        await connection.subscribe(
            LOG.full,
            "slow",
            permits=1000,
            durable=False,
            read_compacted=True,
            start_message_id=c._wire((-1, -1)),
        )
        positions = []
        for _ in range(2):
            command, payload = await connection.next()
            (message,) = c.received_messages(command, payload)
            assert message.metadata.partition_key in (A.full, B.full)
            identifier = command.message.message_id
            positions.append((identifier.ledgerId, identifier.entryId))
        assert positions[-1] == before
        await connection.send(c.get_last_message_id(1, connection.rid()))
        command, _ = await connection.next()
        last = command.getLastMessageIdResponse.last_message_id
        assert (last.ledgerId, last.entryId) == before
        await set_limit(broker, 8, B)
        command, _ = await connection.next()
        assert command.message.message_id.ledgerId > before[0]
        raw = await messages_in_log(await broker.connect())
        assert [each.metadata.partition_key for each in raw] == [B.full]


async def test_a_reader_that_is_slow_misses_nothing_of_two_compactions():
    async with running(defaultRetentionTimeInMinutes=0, defaultRetentionSizeInMB=0) as broker:
        await load(broker)
        await set_limit(broker, 3, B)
        connection = await broker.connect()
        await connection.subscribe(
            LOG.full,
            "slow",
            permits=1,
            durable=False,
            read_compacted=True,
            start_message_id=c._wire((-1, -1)),
        )
        await connection.next()
        for _ in range(2):
            await set_limit(broker, None, B)
            await change_often(broker, FIRST_AT)
            await compact(broker)
            await set_limit(broker, 4, B)
        await connection.send(c.flow(1, 100))
        seen = []
        while not seen or seen[-1] != (B.full, 4):
            with trio.fail_after(SECONDS_MAX):
                command, payload = await connection.next()
            (message,) = c.received_messages(command, payload)
            value = message.payload
            seen.append((message.metadata.partition_key, 4 if value else 0))
        assert {key for key, _value in seen} == {A.full, B.full}


async def test_a_deleted_log_leaves_no_compacted_ledger():
    async with running() as broker:
        await load(broker)
        await change_often(broker, FIRST_AT)
        await compact(broker)
        cursor = log_of(broker).ledger.cursors[COMPACTION_CURSOR]
        ledger_id = cursor.position_properties[COMPACTED_LEDGER]
        client = log_of(broker).ledger.client
        await client.metadata_of(ledger_id)
        await broker.service.delete_topic(LOG, force=True)
        with pytest.raises(Exception, match="does not exist"):
            await client.metadata_of(ledger_id)
