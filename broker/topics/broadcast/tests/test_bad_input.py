"""Invalid input is refused with the reason, or changes nothing; no consumer loses a message."""

from __future__ import annotations

import json
import urllib.error

import pytest

from broker.topics.broadcast.tests.peer import BROADCAST, EXCLUSIVE, broker, peer
from broker.topics.broadcast.tests.test_end_to_end import (
    ADMIN,
    call,
    settled,
    subscription_of,
)
from protocol import client
from protocol import pulsar_api_pb2 as pb

SUCCESS = pb.BaseCommand.SUCCESS
ERROR = pb.BaseCommand.ERROR
PERHAPS = {"vela.broadcast": "perhaps"}


async def refused(running, method, path, body=None):
    """The status and the reason of a request that must fail."""
    with pytest.raises(urllib.error.HTTPError) as failure:
        await call(running, method, path, body)
    with failure.value as answer:
        return answer.code, json.loads(answer.read())["reason"]


async def test_an_ordinary_subscription_stays_what_it_is_and_loses_nothing():
    async with (
        broker() as running,
        peer(running, producer=True) as publisher,
        peer(running) as consumer,
    ):
        await consumer.subscribe((1, "a"), subscription="plain", metadata={})
        await publisher.publish(b"0", b"1")
        for fields in ({}, {"metadata": {}, "subscription_properties": BROADCAST}):
            [answer] = await consumer.subscribe((2, "b"), subscription="plain", flow=0, **fields)
            assert (answer.type, answer.error.error) == (ERROR, pb.NotAllowedError)
            assert "plain exists as an ordinary subscription" in answer.error.message
            assert "another subscription name" in answer.error.message
        await consumer.until(lambda: consumer.payloads(1) == [b"0", b"1"])
        assert subscription_of(running, "plain").backlog_entries == 2
        await publisher.publish(b"2", first=2)
        await consumer.until(lambda: consumer.payloads(1) == [b"0", b"1", b"2"])


async def test_an_invalid_value_leaves_no_subscription_behind():
    async with broker() as running, peer(running, producer=True), peer(running) as consumer:
        cases = [
            {"metadata": PERHAPS},
            {"metadata": {}, "subscription_properties": PERHAPS},
            {"metadata": BROADCAST, "subscription_properties": {"vela.broadcast": "false"}},
        ]
        for case in cases:
            [answer] = await consumer.subscribe((1, "a"), flow=0, **case)
            assert (answer.type, answer.error.error) == (ERROR, pb.MetadataError), case
            assert "vela.broadcast" in answer.error.message
        code, reason = await refused(
            running, "PUT", f"{ADMIN}/subscription/all", {"properties": PERHAPS}
        )
        assert 400 <= code < 500, reason
        assert "vela.broadcast must be true or false" in reason
        code, reason = await refused(
            running, "PUT", f"{ADMIN}/subscription/all", {"properties": ["vela.broadcast"]}
        )
        assert (code, reason.startswith("Properties")) == (400, True)
        assert json.loads(await call(running, "GET", f"{ADMIN}/subscriptions")) == []
        [answer] = await consumer.subscribe((1, "a"))
        assert answer.type == SUCCESS


async def test_a_non_persistent_topic_cannot_have_one():
    async with broker() as running, peer(running) as consumer:
        request = consumer.codec.next_request_id()
        topic = "non-persistent://public/default/areas"
        await consumer.send(client.subscribe(topic, "all", 1, request, metadata=BROADCAST))
        answer = await consumer.answer(request)
        assert answer.error.error == pb.NotAllowedError
        assert "needs a persistent topic" in answer.error.message


async def test_acks_backwards_and_of_what_was_never_sent_change_nothing():
    async with (
        broker() as running,
        peer(running, producer=True) as publisher,
        peer(running) as consumer,
    ):
        await consumer.subscribe((1, "a"), (2, "b"), sub_type=EXCLUSIVE)
        await publisher.publish(*(b"%d" % number for number in range(6)))
        await consumer.until(lambda: all(len(consumer.received[one]) == 6 for one in (1, 2)))
        ids = [message.message_id for message in consumer.received[1]]
        ledger, last = ids[-1].ledger_id, ids[-1].entry_id
        await consumer.send(
            client.ack(1, [ids[3]], cumulative=True),
            client.ack(1, [ids[1]], cumulative=True),  # backwards
            client.ack(1, [(ledger, last + 50)]),
            client.ack(1, [(ledger + 1000, 0)], cumulative=True),
            client.ack(1, [(0, 0)]),
            client.ack(99, [ids[5]]),  # of a consumer that is not there
        )
        # The answer to the last one says that all of them were taken.
        answer = await consumer.ask(
            lambda request: client.ack(1, [(ledger, last + 60)], request_id=request)
        )
        assert answer.type == pb.BaseCommand.ACK_RESPONSE
        subscription = subscription_of(running)
        acked = {
            consumer.name: subscription.cursors.acked[slot]
            for consumer, slot in subscription.attached.items()
        }
        assert acked == {"a": 4, "b": 0}
        assert subscription.backlog_entries == 6
        await publisher.publish(b"6", first=6)
        await consumer.until(lambda: all(len(consumer.received[one]) == 7 for one in (1, 2)))
        answer = await consumer.ask(lambda request: client.close_consumer(1, request))
        assert answer.type == SUCCESS
        await consumer.subscribe((1, "a"))
        await consumer.until(lambda: consumer.payloads(1)[7:] == [b"4", b"5", b"6"])


async def test_a_cumulative_ack_of_what_was_not_delivered_yet_is_that_consumers_own():
    async with (
        broker() as running,
        peer(running, producer=True) as publisher,
        peer(running) as consumer,
    ):
        await consumer.subscribe((1, "reads"), sub_type=EXCLUSIVE)
        await consumer.subscribe((2, "waits"), sub_type=EXCLUSIVE, flow=0)
        await publisher.publish(b"0", b"1", b"2")
        await consumer.until(lambda: len(consumer.received[1]) == 3)
        skipped = consumer.received[1][1].message_id
        await consumer.send(client.ack(2, [skipped], cumulative=True), client.flow(2, 10))
        await consumer.until(lambda: consumer.payloads(2) == [b"2"])
        subscription = subscription_of(running)
        assert subscription.backlog_entries == 3
        last = consumer.received[1][2].message_id
        await consumer.send(*(client.ack(one, [last], cumulative=True) for one in (1, 2)))
        await settled(lambda: subscription.backlog_entries == 0)
