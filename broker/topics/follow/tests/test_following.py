"""Brokers in one process: one owns a topic, another serves a share of its broadcast."""

from __future__ import annotations

import json
from contextlib import AsyncExitStack

import pytest
import trio
from structlog.testing import capture_logs

from broker.managed_ledger.ledger_table import LedgerRow
from broker.topics.broadcast.tests.peer import EXCLUSIVE
from broker.topics.follow.tests.cluster import (
    SHADOW,
    SOURCE,
    Cluster,
    ack_up_to,
    owner_and_follower,
    peer,
    record_path,
    settled,
    topic_of,
)
from broker.topics.topic.dedup_part import DEDUPLICATION
from broker.topics.topic.dedup_store import DEDUP_CURSOR
from metadata.store import MetadataUnavailable
from protocol import client
from protocol import pulsar_api_pb2 as pb
from protocol.errors import TopicNotFound
from protocol.topic_name import TopicName
from runtime.testing.conditions import SECONDS_MAX
from web.client import fetch

SUCCESS = pb.BaseCommand.SUCCESS
ERROR = pb.BaseCommand.ERROR


def numbers(start, stop):
    return [b"%d" % number for number in range(start, stop)]


def ids(connection, consumer_id):
    return [message.message_id.position for message in connection.received[consumer_id]]


def backlog(running, topic=SOURCE, subscription="all"):
    return topic_of(running, topic).subscriptions[subscription].backlog_entries


async def subscribed(connection, *consumers, **fields):
    answers = await connection.subscribe(*consumers, **fields)
    assert [answer.type for answer in answers] == [SUCCESS] * len(consumers), answers


async def test_consumers_of_a_shadow_get_what_is_published_to_its_source():
    async with owner_and_follower() as (_, a, b, publisher), peer(a) as there, peer(b) as here:
        await subscribed(there, (1, "owners"), topic=SOURCE)
        await subscribed(here, (1, "one"), (2, "two"), topic=SHADOW, sub_type=EXCLUSIVE)
        await publisher.publish(*numbers(0, 50))
        for connection, consumer in ((there, 1), (here, 1), (here, 2)):
            await connection.until(lambda c=connection, k=consumer: len(c.received[k]) == 50)
            assert connection.payloads(consumer) == numbers(0, 50)
        assert ids(here, 1) == ids(there, 1)


async def test_the_slowest_consumer_of_all_shares_holds_the_messages_of_the_source():
    async with owner_and_follower() as (_, a, b, publisher), peer(a) as there, peer(b) as here:
        there.acks = True
        await subscribed(there, (1, "owners"), topic=SOURCE)
        await subscribed(here, (1, "fast"), (2, "slow"), topic=SHADOW)
        await publisher.publish(*numbers(0, 10))
        await here.until(lambda: all(len(here.received[each]) == 10 for each in (1, 2)))
        await here.send(ack_up_to(here, 1, 10), ack_up_to(here, 2, 4))
        await settled(lambda: backlog(a) == 6)
        assert backlog(b, SHADOW) == 6
        await here.send(ack_up_to(here, 2, 10))
        await settled(lambda: backlog(a) == 0)


async def test_a_share_costs_its_source_one_copy_of_each_message():
    async with owner_and_follower() as (_, a, b, publisher), peer(a) as there, peer(b) as here:
        await subscribed(there, (1, "owners"), topic=SOURCE)
        names = [(number, f"c{number}") for number in range(1, 101)]
        await subscribed(here, *names, topic=SHADOW)
        await publisher.publish(*numbers(0, 20))
        await here.until(lambda: all(len(here.received[each]) == 20 for each, _ in names))
        subscriptions = topic_of(a, SOURCE).subscriptions.values()
        assert sum(each.delivered()[0] for each in subscriptions) == 2 * 20


