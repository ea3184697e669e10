"""Connections: handshake, bad input, bounds, keep-alive; other connections are not harmed."""

from __future__ import annotations

import os
import socket
import struct
import traceback
from contextlib import suppress
from functools import partial

import pytest
import trio
from structlog.testing import capture_logs
from trio.testing import MockClock, memory_stream_pair

from broker.doors.pulsar.pending import PendingConsumer
from broker.net.session import TURN_OUTPUT_BYTES
from broker.net.tests.clocks import TrioClock
from broker.net.tests.harness import Connection, T, running
from protocol import client as c
from protocol import pulsar_api_pb2 as pb
from protocol.ack_runs import RUN_MIN
from protocol.request_frames import REQUESTS_PER_SLICE
from protocol.topic_name import TopicName
from runtime.testing.conditions import eventually
from runtime.transport import Taken
from runtime.watchdog import callback_name


async def test_connected_tells_version_size_and_only_features_that_exist():
    async with running(maxMessageSize=1_048_576) as broker:
        for version, agreed in ((14, 14), (21, 21), (25, 21)):
            connection = await broker.raw()
            connected = await connection.handshake(protocol_version=version)
            assert connected.protocol_version == agreed
            assert connected.max_message_size == 1_048_576
            assert connected.server_version.startswith("Pulsar Server4.0.8")
            assert not connected.feature_flags.supports_topic_watchers
            assert connected.feature_flags.supports_get_partitioned_metadata_without_auto_creation


@pytest.mark.parametrize(
    ("frames", "reason"),
    [
        ([c.lookup("t", 1)], "LOOKUP was sent before CONNECT"),
        ([c.connect(), c.connect()], "CONNECT was sent twice"),
        ([c.connect(), struct.pack(">II", 6_000_000, 10)], "limit"),
        ([c.connect(), struct.pack(">II", 20, 90) + bytes(16)], "command of 90 bytes"),
        ([c.connect(), struct.pack(">II", 9, 5) + b"\xff" * 5], "cannot be read"),
        ([c.connect(), c.send(7, 0, c.message(b"x"))], "producer 7, which is not open"),
        ([c.connect(), c.flow(1, 0)], "must grant at least one"),
        ([c.connect(), c.auth_response("none", b"")], "without a challenge"),
    ],
)
async def test_a_broken_connection_is_told_why_and_ends_alone(frames, reason):
    async with running() as broker:
        other = await broker.connect()
        connection = await broker.raw()
        await connection.send(*frames)
        assert reason in await connection.closed()
        await other.send(c.ping())
        await other.expect(T.PONG)


async def test_a_refused_connection_reads_why_although_its_publishes_are_answered_meanwhile():
    """Their receipts come when the broker has said its last word, and must not break it off."""
    async with running() as broker:
        with capture_logs() as logs:
            for number in range(20):
                connection = await broker.connect()
                await connection.producer(f"t{number}")
                messages = [c.send(1, at, c.message(b"x", sequence_id=at)) for at in range(20)]
                await connection.send(*messages, c.flow(1, 0), bytes(100_000))
                texts = []
                while (answer := await connection.next()) is not None:
                    if answer[0].type == T.ERROR:
                        texts.append(answer[0].error.message)
                assert len(texts) == 1
                assert "must grant" in texts[0]
            await eventually(lambda: not broker.service.connections.open)
        assert not [line for line in logs if line["log_level"] == "error"]


async def test_commands_before_a_broken_frame_are_served():
    async with running() as broker:
        connection = await broker.raw()
        await connection.send(c.connect(), c.ping(), b"\xff" * 40)
        await connection.expect(T.CONNECTED)
        await connection.expect(T.PONG)
        assert "limit" in await connection.closed()


async def test_frames_cut_anywhere_mean_the_same():
    async with running() as broker:
        connection = await broker.raw()
        stream = c.connect() + c.producer("t", 1, 1) + c.lookup("t", 2)
        for index in range(0, len(stream), 7):
            await connection.send(stream[index : index + 7])
        await connection.expect(T.CONNECTED)
        kinds = {(await connection.next())[0].type for _ in range(2)}
        assert kinds == {T.PRODUCER_SUCCESS, T.LOOKUP_RESPONSE}


