"""Producers: names, access modes, receipts, refusals."""

from __future__ import annotations

from math import inf

import pytest
import trio
from structlog.testing import capture_logs

from broker.net.tests.harness import T, running
from broker.topics.topic.dedup_part import DEDUPLICATION
from broker.topics.topic.dedup_store import DedupStore
from broker.topics.topic.tests.dedup_of import dedup_of
from protocol import client as c
from protocol import pulsar_api_pb2 as pb
from protocol.metadata import (
    METADATA_FIELDS_MAX,
    check_metadata,
    encode_message,
)
from protocol.topic_name import TopicName
from runtime.testing.conditions import eventually

E = pb.ServerError
TOPIC = "persistent://public/default/t"


async def refused(connection, topic=TOPIC, producer_id=1, **fields):
    await connection.send(c.producer(topic, producer_id, connection.rid(), **fields))
    return await connection.error()


async def test_a_new_producer_gets_a_name_and_always_a_schema_version():
    async with running() as broker:
        connection = await broker.connect()
        first = await connection.producer(TOPIC, 1)
        second = await connection.producer(TOPIC, 2)
        assert (first.producer_name, second.producer_name) == ("standalone-0-0", "standalone-0-1")
        assert first.last_sequence_id == -1
        assert first.HasField("schema_version")
        assert first.schema_version == b""
        again = await connection.producer(TOPIC, 1)
        assert again.producer_name == first.producer_name


async def test_names_that_the_broker_would_give_may_be_taken_by_others():
    async with running() as broker:
        squatter, other = await broker.connect(), await broker.connect()
        for number in range(1, 200):
            name = f"standalone-0-{number}"
            await squatter.producer(TOPIC, number, producer_name=name)
        names = [(await other.producer(TOPIC, each)).producer_name for each in range(3)]
        assert names == ["standalone-0-0", "standalone-0-200", "standalone-0-201"]


async def test_a_name_that_is_given_has_no_history_for_deduplication():
    async with running(brokerDeduplicationEnabled=True) as broker:
        squatter, other = await broker.connect(), await broker.connect()
        await squatter.producer(TOPIC, producer_name="standalone-0-0")
        message = c.message(b"x", sequence_id=1 << 40, producer_name="standalone-0-0")
        await squatter.send(c.send(1, 1 << 40, message))
        await squatter.expect(T.SEND_RECEIPT)
        await squatter.send(c.close_producer(1, squatter.rid()))
        await squatter.expect(T.SUCCESS)
        answer = await other.producer(TOPIC)
        assert (answer.producer_name, answer.last_sequence_id) == ("standalone-0-1", -1)


async def test_receipts_come_in_order_with_rising_positions():
    async with running() as broker:
        connection = await broker.connect()
        await connection.producer(TOPIC)
        frames = [c.send(1, n, c.message(b"%d" % n, sequence_id=n)) for n in range(500)]
        await connection.send(*frames)
        positions = []
        for number in range(500):
            receipt = await connection.expect(T.SEND_RECEIPT)
            assert receipt.sequence_id == number
            assert receipt.highest_sequence_id == 2**64 - 1
            positions.append((receipt.message_id.ledgerId, receipt.message_id.entryId))
        assert positions == sorted(set(positions))
        assert [entry_id for _, entry_id in positions] == list(range(500))


async def test_a_name_in_use_is_refused_and_free_again_afterwards():
    async with running(connectionLivenessCheckTimeoutMillis=60_000) as broker:
        one, two = await broker.connect(), await broker.connect()
        await one.producer(TOPIC, producer_name="mine", user_provided_producer_name=True)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(one.nothing_more, inf)  # answers the broker's PING
            error = await refused(two, producer_name="mine", user_provided_producer_name=True)
            nursery.cancel_scope.cancel()
        assert error.error == E.ProducerBusy
        assert "'mine' is already connected" in error.message
        await one.send(c.close_producer(1, one.rid()))
        await one.expect(T.SUCCESS)
        await two.producer(TOPIC, producer_name="mine")