async def test_a_new_name_starts_where_it_says():
    async with owner_and_follower() as (_, a, b, publisher), peer(a) as there, peer(b) as here:
        await subscribed(there, (1, "owners"), topic=SOURCE)
        await publisher.publish(*numbers(0, 4))
        await there.until(lambda: len(there.received[1]) == 4)
        await there.send(ack_up_to(there, 1, 2))
        await settled(lambda: backlog(a) == 2)
        earliest = {"initialPosition": pb.CommandSubscribe.Earliest}
        await subscribed(here, (1, "earliest"), topic=SHADOW, **earliest)
        await subscribed(here, (2, "latest"), topic=SHADOW)
        start = ids(there, 1)[3]
        await subscribed(here, (3, "given"), topic=SHADOW, start_message_id=start)
        await publisher.publish(b"4", first=4)
        await here.until(lambda: [len(here.received[each]) for each in (1, 2, 3)] == [3, 1, 2])
        assert here.payloads(1) == numbers(2, 5)
        assert here.payloads(3) == numbers(3, 5)


async def test_a_start_before_the_share_holds_the_source_back():
    async with owner_and_follower() as (_, a, b, publisher), peer(a) as there, peer(b) as here:
        await subscribed(there, (1, "owners"), topic=SOURCE)
        await subscribed(here, (1, "one"), topic=SHADOW)
        await publisher.publish(*numbers(0, 6))
        await here.until(lambda: len(here.received[1]) == 6)
        await there.until(lambda: len(there.received[1]) == 6)
        await here.send(ack_up_to(here, 1, 6))
        await there.send(ack_up_to(there, 1, 6))
        await settled(lambda: backlog(a) == 0)
        start = ids(there, 1)[2]
        await subscribed(here, (2, "late"), topic=SHADOW, start_message_id=start)
        assert backlog(a) == 4
        await here.until(lambda: here.payloads(2) == numbers(2, 6))


async def test_a_seek_back_is_answered_when_the_source_is_held_back():
    async with owner_and_follower() as (_, a, b, publisher), peer(b) as here:
        await subscribed(here, (1, "one"), topic=SHADOW)
        await publisher.publish(*numbers(0, 6))
        await here.until(lambda: len(here.received[1]) == 6)
        await here.send(ack_up_to(here, 1, 6))
        await settled(lambda: backlog(a) == 0)
        target = ids(here, 1)[1]
        answer = await here.ask(lambda request: client.seek(1, request, target))
        assert answer.type == SUCCESS, answer
        assert backlog(a) == 5
        assert here.closed == [1]
        await subscribed(here, (1, "one"), topic=SHADOW)
        await here.until(lambda: len(here.received[1]) == 11)
        assert here.payloads(1)[6:] == numbers(1, 6)
        here.acks = True
        await here.send(ack_up_to(here, 1, 11))
        await settled(lambda: backlog(a) == 0)


async def test_a_consumer_that_is_far_behind_is_served_from_the_bookies():
    few = {"max_entries_per_ledger": 7, "cache_size_bytes": 0}
    async with (
        owner_and_follower(ledgers=few) as (cluster, a, b, publisher),
        peer(b) as here,
    ):
        await subscribed(here, (1, "slow"), (2, "fast"), topic=SHADOW, flow=0)
        await here.send(client.flow(2, 1000))
        for start in range(0, 60, 5):
            await publisher.publish(*numbers(start, start + 5), first=start)
        await here.until(lambda: len(here.received[2]) == 60)
        assert len((await cluster.record_of(SOURCE)).rows) > 5
        sent = sum(each.delivered()[0] for each in topic_of(a, SOURCE).subscriptions.values())
        await here.send(client.flow(1, 1000))
        await here.until(lambda: len(here.received[1]) == 60)
        assert here.payloads(1) == here.payloads(2) == numbers(0, 60)
        subscriptions = topic_of(a, SOURCE).subscriptions.values()
        assert sum(each.delivered()[0] for each in subscriptions) == sent
        await here.send(ack_up_to(here, 1, 60), ack_up_to(here, 2, 60))
        await settled(lambda: backlog(a) == 0)
        topic_of(a, SOURCE).ledger.request_trim()
        await settled(lambda: topic_of(a, SOURCE).ledger.entries <= 7)
        await settled(lambda: topic_of(b, SHADOW).ledger.entries <= 7)
        await publisher.publish(*numbers(60, 80), first=60)
        await here.until(lambda: len(here.received[1]) == 80)
        assert here.payloads(1)[60:] == numbers(60, 80)