async def test_a_thousand_connections_come_and_go():
    async with running() as broker:
        for _ in range(200):
            await (await broker.raw()).stream.aclose()
        connection = await broker.connect()
        await connection.producer("t")
        await eventually(lambda: len(broker.service.connections.open) == 1)


async def test_connections_over_the_bound_are_refused_with_a_reason():
    async with running(brokerMaxConnectionsPerIp=2) as broker:
        first, _second = await broker.connect(), await broker.connect()
        third = await broker.raw()
        assert "Reached the maximum number of connections" in await third.closed()
        await first.stream.aclose()
        await eventually(lambda: len(broker.service.connections.open) == 1)
        await broker.connect()


async def test_who_is_refused_reads_why_even_after_it_has_spoken():
    """A close with unread input would reset the connection and take the reason with it."""
    async with running(brokerMaxConnections=1) as broker:
        await broker.connect()
        second = await broker.raw()
        await second.send(c.connect(), c.producer("t", 1, 1))
        assert "Reached the maximum number of connections" in await second.closed()


async def test_connections_that_come_at_once_are_accepted_at_once():
    async with running() as broker:
        storm = [socket.socket() for _ in range(100)]
        for one in storm:
            one.setblocking(False)
            one.connect_ex(("127.0.0.1", broker.listener.port))
        turns = 0
        while len(broker.service.connections.open) < 100:
            await trio.lowlevel.checkpoint()
            turns += 1
        for one in storm:
            one.close()
        assert turns < 50


async def test_a_session_names_the_last_request_of_its_turn_for_the_watchdog():
    async with running() as broker:
        connection = await broker.connect()
        session = next(iter(broker.service.connections.open))
        assert callback_name(session._take) == "session CONNECT"
        await connection.send(c.ping())
        await connection.expect(T.PONG)
        assert callback_name(session._take) == "session PING"
        await connection.send(c.ping()[:3])
        await eventually(lambda: callback_name(session._take) == "session SEND")


async def test_only_a_receive_of_nothing_but_acks_of_an_entry_by_several_is_in_no_hurry():
    """More of them follow, for which nobody waits. For everything else somebody may."""
    async with running() as broker:
        connection = await broker.connect()
        for consumer in range(5):
            await connection.subscribe("t", "s", consumer, metadata={"vela.broadcast": "true"})
        session = next(iter(broker.service.connections.open))
        acks = [c.ack(consumer, [(3, 0)]) for consumer in range(5)]
        for data, outcome in (
            (b"".join(acks), Taken.UNHURRIED),
            (b"".join(acks) + c.ping(), Taken.WHOLE),
            (b"".join(acks), Taken.UNHURRIED),
            (c.ping(), Taken.WHOLE),
            (b"".join(acks[:RUN_MIN]), Taken.UNHURRIED),
            (b"".join(acks[: RUN_MIN - 1]), Taken.WHOLE),
            (b"".join(acks) + acks[0][:9], Taken.WHOLE),
            (acks[0][9:], Taken.WHOLE),
            (c.ack(9, [(3, 0)]) * 5, Taken.WHOLE),
        ):
            assert session._take(data) is outcome


class Told:
    """A consumer whose group shares one call when there is room for output."""

    def __init__(self, group):
        self.writable_group = group or self
        self.calls = 0

    def on_writable(self):
        self.calls += 1

    def remove(self):
        pass


