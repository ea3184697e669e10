"""Messages that come together are stored and answered by runs; their senders cannot tell."""

from __future__ import annotations

import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.managed_ledger.open_appends import AppendState
from broker.net.tests.harness import T, running
from broker.topics.topic.dedup_part import DeduplicationPart
from protocol import client as c
from protocol.errors import ServerError
from protocol.request_frames import RequestDecoder

TOPICS = {1: "a", 2: "a", 3: "b"}
"""Of each producer."""
MESSAGES = st.lists(
    st.tuples(
        st.sampled_from((1, 1, 1, 2, 3)),
        st.sampled_from((1, 1, 100, 20_000)),
        st.integers(0, 2000),
        st.integers(0, 9).map(lambda number: number == 0),
    ),
    min_size=1,
    max_size=40,
)
"""(producer, step to the next sequence id, size, whether it is damaged on its way)."""


@settings(max_examples=25, deadline=None)
@given(MESSAGES, st.sampled_from((50, 3000, 1 << 20)), st.booleans())
def test_every_message_gets_its_answer_in_order(messages, piece, dedup):
    """Through small ledgers, so that runs end at rollovers, and with refusals in between."""
    sent = {1: [], 2: [], 3: []}
    damaged = {1: [], 2: [], 3: []}
    order = {"a": [], "b": []}
    stream = b""
    sequence_ids = dict.fromkeys(sent, 0)
    for producer_id, step, size, is_damaged in messages:
        sequence_id = sequence_ids[producer_id] = sequence_ids[producer_id] + step
        name = f"p{producer_id}"
        message = c.message(bytes(size), producer_name=name, sequence_id=sequence_id)
        if is_damaged:
            message = message[:-1] + bytes((message[-1] ^ 1,))
            damaged[producer_id].append(sequence_id)
        else:
            sent[producer_id].append(sequence_id)
            order[TOPICS[producer_id]].append((producer_id, sequence_id))
        stream += c.send(producer_id, sequence_id, message)

    async def scenario():
        settings = {
            "managedLedgerMaxEntriesPerLedger": 7,
            "managedLedgerMinLedgerRolloverTimeMinutes": 0,
            "brokerDeduplicationEnabled": dedup,
        }
        async with running(**settings) as broker:
            connection = await broker.connect()
            for producer_id, topic in TOPICS.items():
                await connection.producer(topic, producer_id, producer_name=f"p{producer_id}")
            for start in range(0, len(stream), piece):
                await connection.send(stream[start : start + piece])
            receipts = {"a": [], "b": []}
            refused = {1: [], 2: [], 3: []}
            for _ in messages:
                answer = await connection.expect(T.SEND_RECEIPT, T.SEND_ERROR)
                if hasattr(answer, "error"):
                    assert answer.error == ServerError.ChecksumError
                    refused[answer.producer_id].append(answer.sequence_id)
                else:
                    receipts[TOPICS[answer.producer_id]].append(answer)
            assert refused == damaged
            for topic, answers in receipts.items():
                found = [(answer.producer_id, answer.sequence_id) for answer in answers]
                assert found == order[topic]
                positions = [
                    (answer.message_id.ledgerId, answer.message_id.entryId) for answer in answers
                ]
                ledger = broker.topic(topic).ledger
                for position, (_, sequence_id) in zip(positions, found, strict=True):
                    (entry,) = await ledger.read(position, 1, 1)
                    assert entry.position == position
                    assert entry.metadata.sequence_id == sequence_id
                assert positions == sorted(set(positions))
                assert ledger.entries == len(positions)
            (session,) = broker.service.connections.open
            assert (session.publishes.count, session.publishes.size_bytes) == (0, 0)
            assert broker.service.connections.publish_budget.pending_bytes == 0

    trio.run(scenario)


def run_of(count, first=0):
    """One chunk with messages of producer 1."""
    sequence_ids = range(first, first + count)
    return b"".join(
        c.send(1, number, c.message(b"m", sequence_id=number)) for number in sequence_ids
    )


async def test_each_message_of_a_run_after_the_end_of_a_topic_is_refused_in_order():
    async with running() as broker:
        connection = await broker.connect()
        await connection.producer("a", 1)
        topic = broker.topic("a")
        [producer] = topic.access.producers.values()
        await topic.terminate()
        [run] = RequestDecoder().feed(run_of(5))
        topic.publish_run(producer, run)
        topic.append_published()
        await connection.expect(T.CLOSE_PRODUCER)
        for number in range(5):
            answer = await connection.expect(T.SEND_ERROR)
            assert (answer.sequence_id, answer.error) == (number, ServerError.TopicTerminatedError)
        (session,) = broker.service.connections.open
        assert (session.publishes.count, session.publishes.size_bytes) == (0, 0)


async def test_messages_under_way_when_deduplication_begins_are_answered_one_by_one():
    async with running() as broker:
        connection = await broker.connect()
        await connection.producer("a", 1, producer_name="producer")
        topic = broker.topic("a")
        [producer] = topic.access.producers.values()
        [run] = RequestDecoder().feed(run_of(5, first=3))
        topic.publish_run(producer, run)
        part = DeduplicationPart(topic)
        await part.load()
        part.is_loaded = True
        topic.use_parts((part,))
        topic.append_published()
        for number in range(3, 8):
            assert (await connection.expect(T.SEND_RECEIPT)).sequence_id == number
        (session,) = broker.service.connections.open
        assert (session.publishes.count, session.publishes.size_bytes) == (0, 0)


async def test_messages_of_one_run_are_stored_or_refused_by_themselves_where_their_topic_ends():
    """The first two fill a ledger, and the others wait for the next one when the topic ends."""
    small = {
        "managedLedgerMaxEntriesPerLedger": 2,
        "managedLedgerMinLedgerRolloverTimeMinutes": 0,
    }
    async with running(**small) as broker:
        connection = await broker.connect()
        await connection.producer("a", 1)
        topic = broker.topic("a")
        [producer] = topic.access.producers.values()
        [run] = RequestDecoder().feed(run_of(5))
        topic.publish_run(producer, run)
        topic.append_published()
        await topic.ledger.appender.drain_and_stop(AppendState.TERMINATED, 5.0)
        answers = [await connection.expect(T.SEND_RECEIPT, T.SEND_ERROR) for _ in range(5)]
        assert [answer.sequence_id for answer in answers] == list(range(5))
        assert [answer.message_id.entryId for answer in answers[:2]] == [0, 1]
        assert [answer.error for answer in answers[2:]] == [ServerError.TopicTerminatedError] * 3