async def test_named_consumers_resume_when_another_broker_serves_their_share():
    async with owner_and_follower() as (cluster, a, b, publisher):
        async with peer(b) as here:
            await subscribed(here, (1, "fast"), (2, "slow"), (3, "ragged"), topic=SHADOW)
            await publisher.publish(*numbers(0, 6))
            await here.until(lambda: all(len(here.received[each]) == 6 for each in (1, 2, 3)))
            got = [message.message_id for message in here.received[3]]
            await here.send(
                ack_up_to(here, 1, 6), ack_up_to(here, 2, 2), client.ack(3, [got[0], got[3]])
            )
            await settled(lambda: backlog(a) == 5)
            cluster.owners[SHADOW] = "a"
            await b.service.unload_topic(TopicName.parse(SHADOW))
        await publisher.publish(b"6", first=6)
        async with peer(a) as here:
            await subscribed(here, (1, "fast"), (2, "slow"), (3, "ragged"), topic=SHADOW)
            await here.until(lambda: [len(here.received[each]) for each in (1, 2, 3)] == [1, 5, 5])
            assert here.payloads(1) == [b"6"]
            assert here.payloads(2) == numbers(2, 7)
            assert here.payloads(3) == [b"1", b"2", b"4", b"5", b"6"]
            await here.send(*(ack_up_to(here, each, 9) for each in (1, 2, 3)))
            await settled(lambda: backlog(a) == 0)


async def test_a_source_that_moves_to_another_owner_is_followed_there():
    async with owner_and_follower() as (cluster, a, b, publisher), peer(b) as here:
        here.acks = True
        await subscribed(here, (1, "one"), topic=SHADOW)
        await publisher.publish(*numbers(0, 5))
        await here.until(lambda: len(here.received[1]) == 5)
        cluster.owners[SOURCE] = "b"
        await a.service.unload_topic(TopicName.parse(SOURCE))
        async with peer(b, producer=True, topic=SOURCE) as again:
            await again.publish(*numbers(5, 10))
            await here.until(lambda: len(here.received[1]) == 10)
            assert here.payloads(1) == numbers(0, 10)
            await settled(lambda: backlog(b) == 0)


async def test_what_is_published_while_there_is_no_link_is_not_missed():
    async with owner_and_follower() as (cluster, _, b, publisher), peer(b) as here:
        await subscribed(here, (1, "one"), topic=SHADOW)
        await publisher.publish(b"0")
        await here.until(lambda: len(here.received[1]) == 1)
        address = cluster.addresses.pop("a")  # nobody is found
        link = topic_of(b, SHADOW).ledger._link
        link._connection.close("cut by the test")
        await settled(lambda: "no owner" in link.problem)
        await publisher.publish(*numbers(1, 5), first=1)
        cluster.addresses["a"] = address
        await here.until(lambda: len(here.received[1]) == 5)
        assert here.payloads(1) == numbers(0, 5)


async def test_consumers_hear_of_the_end_of_the_source():
    async with owner_and_follower() as (_, a, b, publisher), peer(b) as here:
        ends = []
        before = here.on_command

        def on_command(command, payload, acks):
            if command.type == pb.BaseCommand.REACHED_END_OF_TOPIC:
                ends.append(command.reachedEndOfTopic.consumer_id)
            else:
                before(command, payload, acks)

        here.on_command = on_command
        here.acks = True
        await subscribed(here, (1, "one"), topic=SHADOW)
        await publisher.publish(*numbers(0, 3))
        await here.until(lambda: len(here.received[1]) == 3)
        await topic_of(a, SOURCE).terminate()
        await settled(lambda: ends == [1])


async def test_what_a_shadow_does_not_serve_is_refused_with_the_reason():
    async with owner_and_follower() as (cluster, a, b, _), peer(a) as there, peer(b) as here:
        [answer] = await here.subscribe((1, "x"), topic=SHADOW, subscription="s", metadata={})
        assert (answer.error.error, "broadcast" in answer.error.message) == (
            pb.ServerError.NotAllowedError,
            True,
        )
        await subscribed(there, (1, "x"), topic=SOURCE, subscription="plain", metadata={})
        [answer] = await here.subscribe((2, "x"), topic=SHADOW, subscription="plain")
        assert answer.error.error == pb.ServerError.NotAllowedError
        cluster.owners[SHADOW + "-1"] = "b"
        await cluster.make_shadow(SHADOW + "-1", SHADOW)
        [answer] = await here.subscribe((3, "x"), topic=SHADOW + "-1")
        assert "shadow itself" in answer.error.message
        cluster.owners[SHADOW + "-2"] = "b"
        await cluster.make_shadow(SHADOW + "-2", "persistent://public/default/absent")
        [answer] = await here.subscribe((4, "x"), topic=SHADOW + "-2")
        assert answer.error.error == pb.ServerError.TopicNotFound
        await subscribed(here, (5, "y"), topic=SHADOW)