async def test_room_for_output_is_told_once_to_each_group_whoever_comes_and_goes():
    async with running() as broker:
        await broker.connect()
        session = next(iter(broker.service.connections.open))
        looked_at = []

        class Member(Told):
            @property
            def writable_group(self):
                looked_at.append(self)
                return self.group

            @writable_group.setter
            def writable_group(self, group):
                self.group = group

        groups = {"a": [Member("a") for _ in range(100)], "b": [Member("b") for _ in range(3)]}
        alone = [Told(None), Told(None)]
        for number, consumer in enumerate((*groups["a"], *groups["b"], *alone)):
            session.add_consumer(number, consumer)

        def calls():
            session._outbox_drained()
            found = [sum(each.calls for each in group) for group in groups.values()]
            return (*found, *(each.calls for each in alone))

        assert calls() == (1, 1, 1, 1)
        assert calls() == (2, 2, 2, 2)
        assert len(looked_at) == 103  # by the first call
        for number in (0, 100, 103):
            del session.consumers[number]
        assert calls() == (3, 3, 2, 3)
        groups["a"].append(Member("a"))
        session.add_consumer(1, PendingConsumer())  # in the place of the one that was told
        assert calls() == (4, 4, 2, 4)
        session.add_consumer(1, groups["a"][-1])
        groups["c"] = [Member("c")]
        session.add_consumer(500, groups["c"][0])
        session._outbox_drained()
        assert groups["c"][0].calls == 1
        session.consumers.clear()
        session._outbox_drained()


async def test_ping_is_answered():
    async with running() as broker:
        connection = await broker.connect()
        await connection.send(c.ping(), c.ping())
        await connection.expect(T.PONG)
        await connection.expect(T.PONG)


async def test_requests_of_a_kind_that_is_not_served_are_refused():
    async with running() as broker:
        connection = await broker.connect()
        command = pb.BaseCommand(type=T.TC_CLIENT_CONNECT_REQUEST)
        command.tcClientConnectRequest.request_id = 5
        command.tcClientConnectRequest.tc_id = 0
        from protocol.frames import encode_frame

        await connection.send(encode_frame(command))
        error = await connection.error()
        assert (error.request_id, error.error) == (5, pb.ServerError.NotAllowedError)
        assert error.message == "Transactions are not enabled"
        watch = pb.BaseCommand(type=T.WATCH_TOPIC_LIST)
        watch.watchTopicList.request_id = 6
        watch.watchTopicList.watcher_id = 1
        watch.watchTopicList.namespace = "public/default"
        watch.watchTopicList.topics_pattern = ".*"
        await connection.send(encode_frame(watch))
        assert (await connection.error()).error == pb.ServerError.NotAllowedError


@pytest.mark.parametrize("publishes", [False, True])
async def test_a_chunk_full_of_requests_holds_up_no_other_connection(publishes):
    """Thousands of requests that arrive at once are handled in turns with those of others. On a
    connection with a producer all of them were decoded in the first turn."""
    count = 5_000  # their 12 bytes each fit into one receive
    async with running() as broker:
        storm, other = await broker.connect(), await broker.connect()
        if publishes:
            await storm.producer("t")
        await storm.send(c.ping() * count)
        await storm.expect(T.PONG)
        await other.send(c.ping())
        await other.expect(T.PONG)
        arrived = socket.socket(fileno=os.dup(storm.stream.socket.fileno()))
        with arrived, suppress(BlockingIOError):
            storm.received += storm.client.receive(arrived.recv(1 << 20, socket.MSG_DONTWAIT))
        assert 1 + len(storm.received) < count
        for _ in range(count - 1):
            await storm.expect(T.PONG)
        await storm.nothing_more()


@pytest.mark.parametrize("kind", ["ack", "redeliver"])
async def test_a_command_with_very_many_ids_holds_up_no_other_connection(kind):
    """Other connections are served between its parts, and later commands of its own wait for it."""
    ids = [(0, 2**40 + number) for number in range(30_000)]
    async with running() as broker:
        storm, other = await broker.connect(), await broker.connect()
        await storm.send(c.subscribe("t", "s", 1, 1, sub_type=pb.CommandSubscribe.Shared))
        await storm.expect(T.SUCCESS)
        if kind == "ack":
            await storm.send(c.ack(1, ids, request_id=2), c.close_consumer(1, 3))
        else:
            await storm.send(c.redeliver_unacknowledged(1, ids), c.close_consumer(1, 3))
        await other.send(c.ping())
        await other.expect(T.PONG)
        answered = socket.socket(fileno=os.dup(storm.stream.socket.fileno()))
        with answered, pytest.raises(BlockingIOError):
            answered.recv(1, socket.MSG_DONTWAIT)
        if kind == "ack":
            answer = await storm.expect(T.ACK_RESPONSE)
            assert (answer.request_id, answer.HasField("error")) == (2, False)
        assert (await storm.expect(T.SUCCESS)).request_id == 3


