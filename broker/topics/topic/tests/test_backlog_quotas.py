"""What quotas of the backlog do to producers and subscriptions of a topic."""

from __future__ import annotations

import pytest

from broker.net.tests.harness import T, running
from broker.tenancy.policies.backlog_quotas import AGE, EVICT, EXCEPTION, HOLD, SIZE
from protocol import client as c
from protocol.errors import ServerError
from runtime.testing.conditions import eventually

TOPIC = "persistent://public/default/t"
SMALL_LEDGERS = {
    "managedLedgerMaxEntriesPerLedger": 2,
    "managedLedgerMinLedgerRolloverTimeMinutes": 0,
}


async def set_quota(broker, limit=-1, seconds=-1, policy=EXCEPTION, kind=SIZE):
    record = {"limit": limit, "limitSize": limit, "limitTime": seconds, "policy": policy}
    await broker.service.namespaces.change_policies(
        "public/default", lambda policies: policies.with_fields(backlog_quota_map={kind: record})
    )


async def publish_until_closed(connection, count, size=1000, first=0):
    """How many messages were answered before the producer was sent away; None: it was not."""
    for number in range(first, first + count):
        await connection.publish(number, b"x" * size)
    for answered in range(count):
        answer = await connection.next()
        if answer[0].type == T.CLOSE_PRODUCER:
            return answered
        assert answer[0].type == T.SEND_RECEIPT
    return None


CODES = {
    EXCEPTION: ServerError.ProducerBlockedQuotaExceededException,
    HOLD: ServerError.ProducerBlockedQuotaExceededError,
}


@pytest.mark.parametrize("policy", CODES)
async def test_producers_are_stopped_at_the_quota_and_return_when_there_is_room(policy):
    async with running() as broker:
        connection = await broker.connect()
        await connection.subscribe(TOPIC)
        await set_quota(broker, 10_240, policy=policy)
        await connection.producer(TOPIC)
        assert await publish_until_closed(connection, 100) == 10
        topic = broker.service.topics[TOPIC]
        assert 10_240 <= topic.backlog.backlog_bytes() < 10_240 * 1.11
        await connection.send(c.producer(TOPIC, 2, connection.rid()))
        assert (await connection.error()).error == CODES[policy]
        await topic.subscriptions["s"].skip(1)
        assert topic.backlog.backlog_bytes() < 10_240
        await connection.producer(TOPIC, 3)


async def test_a_quota_is_exceeded_by_less_than_2_percent():
    """The size at which a gate is not always closed: most messages are counted by the turn."""
    limit = 20_000_000
    async with running() as broker:
        connection = await broker.connect()
        await connection.subscribe(TOPIC)
        await set_quota(broker, limit)
        await connection.producer(TOPIC)
        topic = broker.service.topics[TOPIC]
        assert topic.backlog.gate is None
        assert await publish_until_closed(connection, 420, size=50_000) is not None
        assert limit <= topic.backlog.backlog_bytes() < limit * 1.02
        assert topic.ledger.size_sent_bytes < limit * 1.02


async def test_a_limit_that_is_lowered_holds_at_once():
    async with running() as broker:
        connection = await broker.connect()
        await connection.subscribe(TOPIC)
        await connection.producer(TOPIC)
        assert await publish_until_closed(connection, 10) is None
        await set_quota(broker, 5_000)
        assert await publish_until_closed(connection, 3, first=10) == 0
        await set_quota(broker, 500_000)
        await connection.producer(TOPIC, 2)


async def test_producers_that_publish_nothing_leave_with_the_next_check():
    async with running() as broker:
        connection = await broker.connect()
        await connection.subscribe(TOPIC)
        await connection.producer(TOPIC)
        assert await publish_until_closed(connection, 10) is None
        await set_quota(broker, 5_000)
        await broker.service.backlog_checks.check()
        await connection.expect(T.CLOSE_PRODUCER)


async def test_what_is_acknowledged_makes_room_without_a_check():
    async with running() as broker:
        connection = await broker.connect()
        await connection.subscribe(TOPIC)
        await set_quota(broker, 10_240)
        await connection.producer(TOPIC)
        topic = broker.service.topics[TOPIC]
        for number in range(50):
            await connection.publish(number, b"x" * 1000)
            await connection.expect(T.SEND_RECEIPT)
            await topic.subscriptions["s"].clear_backlog()
        assert topic.ledger.entries == 50


async def test_without_subscriptions_there_is_no_backlog():
    async with running() as broker:
        connection = await broker.connect()
        await set_quota(broker, 5_000)
        await connection.producer(TOPIC)
        assert await publish_until_closed(connection, 20) is None