@pytest.mark.parametrize("action", ["producer_request_hold", "consumer_backlog_eviction"])
async def test_a_shadow_is_served_where_backlogs_are_limited(action):
    limits = {
        "backlogQuotaDefaultLimitBytes": 1 << 20,
        "backlogQuotaDefaultRetentionPolicy": action,
    }
    async with owner_and_follower(**limits) as (_, _a, b, publisher), peer(b) as here:
        await subscribed(here, (1, "one"), topic=SHADOW)
        await publisher.publish(*numbers(0, 10))
        await here.until(lambda: len(here.received[1]) == 10)
        await topic_of(b, SHADOW).check_quotas()
        assert backlog(b, SHADOW) == 10


async def test_a_part_of_a_shadow_stores_nothing():
    async with owner_and_follower(brokerDeduplicationEnabled=True) as (cluster, a, b, _):
        async with peer(a) as there, peer(b) as here:
            await subscribed(there, (1, "owners"), topic=SOURCE)
            await subscribed(here, (1, "one"), topic=SHADOW)
        for running, name in ((a, SOURCE), (b, SHADOW)):
            assert topic_of(running, name).has_part(DEDUPLICATION)
            await running.service.unload_topic(TopicName.parse(name))
        stored = [await cluster.tree.children(record_path(each)) for each in (SOURCE, SHADOW)]
        assert stored == [["all", DEDUP_CURSOR], ["all"]]


async def test_an_administrator_creates_a_shadow_of_a_topic_that_exists():
    async with owner_and_follower(shadow=False) as (cluster, _, b, publisher), peer(b) as here:
        for source, status in ((SOURCE, 204), ("persistent://public/default/absent", 404)):
            name = SHADOW if source == SOURCE else SHADOW + "-2"
            cluster.owners[name] = "b"
            url = f"{b.web_service_url}/admin/v2/{name.replace('://', '/')}"
            body = json.dumps({"PULSAR.SHADOW_SOURCE": source}).encode()
            answer = await fetch("PUT", url, SECONDS_MAX, body=body, body_bytes_max=10_000)
            assert answer.status == status, answer
        await subscribed(here, (1, "one"), topic=SHADOW)
        await publisher.publish(b"0")
        await here.until(lambda: here.payloads(1) == [b"0"])


async def test_a_producer_of_a_shadow_is_refused():
    async with owner_and_follower() as (_, _, b, _), peer(b) as here:
        answer = await here.ask(lambda request: client.producer(SHADOW, 1, request))
        assert answer.error.error == pb.ServerError.NotAllowedError
        assert SOURCE in answer.error.message


async def test_deleting_a_shadow_frees_its_place_and_leaves_the_messages_to_the_source():
    async with owner_and_follower(shadow=False) as (cluster, a, b, publisher):
        await publisher.publish(*numbers(0, 3))
        source = await cluster.record_of(SOURCE)
        # Pulsar's brokers list the ledgers of the source in the record of a shadow.
        await cluster.make_shadow(rows=[LedgerRow(row.ledger_id) for row in source.rows])
        async with peer(a) as there, peer(b) as here:
            await subscribed(there, (1, "owners"), topic=SOURCE)
            await subscribed(here, (1, "one"), topic=SHADOW)
            await publisher.publish(*numbers(3, 6), first=3)
            await there.until(lambda: len(there.received[1]) == 3)
            await there.send(ack_up_to(there, 1, 3))
            await here.until(lambda: len(here.received[1]) == 3)
            assert backlog(a) == 3
            await b.service.delete_topic(TopicName.parse(SHADOW), force=True)
            await settled(lambda: backlog(a) == 0)
            assert await cluster.record_of(SHADOW) is None
            path = f"/managed-ledgers/{TopicName.parse(SHADOW).managed_ledger_name}"
            assert await cluster.tree.children(path) == []
            with pytest.raises(TopicNotFound):
                await b.service.find_topic(TopicName.parse(SHADOW))
            await publisher.publish(b"6", first=6)
            await there.until(lambda: len(there.received[1]) == 4)
            entries = await topic_of(a, SOURCE).ledger.read((0, 0), 10, 10_000)
            assert len(entries) == 7