@pytest.mark.parametrize("limited_producers", [0, 1])
async def test_requests_that_let_much_be_sent_are_divided_into_turns(limited_producers):
    """A chunk of 50 FLOWs, each of which let a step of a subscription be sent, took 12 ms."""
    waiting_bytes, handled = [], []
    step = c.connect(client_version="v" * 1_000) * 26

    def flow(session, request):
        waiting_bytes.append(session.outbox.pending_bytes)
        handled.append(request.consumer_id)
        session.outbox.append(step)

    async with running() as broker:
        connection = await broker.connect()
        (session,) = broker.service.connections.open
        session.handlers = {**session.handlers, T.FLOW: flow}
        session.limited_producers = limited_producers
        await connection.send(b"".join(c.flow(number, 1) for number in range(50)), c.ping())
        for _ in range(50 * 26):
            await connection.expect(T.CONNECT)
        await connection.expect(T.PONG)
    assert handled == list(range(50))
    assert len(step) < TURN_OUTPUT_BYTES < 50 * len(step)
    assert max(waiting_bytes) <= TURN_OUTPUT_BYTES + len(step)


async def test_a_storm_of_slow_requests_is_served_in_portions():
    """The bound of requests being worked on holds within one chunk, too."""
    async with running({"pending_requests_max": 50}) as broker:
        storm = await broker.connect()
        (session,) = broker.service.connections.open
        await storm.send(
            *(c.subscribe("t", f"s{number}", number, number) for number in range(1_000))
        )
        most = 0
        answers = []
        while len(answers) < 1_000:
            answers.append((await storm.expect(T.SUCCESS)).request_id)
            pending = [
                one for one in session.consumers.values() if isinstance(one, PendingConsumer)
            ]
            most = max(most, len(pending))
        assert sorted(answers) == list(range(1_000))
        assert most <= 50 + REQUESTS_PER_SLICE


async def test_producers_and_consumers_over_the_bound_are_refused_with_the_code_for_it():
    limits = {"consumers_per_connection_max": 2, "producers_per_connection_max": 2}
    async with running(limits) as broker:
        connection = await broker.connect()
        for number in range(3):
            await connection.send(c.subscribe("t", f"s{number}", number, number))
        answers = [await connection.expect(T.SUCCESS, T.ERROR) for _ in range(3)]
        refused = [answer for answer in answers if isinstance(answer, pb.CommandError)]
        assert [(one.request_id, one.error) for one in refused] == [(2, pb.TooManyRequests)]
        assert "which is the bound" in refused[0].message
        await connection.send(c.close_consumer(0, 10), c.subscribe("t", "s2", 2, 11))
        assert {(await connection.expect(T.SUCCESS)).request_id for _ in range(2)} == {10, 11}
        for number in range(3):
            await connection.send(c.producer(f"t{number}", number, 20 + number))
        answers = [await connection.expect(T.PRODUCER_SUCCESS, T.ERROR) for _ in range(3)]
        refused = [answer for answer in answers if isinstance(answer, pb.CommandError)]
        assert [(one.request_id, one.error) for one in refused] == [(22, pb.TooManyRequests)]


