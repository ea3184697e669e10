"""Through sockets, a real broker and its storage: what users of a broadcast rely on."""

from __future__ import annotations

import json
import shutil
import urllib.request
from contextlib import AsyncExitStack

import trio

from broker.topics.broadcast.tests.peer import (
    BROADCAST,
    EXCLUSIVE,
    SHARED,
    broker,
    peer,
    subscription_of,
)
from protocol import client
from protocol import pulsar_api_pb2 as pb
from runtime.testing.conditions import SECONDS_MAX

SUCCESS = pb.BaseCommand.SUCCESS
ERROR = pb.BaseCommand.ERROR


async def settled(condition, seconds=SECONDS_MAX):
    with trio.fail_after(seconds):
        while not condition():  # noqa: ASYNC110
            await trio.sleep(0.01)


async def test_a_thousand_consumers_get_everything_in_order():
    async with AsyncExitStack() as stack:
        running = await stack.enter_async_context(broker())
        publisher = await stack.enter_async_context(peer(running, producer=True))
        peers = [await stack.enter_async_context(peer(running)) for _ in range(4)]
        for number, each in enumerate(peers):
            each.acks = True
            answers = await each.subscribe(
                *((consumer, f"v{number}-{consumer}") for consumer in range(250)),
                sub_type=EXCLUSIVE if number % 2 else SHARED,
            )
            assert {answer.type for answer in answers} == {SUCCESS}
        payloads = [b"%d" % number + bytes(10_000) for number in range(20)]
        await publisher.publish(*payloads)
        for each in peers:
            await each.until(
                lambda each=each: all(len(each.received[one]) >= 20 for one in range(250))
            )
            assert all(each.payloads(consumer) == payloads for consumer in range(250))
        subscription = subscription_of(running)
        await settled(lambda: subscription.backlog_entries == 0)
        statistics = subscription.statistics()
        shown = statistics.as_json()
        assert (shown["type"], shown["consumersCount"], len(shown["consumers"])) == (
            "Broadcast",
            1000,
            20,
        )
        assert shown["broadcast"]["laggards"] == 0
        assert shown["msgOutCounter"] == 20_000
        assert all(stage["count"] for stage in shown["broadcast"]["stages"].values())


async def test_a_restart_resumes_every_named_consumer_behind_its_last_ack(tmp_path):
    async with broker(tmp_path) as running, peer(running, producer=True) as publisher:  # noqa: SIM117
        async with peer(running) as consumer:
            await consumer.subscribe((1, "fast"), (2, "slow"), (3, "ragged"))
            await publisher.publish(b"0", b"1", b"2", b"3")
            await consumer.until(lambda: all(len(consumer.received[one]) == 4 for one in (1, 2, 3)))
            ids = [message.message_id for message in consumer.received[1]]
            await consumer.send(
                client.ack(1, ids), client.ack(2, ids[:1]), client.ack(3, [ids[0], ids[2]])
            )
            subscription = subscription_of(running)
            await settled(lambda: subscription.acks.count == 7)
    async with broker(tmp_path) as running, peer(running, producer=True) as publisher:
        subscription = await running.service.get_or_load_topic(client_topic(), create=False)
        async with peer(running) as consumer:
            await consumer.subscribe((1, "fast"), (2, "slow"), (3, "ragged"), metadata={})
            await publisher.publish(b"4")
            await consumer.until(
                lambda: [len(consumer.received[one]) for one in (1, 2, 3)] == [1, 4, 3]
            )
            assert consumer.payloads(1) == [b"4"]
            assert consumer.payloads(2) == [b"1", b"2", b"3", b"4"]
            assert consumer.payloads(3) == [b"1", b"3", b"4"]


def client_topic():
    from broker.topics.broadcast.tests.peer import TOPIC
    from protocol.topic_name import TopicName

    return TopicName.parse(TOPIC)


async def test_nack_seek_and_unsubscribe_are_each_consumers_own():
    async with (
        broker() as running,
        peer(running, producer=True) as publisher,
        peer(running) as consumer,
    ):
        await consumer.subscribe((1, "a"), (2, "b"))
        await publisher.publish(b"0", b"1", b"2")
        await consumer.until(lambda: all(len(consumer.received[one]) == 3 for one in (1, 2)))
        ids = [message.message_id for message in consumer.received[1]]
        await consumer.send(client.redeliver_unacknowledged(1, [ids[1]]))
        await consumer.until(lambda: len(consumer.received[1]) == 4)
        again = consumer.received[1][3]
        assert (again.payload, again.redelivery_count) == (b"1", 1)
        await consumer.send(client.ack(1, ids), client.ack(2, ids))

        answer = await consumer.ask(lambda request: client.seek(1, request, ids[1]))
        assert answer.type == SUCCESS
        assert consumer.closed == [1]
        await consumer.subscribe((1, "a"))
        await consumer.until(lambda: len(consumer.received[1]) == 6)
        assert consumer.payloads(1)[4:] == [b"1", b"2"]
        assert len(consumer.received[2]) == 3

        subscription = subscription_of(running)
        assert subscription.backlog_entries == 2
        answer = await consumer.ask(lambda request: client.unsubscribe(1, request))
        assert answer.type == SUCCESS
        assert subscription_of(running) is subscription
        assert subscription.backlog_entries == 0
        answer = await consumer.ask(lambda request: client.unsubscribe(2, request))
        assert answer.type == SUCCESS
        assert not running.service.topics[client_topic().full].subscriptions