async def test_an_unsubscribe_frees_the_place_of_the_share():
    async with owner_and_follower() as (_, a, b, publisher), peer(a) as there, peer(b) as here:
        there.acks = True
        await subscribed(there, (1, "owners"), topic=SOURCE)
        await subscribed(here, (1, "one"), topic=SHADOW)
        await publisher.publish(*numbers(0, 3))
        await here.until(lambda: len(here.received[1]) == 3)
        await settled(lambda: len(there.received[1]) == 3)
        assert backlog(a) == 3
        answer = await here.ask(lambda request: client.unsubscribe(1, request))
        assert answer.type == SUCCESS
        await settled(lambda: backlog(a) == 0)
        assert len(topic_of(a, SOURCE).subscriptions["all"].cursors) == 1


async def test_a_shadow_whose_source_is_deleted_is_closed():
    async with owner_and_follower() as (_, a, b, _), peer(b) as here:
        await subscribed(here, (1, "one"), topic=SHADOW)
        await a.service.delete_topic(TopicName.parse(SOURCE), force=True)
        await settled(lambda: SHADOW not in b.service.topics)
        assert here.closed == [1]


async def test_a_shadow_that_is_closed_without_the_metadata_store_is_one_line_in_the_log():
    async with owner_and_follower() as (cluster, a, b, _), peer(b) as here:
        await subscribed(here, (1, "one"), topic=SHADOW)
        cluster.unload_failure = MetadataUnavailable("the session was lost, a new one is begun")
        with capture_logs() as lines:
            await a.service.delete_topic(TopicName.parse(SOURCE), force=True)
            await settled(lambda: any(line["event"] == "cannot unload a shadow" for line in lines))
    (line,) = (line for line in lines if line["event"] == "cannot unload a shadow")
    assert line["reason"] == "the session was lost, a new one is begun"
    assert "exc_info" not in line


async def test_two_brokers_do_not_report_for_one_share():
    """The former follower does not know yet that another broker serves the shadow."""
    cluster = Cluster()
    cluster.owners = {SOURCE: "a", SHADOW: "b"}
    async with AsyncExitStack() as stack:
        a = await stack.enter_async_context(cluster.broker("a"))
        b = await stack.enter_async_context(cluster.broker("b"))
        c = await stack.enter_async_context(cluster.broker("c"))
        publisher = await stack.enter_async_context(peer(a, producer=True, topic=SOURCE))
        await cluster.make_shadow()
        here = await stack.enter_async_context(peer(b))
        await subscribed(here, (1, "one"), topic=SHADOW)
        await publisher.publish(*numbers(0, 4))
        await here.until(lambda: len(here.received[1]) == 4)
        cluster.owners[SHADOW] = "c"
        other = await stack.enter_async_context(peer(c))
        [answer] = await other.subscribe((1, "one"), topic=SHADOW)
        assert answer.error.error == pb.ServerError.ServiceNotReady
        assert "former follower" in answer.error.message
        # Its connection ends, as when its process was stopped for too long; then it goes on.
        topic_of(b, SHADOW).ledger._link._connection.close("cut by the test")
        await settled(lambda: SHADOW not in b.service.topics)
        await subscribed(other, (1, "one"), topic=SHADOW)
        await other.until(lambda: other.payloads(1) == numbers(0, 4))
        await other.send(ack_up_to(other, 1, 4))
        await settled(lambda: backlog(a) == 0)


async def test_ordinary_topics_are_read_once_when_they_are_opened():
    async with Cluster().broker("a") as running:
        store = running.service.factory._store
        name = TopicName.parse(SOURCE).managed_ledger_name
        await running.service.factory.open(name)
        await running.service.factory.close(name)
        reads = []
        get = store.get

        async def counted(path):
            reads.append(path)
            return await get(path)

        store.get = counted
        await running.service.factory.open(name)
        assert reads.count(f"/managed-ledgers/{name}") == 1
        await trio.lowlevel.checkpoint()