async def test_the_name_of_a_dead_connection_is_taken_over():
    async with running(connectionLivenessCheckTimeoutMillis=100) as broker:
        dead, alive = await broker.connect(), await broker.connect()
        dead.answers_pings = False
        await dead.producer(TOPIC, producer_name="mine")
        answer = await alive.producer(TOPIC, producer_name="mine", epoch=1)
        assert answer.producer_name == "mine"
        assert await dead.next() is not None  # the PING it never answered
        assert await dead.next() is None


async def test_access_modes_over_the_wire():
    async with running() as broker:
        one, two, three = [await broker.connect() for _ in range(3)]
        held = await one.producer(TOPIC, producer_access_mode=pb.Exclusive)
        assert held.topic_epoch == 0
        assert (await refused(two, producer_access_mode=pb.Exclusive)).error == E.ProducerFenced
        assert (await refused(two, producer_access_mode=pb.Shared)).error == E.ProducerBusy
        waiting = await two.producer(TOPIC, producer_access_mode=pb.WaitForExclusive)
        assert not waiting.producer_ready
        await two.nothing_more()
        await one.send(c.close_producer(1, one.rid()))
        await one.expect(T.SUCCESS)
        ready = await two.expect(T.PRODUCER_SUCCESS)
        assert ready.producer_ready
        assert ready.topic_epoch == 1
        assert ready.request_id == waiting.request_id
        await three.producer(TOPIC, producer_access_mode=pb.ExclusiveWithFencing)
        assert (await two.expect(T.CLOSE_PRODUCER)).request_id == 2**64 - 1
        name = ready.producer_name
        error = await refused(
            two, producer_name=name, producer_access_mode=pb.Exclusive, topic_epoch=1
        )
        assert error.error == E.ProducerFenced


async def test_a_waiting_producer_that_leaves_is_forgotten():
    async with running() as broker:
        one, two, three = [await broker.connect() for _ in range(3)]
        await one.producer(TOPIC, producer_access_mode=pb.Exclusive)
        await two.producer(TOPIC, producer_access_mode=pb.WaitForExclusive)
        await three.producer(TOPIC, 1, producer_access_mode=pb.WaitForExclusive)
        await two.stream.aclose()
        await three.send(c.close_producer(1, three.rid()))
        await three.expect(T.SUCCESS)
        await eventually(lambda: not broker.topic(TOPIC).access.waiting)
        await one.stream.aclose()
        await eventually(lambda: not broker.topic(TOPIC).access.producers)
        await three.producer(TOPIC, 2)


async def test_producers_that_wait_for_exclusive_access_do_not_hold_up_their_connection():
    """It may be the connection whose producer they wait for."""
    limits = {"pending_requests_max": 4, "producers_waiting_max": 10}
    async with running(limits) as broker:
        connection = await broker.connect()
        await connection.producer(TOPIC, 1, producer_access_mode=pb.Exclusive)
        for producer_id in range(2, 12):
            waiting = await connection.producer(
                TOPIC, producer_id, producer_access_mode=pb.WaitForExclusive
            )
            assert not waiting.producer_ready
        error = await refused(connection, producer_id=12, producer_access_mode=pb.WaitForExclusive)
        assert error.error == E.TooManyRequests
        assert "10 producers of this connection wait for exclusive access" in error.message
        await connection.send(c.close_producer(1, connection.rid()))
        for _ in range(2):
            await connection.expect(T.SUCCESS, T.PRODUCER_SUCCESS)
        assert len(broker.topic(TOPIC).access.waiting) == 9
        await connection.producer(TOPIC, 12, producer_access_mode=pb.WaitForExclusive)


async def test_a_damaged_message_is_refused_and_the_producer_goes_on():
    async with running() as broker:
        connection = await broker.connect()
        await connection.producer(TOPIC)
        good = c.message(b"good", sequence_id=0)
        await connection.send(c.send(1, 0, good[:-1] + b"\x00"))
        error = await connection.expect(T.SEND_ERROR)
        assert (error.sequence_id, error.error) == (0, E.ChecksumError)
        await connection.send(c.send(1, 0, good))
        assert (await connection.expect(T.SEND_RECEIPT)).message_id.entryId == 0


async def test_messages_without_checksum_are_taken():
    async with running() as broker:
        connection = await broker.connect(protocol_version=5)
        await connection.producer(TOPIC)
        await connection.send(c.send(1, 0, c.message(b"old", checksum=False)))
        await connection.expect(T.SEND_RECEIPT)