async def test_publishing_pauses_at_the_bound_and_nothing_is_lost():
    limits = {"pending_publishes_max": 5, "broker_publish_bytes_max": 10_000}
    async with running(limits=limits) as broker:
        connection = await broker.connect()
        await connection.producer("t")
        async with trio.open_nursery() as nursery:

            @nursery.start_soon
            async def publish():
                for number in range(300):
                    await connection.publish(number, bytes(1000))

            for number in range(300):
                receipt = await connection.expect(T.SEND_RECEIPT)
                assert receipt.sequence_id == number
        session = next(iter(broker.service.connections.open))
        assert (session.publishes.count, session.publishes.size_bytes) == (0, 0)
        assert broker.service.connections.publish_budget.pending_bytes == 0
        assert not session.reading_paused


async def test_a_client_that_does_not_read_is_not_read_from():
    limits = {
        "output_high_water_bytes": 10_000,
        "output_low_water_bytes": 1_000,
        "output_pause_reading_bytes": 50_000,
    }
    async with running(limits=limits) as broker:
        ours, theirs = memory_stream_pair()
        # A stream that takes nothing more after a while, because its other end is not read.
        blocked = trio.Event()

        pump = theirs.send_stream.send_all_hook

        async def block():
            await blocked.wait()
            await pump()

        theirs.send_stream.send_all_hook = block
        broker.nursery.start_soon(broker.listener.serve_stream, theirs, "memory:1")
        await ours.send_all(c.connect())
        for request_id in range(3000):
            await ours.send_all(c.lookup("t" * 40, request_id))
        await eventually(
            lambda: any(each.reading_paused for each in broker.service.connections.open)
        )
        session = next(iter(broker.service.connections.open))
        assert session.outbox.pending_bytes < 200_000
        blocked.set()
        connection = Connection(ours)
        await connection.expect(T.CONNECTED)
        answers = {(await connection.expect(T.LOOKUP_RESPONSE)).request_id for _ in range(3000)}
        assert answers == set(range(3000))
        await ours.aclose()


async def test_a_silent_client_is_pinged_and_then_closed(mock_clock: MockClock):
    async with running(clock=TrioClock()) as broker:
        connection = await broker.in_memory()
        connection.answers_pings = False
        await connection.handshake()
        start = trio.current_time()

        async def heard(*kinds):
            return await broker.passing(mock_clock, partial(connection.expect, *kinds, timeout=100))

        await heard(T.PING)
        assert 30 <= trio.current_time() - start < 60
        await connection.send(c.pong())
        await heard(T.PING)
        assert await broker.passing(mock_clock, partial(connection.next, timeout=100)) is None
        assert 90 <= trio.current_time() - start < 250


async def test_a_client_that_says_nothing_is_closed(mock_clock: MockClock):
    async with running(clock=TrioClock()) as broker:
        connection = await broker.in_memory()
        connection.answers_pings = False
        assert await broker.passing(mock_clock, partial(connection.next, timeout=100)) is None
        assert 30 <= trio.current_time() < 90


class TopicThatFails:
    """Takes messages in a turn, and cannot hand them on."""

    name = TopicName.parse("persistent://public/default/fails")

    def append_published(self):
        raise RuntimeError("no such ledger")

    def storage_failed(self, error):
        """Nothing was appended."""


async def test_a_topic_that_cannot_store_keeps_no_other_of_its_turn_back_and_is_told():
    async with running() as broker:
        reader, connection = await broker.connect(), await broker.connect()
        await connection.producer("t")
        await reader.subscribe("t", permits=10)
        await reader.send(c.ping())
        await reader.expect(T.PONG)  # its turns are over
        with capture_logs() as logs:
            broker.service.turns.published_to(TopicThatFails())
            await connection.publish(0, b"kept")
            await connection.closed()
            # What a connection held is released, in portions, before its failure is logged.
            await eventually(lambda: any(entry["event"] == "session failed" for entry in logs))
        _, payload = await reader.expect(T.MESSAGE)
        assert payload.endswith(b"kept")
        await reader.send(c.ping())
        await reader.expect(T.PONG)
        [failed] = [entry["exc_info"] for entry in logs if entry["event"] == "session failed"]
        told = "".join(traceback.format_exception(failed))
        assert "no such ledger" in told
        assert "of persistent://public/default/fails" in told