async def test_what_is_refused_says_why():
    async with (
        broker() as running,
        peer(running, producer=True),
        peer(running) as consumer,
    ):
        [answer] = await consumer.subscribe((1, "a"), subscription="plain", metadata={})
        assert answer.type == SUCCESS
        cases = [
            {"subscription": "plain"},
            {"metadata": {"vela.broadcast": "perhaps"}, "subscription": "new"},
            {"sub_type": pb.CommandSubscribe.Key_Shared},
            {"metadata": {"vela.broadcast": "false"}},
        ]
        [answer] = await consumer.subscribe((2, "b"))
        assert answer.type == SUCCESS
        for number, case in enumerate(cases):
            [answer] = await consumer.subscribe((10 + number, "c"), flow=0, **case)
            assert answer.type == ERROR, case
            assert "broadcast" in answer.error.message.lower(), case
        [answer] = await consumer.subscribe((20, "b"))
        assert answer.error.error == pb.ConsumerBusy
        [answer] = await consumer.subscribe(
            (21, "d"), metadata={}, subscription_properties=BROADCAST
        )
        assert answer.type == SUCCESS


async def call(running, method, path, body=None):
    """An HTTP request to the administration; its JSON or text."""

    def request():
        data = None if body is None else json.dumps(body).encode()
        asked = urllib.request.Request(
            running.web_service_url + path,
            data=data,
            method=method,
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(asked, timeout=SECONDS_MAX) as answer:
            return answer.read().decode()

    return await trio.to_thread.run_sync(request)


ADMIN = "/admin/v2/persistent/public/default/areas"


async def test_administrators_create_see_skip_and_delete_it(tmp_path):
    async with (
        broker(tmp_path) as running,
        peer(running, producer=True) as publisher,
        peer(running) as consumer,
    ):
        body = {"ledgerId": -1, "entryId": -1, "properties": BROADCAST}
        await call(running, "PUT", f"{ADMIN}/subscription/all", body)
        await publisher.publish(b"0", b"1")
        [answer] = await consumer.subscribe((1, "a"), metadata={}, flow=0, initialPosition=1)
        assert answer.type == SUCCESS
        stats = json.loads(await call(running, "GET", f"{ADMIN}/stats"))["subscriptions"]["all"]
        assert (stats["type"], stats["msgBacklog"]) == ("Broadcast", 2)
        assert stats["subscriptionProperties"] == BROADCAST
        assert "without permits" in stats["whyNotDispatching"]
        await call(running, "POST", f"{ADMIN}/subscription/all/skip/1")
        await consumer.send(client.flow(1, 10))
        await consumer.until(lambda: consumer.payloads(1) == [b"1"])
        await call(running, "POST", f"{ADMIN}/subscription/all/resetcursor", body)
        assert consumer.closed == [1]
        await consumer.subscribe((1, "a"))
        await consumer.until(lambda: consumer.payloads(1) == [b"1", b"0", b"1"])
        page = await call(running, "GET", "/metrics/")
        assert "vela_broadcast_stage_seconds_bucket" in page
        assert 'consumer_name="a"' not in page
        ledgers = await running.admin.ledgers.live_ledgers()
        await call(running, "DELETE", f"{ADMIN}/subscription/all?force=true")
        gone = ledgers - await running.admin.ledgers.live_ledgers()
        assert len(gone) >= 1  # that of the virtual cursors
        assert consumer.closed == [1, 1]


async def test_kill_in_the_middle_keeps_names_and_positions(tmp_path):
    """The broker is not closed: what is on disk at that moment is all that the next one has."""
    async with (
        broker(tmp_path) as running,
        peer(running, producer=True) as publisher,
        peer(running) as consumer,
    ):
        await consumer.subscribe(*((number, f"v{number}") for number in range(50)))
        await publisher.publish(*(b"%d" % number for number in range(10)))
        await consumer.until(
            lambda: all(len(consumer.received[number]) == 10 for number in range(50))
        )
        ids = [message.message_id for message in consumer.received[0]]
        await consumer.send(
            *(client.ack(number, [ids[number % 10]], cumulative=True) for number in range(50))
        )
        subscription = subscription_of(running)
        stored = subscription.keeper.snapshots
        await settled(lambda: subscription.keeper.snapshots > stored)
        shutil.copytree(tmp_path, tmp_path.with_name("left-behind"))
    async with (
        broker(tmp_path.with_name("left-behind")) as running,
        peer(running, producer=True) as publisher,
        peer(running) as consumer,
    ):
        await consumer.subscribe(*((number, f"v{number}") for number in range(50)))
        await publisher.publish(b"last")
        await consumer.until(
            lambda: all(consumer.payloads(number)[-1:] == [b"last"] for number in range(50))
        )
        for number in range(50):
            got = consumer.payloads(number)[:-1]
            owed = [b"%d" % each for each in range(number % 10 + 1, 10)]
            assert got[len(got) - len(owed) :] == owed
            assert got == [b"%d" % each for each in range(10 - len(got), 10)]


async def test_acknowledgements_of_two_broadcasts_on_a_connection_are_kept_apart():
    """The table for runs of acknowledgements belongs to a broadcast as long as one of its consumers
    is in it. Its others, whose ids are far away, do not keep it."""
    async with (
        broker() as running,
        peer(running, producer=True) as publisher,
        peer(running) as consumer,
    ):
        consumer.acks = True
        await consumer.subscribe((0, "in the table"))
        await consumer.subscribe((1_000, "far away"), flow=0)
        closed = await consumer.ask(lambda request: client.close_consumer(0, request))
        assert closed.type == SUCCESS
        await consumer.subscribe((1, "of the other one"), subscription="other")
        await consumer.subscribe((2, "late"))
        for number in range(3):
            await publisher.publish(b"message")
            for each in (subscription_of(running), subscription_of(running, "other")):
                await settled(lambda each=each, number=number: each.acks.count == number + 1)