async def test_limits_and_policies_of_a_namespace_hold_at_once():
    async with running() as broker:
        connection = await broker.connect()
        namespaces = broker.service.namespaces
        change = namespaces.change_policies
        await change("public/default", lambda p: p.with_fields(max_producers_per_topic=1))
        await connection.producer(TOPIC, 1)
        error = await refused(connection, producer_id=2)
        assert (error.error, error.message) == (
            E.ProducerBusy,
            f"Topic '{TOPIC}' reached max producers limit",
        )
        await change(
            "public/default",
            lambda p: p.with_fields(max_producers_per_topic=None, encryption_required=True),
        )
        assert (await refused(connection, producer_id=2)).error == E.MetadataError
        await connection.producer(TOPIC, 3, encrypted=True)


async def test_unknown_namespaces_and_partitions_beyond_the_number_are_refused():
    async with running() as broker:
        connection = await broker.connect()
        assert (await refused(connection, "persistent://a/b/c")).error == E.TopicNotFound
        base = TopicName.parse("parted")
        await broker.service.namespaces.create_partitioned_topic(base, 2)
        await connection.producer("parted-partition-1", 1)
        error = await refused(connection, "parted-partition-2", 2)
        assert error.error == E.TopicNotFound
        assert (await refused(connection, "parted", 2)).error == E.NotAllowedError


async def test_initial_subscription_exists_before_the_first_message():
    async with running() as broker:
        connection = await broker.connect()
        await connection.producer(TOPIC, initial_subscription_name="early")
        await connection.publish(0)
        await connection.expect(T.SEND_RECEIPT)
        await connection.subscribe(TOPIC, "early", permits=10)
        message, _ = await connection.expect(T.MESSAGE)
        assert message.message_id.entryId == 0


async def test_what_was_sent_before_an_unload_was_noticed_is_dropped_not_punished():
    async with running() as broker:
        connection = await broker.connect()
        await connection.producer(TOPIC)
        for number in range(10):
            await connection.publish(number)
        for _ in range(10):
            await connection.expect(T.SEND_RECEIPT)
        await broker.service.unload_topic(TopicName.parse(TOPIC))
        await connection.publish(10)
        assert (await connection.expect(T.CLOSE_PRODUCER)).producer_id == 1
        await connection.nothing_more()
        await connection.producer(TOPIC)
        await connection.publish(10)
        receipt = await connection.expect(T.SEND_RECEIPT)
        assert receipt.sequence_id == 10
        assert broker.topic(TOPIC).ledger.entries == 11


async def test_unload_under_load_answers_or_drops_in_order():
    async with running() as broker:
        connection = await broker.connect()
        await connection.producer(TOPIC)
        frames = [c.send(1, n, c.message(b"x" * 100, sequence_id=n)) for n in range(2000)]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(connection.stream.send_all, b"".join(frames))
            receipts = [await connection.expect(T.SEND_RECEIPT) for _ in range(50)]
            answered = [receipt.sequence_id for receipt in receipts]
            nursery.start_soon(broker.service.unload_topic, TopicName.parse(TOPIC))
            while True:
                command, _ = await connection.next()
                if command.type == T.CLOSE_PRODUCER:
                    break
                answered.append(command.send_receipt.sequence_id)
        assert answered == list(range(len(answered)))
        await connection.nothing_more()
        await connection.producer(TOPIC)
        assert broker.topic(TOPIC).ledger.entries == len(answered)


async def with_one_message(broker):
    """A connection with a producer, and its topic."""
    connection = await broker.connect()
    await connection.producer(TOPIC)
    await connection.publish(0)
    await connection.expect(T.SEND_RECEIPT)
    return connection, broker.topic(TOPIC)


async def test_a_terminated_topic_refuses_messages_and_producers():
    async with running() as broker:
        connection, topic = await with_one_message(broker)
        assert (await topic.terminate())[1] == 0
        await connection.expect(T.CLOSE_PRODUCER)
        assert (await refused(connection)).error == E.TopicTerminatedError