async def test_the_oldest_messages_are_evicted_at_the_quota():
    async with running() as broker:
        connection = await broker.connect()
        await connection.subscribe(TOPIC, "slow", consumer_id=1)
        await connection.subscribe(TOPIC, "slower", consumer_id=2)
        await set_quota(broker, 10_240, policy=EVICT)
        await connection.producer(TOPIC)
        topic = broker.service.topics[TOPIC]
        for number in range(40):
            await connection.publish(number, b"x" * 1000)
            await connection.expect(T.SEND_RECEIPT)
            assert topic.backlog.backlog_bytes() < 10_240
        assert topic.backlog.size_evictions > 0
        for subscription in topic.subscriptions.values():
            assert 7 <= subscription.backlog_entries <= 10
        await connection.producer(TOPIC, 2)


async def test_evicted_messages_are_not_delivered():
    async with running() as broker:
        connection = await broker.connect()
        await connection.subscribe(TOPIC)
        await connection.producer(TOPIC)
        for number in range(10):
            await connection.publish(number, b"x" * 1000)
            await connection.expect(T.SEND_RECEIPT)
        await set_quota(broker, 5_000, policy=EVICT)
        await broker.service.backlog_checks.check()
        await connection.send(c.flow(1, 10))
        message, _ = await connection.expect(T.MESSAGE)
        assert message.message_id.entryId == 6


async def test_a_message_that_is_too_old_stops_producers_when_its_age_is_read():
    async with running(preciseTimeBasedBacklogQuotaCheck=True) as broker:
        connection = await broker.connect()
        await connection.subscribe(TOPIC)
        await connection.producer(TOPIC)
        await connection.publish(0)  # published in 1970
        await connection.expect(T.SEND_RECEIPT)
        await set_quota(broker, seconds=60, kind=AGE)
        await connection.send(c.producer(TOPIC, 2, connection.rid()))
        assert (await connection.error()).error == CODES[EXCEPTION]
        await broker.service.backlog_checks.check()
        await connection.expect(T.CLOSE_PRODUCER)
        topic = broker.service.topics[TOPIC]
        assert topic.backlog.oldest.subscription_name == "s"
        await set_quota(broker, seconds=60, kind=AGE, policy=EVICT)
        await broker.service.backlog_checks.check()
        assert topic.subscriptions["s"].backlog_entries == 0
        assert topic.subscriptions["s"].expirations.total == 1
        assert (topic.backlog.size_evictions, topic.backlog.age_evictions) == (0, 1)
        await broker.service.backlog_checks.check()
        assert topic.backlog.oldest is None


async def test_a_message_of_a_producer_whose_clock_is_ahead_is_as_old_as_its_closed_ledger():
    async with running(preciseTimeBasedBacklogQuotaCheck=True, **SMALL_LEDGERS) as broker:
        connection = await broker.connect()
        await connection.subscribe(TOPIC)
        await connection.producer(TOPIC)
        year_ahead_ms = broker.service.clock.wall_ms() + 365 * 24 * 3_600_000
        for number in range(3):
            message = c.message(b"x", publish_time=year_ahead_ms)
            await connection.send(c.send(1, number, message))
            await connection.expect(T.SEND_RECEIPT)
        topic = broker.service.topics[TOPIC]
        oldest = await topic.backlog.find_oldest()
        assert oldest.time_ms == topic.ledger.statistics().ledgers[0].timestamp_ms


async def test_without_reading_the_age_is_that_of_the_closed_ledger():
    async with running(**SMALL_LEDGERS) as broker:
        connection = await broker.connect()
        await connection.subscribe(TOPIC)
        await connection.producer(TOPIC)
        await set_quota(broker, seconds=60, kind=AGE)
        for number in range(5):
            await connection.publish(number)
            await connection.expect(T.SEND_RECEIPT)
        topic = broker.service.topics[TOPIC]
        rows = topic.ledger._list.table.rows
        await eventually(lambda: len(rows) == 3)
        await broker.service.backlog_checks.check()
        assert topic.backlog.oldest.time_ms == rows[0].timestamp_ms
        rows[0].timestamp_ms -= 61_000
        await connection.send(c.producer(TOPIC, 2, connection.rid()))
        assert (await connection.error()).error == CODES[EXCEPTION]
        await set_quota(broker, seconds=60, kind=AGE, policy=EVICT)
        await broker.service.backlog_checks.check()
        assert topic.subscriptions["s"].backlog_entries == 3


async def test_a_limit_of_0_takes_no_producer():
    async with running() as broker:
        connection = await broker.connect()
        await set_quota(broker, 0)
        await connection.send(c.producer(TOPIC, 1, connection.rid()))
        assert (await connection.error()).error == CODES[EXCEPTION]