async def test_termination_closes_a_producer_before_it_refuses_its_messages(monkeypatch):
    async with running() as broker:
        connection, topic = await with_one_message(broker)
        put, begun, go_on = broker.store.put, trio.Event(), trio.Event()

        async def slow(*arguments, **keywords):
            begun.set()
            await go_on.wait()
            return await put(*arguments, **keywords)

        async with trio.open_nursery() as nursery:
            monkeypatch.setattr(broker.store, "put", slow)
            nursery.start_soon(topic.terminate)
            await begun.wait()
            await connection.publish(1)
            await connection.publish(2)
            (session,) = broker.service.connections.open
            await eventually(lambda: session.publishes.count == 2)
            go_on.set()
            await connection.expect(T.CLOSE_PRODUCER)
            refusals = [await connection.expect(T.SEND_ERROR) for _ in range(2)]
        assert [each.sequence_id for each in refusals] == [1, 2]
        assert {each.error for each in refusals} == {E.TopicTerminatedError}
        assert session.publishes.count == 0


async def test_two_terminations_at_once_have_the_same_end():
    async with running() as broker:
        connection, topic = await with_one_message(broker)
        ends = []

        async def terminate():
            ends.append(await topic.terminate())

        async with trio.open_nursery() as nursery:
            nursery.start_soon(terminate)
            nursery.start_soon(terminate)
        assert ends == [topic.last_position()] * 2
        await connection.expect(T.CLOSE_PRODUCER)


async def test_duplicates_are_answered_but_stored_once():
    async with running(brokerDeduplicationEnabled=True) as broker:
        connection = await broker.connect()
        await connection.producer(TOPIC, producer_name="p")
        for number in (0, 1, 1, 0, 2):
            await connection.publish(number)
        answers = [await connection.expect(T.SEND_RECEIPT) for _ in range(5)]
        assert sorted(answer.sequence_id for answer in answers) == [0, 0, 1, 1, 2]
        assert broker.topic(TOPIC).ledger.entries == 3
        await broker.service.unload_topic(TopicName.parse(TOPIC))
        await connection.expect(T.CLOSE_PRODUCER)
        answer = await connection.producer(TOPIC, producer_name="p")
        assert answer.last_sequence_id == 2
        await connection.publish(2)
        receipt = await connection.expect(T.SEND_RECEIPT)
        assert receipt.message_id.entryId == 2**64 - 1
        assert broker.topic(TOPIC).ledger.entries == 3


async def test_deduplication_is_restored_by_replay_when_no_snapshot_was_written():
    async with running(brokerDeduplicationEnabled=True) as broker:
        connection = await broker.connect()
        await connection.producer(TOPIC, producer_name="p")
        for number in range(5):
            await connection.publish(number)
            await connection.expect(T.SEND_RECEIPT)
        topic = broker.topic(TOPIC)
        dedup_of(topic)._since_snapshot = 0  # as after a crash: nothing was kept since the start
        await broker.service.unload_topic(TopicName.parse(TOPIC))
        await connection.expect(T.CLOSE_PRODUCER)
        assert (await connection.producer(TOPIC, producer_name="p")).last_sequence_id == 4


async def test_the_deduplication_policy_takes_effect_on_a_live_topic():
    async with running() as broker:
        connection = await broker.connect()
        await connection.producer(TOPIC, producer_name="p")
        await broker.service.namespaces.change_policies(
            "public/default", lambda p: p.with_fields(deduplicationEnabled=True)
        )
        for number in (0, 1, 1):
            await connection.publish(number)
            await connection.expect(T.SEND_RECEIPT)
        assert broker.topic(TOPIC).ledger.entries == 2


async def test_entry_metadata_carries_a_running_index_when_switched_on():
    from protocol.metadata import broker_entry_metadata

    interceptors = ("org.apache.pulsar.common.intercept.AppendIndexMetadataInterceptor",)
    async with running(brokerEntryMetadataInterceptors=interceptors) as broker:
        connection = await broker.connect()
        await connection.producer(TOPIC)
        await connection.send(c.send(1, 0, c.batch([b"a", b"b", b"c"]), 3))
        await connection.expect(T.SEND_RECEIPT)
        await broker.service.unload_topic(TopicName.parse(TOPIC))
        await connection.expect(T.CLOSE_PRODUCER)
        await connection.producer(TOPIC)
        await connection.publish(3)
        await connection.expect(T.SEND_RECEIPT)
        ledger = broker.topic(TOPIC).ledger
        first = await ledger.read((0, 0), 10, 10_000)
        second = await ledger.read(ledger.next_position((0, 0)), 10, 10_000)
        assert [broker_entry_metadata(entry.data).index for entry in first + second] == [2, 3]


async def test_a_message_with_more_properties_than_a_turn_bears_fails_alone():
    """850,000 of them took 0.1 s of the event loop whenever the message was looked at."""
    many = {str(number): "" for number in range(METADATA_FIELDS_MAX + 1)}
    async with running() as broker:
        connection = await broker.connect()
        await connection.producer(TOPIC)
        await connection.send(
            c.send(1, 0, c.message(b"x", properties=many)),
            c.send(1, 1, c.message(b"x", properties={"k": "v" * 1_000_000})),
        )
        error = await connection.expect(T.SEND_ERROR)
        assert (error.sequence_id, error.error) == (0, E.NotAllowedError)
        assert f"more than {METADATA_FIELDS_MAX} fields" in error.message
        assert (await connection.expect(T.SEND_RECEIPT)).sequence_id == 1


def test_properties_of_encryption_keys_count_too():
    metadata = pb.MessageMetadata(producer_name="p", sequence_id=0, publish_time=1)
    key = metadata.encryption_keys.add(key="k", value=b"v")
    for _ in range(10_000):
        key.metadata.add(key="", value="")
    assert check_metadata(encode_message(metadata, b"")) == ""  # as small as is never counted
    for _ in range(METADATA_FIELDS_MAX - 9_999):
        key.metadata.add(key="", value="")
    refusal = check_metadata(encode_message(metadata, b""))
    assert f"more than {METADATA_FIELDS_MAX} fields" in refusal


async def test_a_message_costs_as_many_fields_as_a_small_one_may_cost():
    """20,000 properties, as in a test of the C++ client, which sends a refused one for ever."""
    many = {f"key{number}": f"value-{number}" for number in range(20_000)}
    async with running() as broker:
        connection = await broker.connect()
        await connection.producer(TOPIC)
        await connection.send(c.send(1, 0, c.message(b"x", properties=many)))
        await connection.expect(T.SEND_RECEIPT)


async def test_every_refusal_of_a_message_says_in_the_log_whose_it_is():
    damaged = c.message(b"x", sequence_id=7)[:-1] + b"y"
    many = {str(number): "" for number in range(METADATA_FIELDS_MAX + 1)}
    async with running() as broker:
        connection = await broker.connect()
        await connection.producer(TOPIC, producer_name="p")
        with capture_logs() as logs:
            await connection.send(
                c.send(1, 7, damaged), c.send(1, 8, c.message(b"", properties=many))
            )
            for number in (7, 8):
                assert (await connection.expect(T.SEND_ERROR)).sequence_id == number
            await broker.topic(TOPIC).terminate()
            await connection.expect(T.CLOSE_PRODUCER)
        refusals = [each for each in logs if each["event"] == "message refused"]
        assert [each["sequence_id"] for each in refusals] == [7, 8]
        for each in refusals:
            assert (each["topic"], each["producer"]) == (TOPIC, "p")
            assert each["error"]
            assert each["peer"]  # lines that name a peer are bounded


async def test_policies_that_a_topic_could_not_take_up_are_taken_up_for_the_next_producer(
    monkeypatch,
):
    async with running() as broker:
        connection = await broker.connect()
        await connection.producer(TOPIC, 1)
        topic = broker.topic(TOPIC)

        async def refuse(*_):
            raise OSError("the disk is full")

        async def set_deduplication(wanted):
            await broker.service.namespaces.change_policies(
                "public/default", lambda p: p.with_fields(deduplicationEnabled=wanted)
            )

        with monkeypatch.context() as patched:
            patched.setattr(DedupStore, "open", refuse)
            with pytest.raises(OSError, match="full"):
                await set_deduplication(True)
            await connection.send(c.producer(TOPIC, 2, connection.rid()))
            assert "full" in (await connection.error()).message
        assert not topic.has_part(DEDUPLICATION)
        await connection.producer(TOPIC, 2)
        assert topic.has_part(DEDUPLICATION)
