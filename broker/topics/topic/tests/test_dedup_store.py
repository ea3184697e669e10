"""Deduplication with its storage: messages in chunks, crashes and failures in any order."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.ground.entry import Entry
from broker.topics.topic.dedup import Verdict
from broker.topics.topic.dedup_store import DedupStore
from protocol import client as c
from protocol.new_messages import NO_SEQUENCE_ID
from protocol.send_fields import Send

NAME = "p"
CONFIG = SimpleNamespace(
    brokerDeduplicationEntriesInterval=1000, brokerDeduplicationMaxNumberOfProducers=100
)
CLOCK = SimpleNamespace(now=lambda: 0.0)


class Cursor:
    """`kept` is what a restart finds."""

    def __init__(self, kept):
        self.kept = kept
        self.mark_delete, properties = kept
        self.position_properties = dict(properties)

    def ack_cumulative(self, position):
        self.mark_delete = position

    def touch(self):
        pass

    async def flush(self):
        self.kept = (self.mark_delete, dict(self.position_properties))


class Ledger:
    """One ledger whose entries are durable, and the cursor of deduplication."""

    last_confirmed = (0, -1)

    def __init__(self):
        self.entries = []
        self.cursors = {}

    def append(self, entry):
        entry.position = self.last_confirmed = (0, len(self.entries))
        self.entries.append(entry)

    async def open_part_cursor(self, name, start):
        known = self.cursors.get(name)
        cursor = self.cursors[name] = Cursor((start, {}) if known is None else known.kept)
        return cursor

    def next_position(self, position):
        return (0, position[1] + 1)

    async def read(self, position, _count_max, _bytes_max):
        found = self.entries[position[1] : position[1] + 3]
        return [Entry(entry.data, position=entry.position) for entry in found]


class Broker:
    """What `PersistentTopic` does with deduplication. `in_flight` is not durable yet."""

    def __init__(self):
        self.ledger = Ledger()
        self.in_flight = []
        self.store = None

    async def start(self, clock=CLOCK):
        self.in_flight.clear()
        self.store = await DedupStore.open(self.ledger, CONFIG, clock, {NAME})

    def send(self, session, part):
        """A part is (sequence id, chunk, number of chunks). Returns the verdict."""
        number, chunk, count = part
        fields = {}
        if count > 1:
            fields = {"chunk_id": chunk, "num_chunks_from_msg": count, "uuid": f"{NAME}-{number}"}
        payload = c.message(b"x", producer_name=NAME, sequence_id=number, **fields)
        producer = SimpleNamespace(name=NAME, part=part, answered=session.answered)
        send = Send(1, number, NO_SEQUENCE_ID, count > 1, payload)
        context = SimpleNamespace(producer=producer, send=send)
        verdict = self.store.admit(context, payload)
        if verdict is Verdict.NEW:
            self.in_flight.append((Entry(payload), context))
        elif verdict is Verdict.DUPLICATE:
            session.answered(part)
        return verdict

    def store_next(self):
        entry, context = self.in_flight.pop(0)
        self.ledger.append(entry)
        context.producer.answered(context.producer.part)
        for parked in self.store.persisted(context, entry):
            parked.producer.answered(parked.producer.part)

    def fail(self):
        """No message in flight is stored. Returns the parts of the refused duplicates."""
        failed, self.in_flight = self.in_flight, []
        refused = [each for _, context in failed for each in self.store.failed(context)]
        return [context.producer.part for context in refused]

    def parts(self):
        """What is stored."""
        metadata = [entry.metadata for entry in self.ledger.entries]
        return [(m.sequence_id, m.chunk_id, max(1, m.num_chunks_from_msg)) for m in metadata]


class Session:
    """A connection, whose answers no longer matter when it is broken."""

    def __init__(self, client):
        self._client = client

    def answered(self, part):
        if self._client.session is self:
            self._client.answered(part)


class Client:
    """A producer like Java's: after a reconnect it sends again what was not answered, a chunked
    message only from its first chunk that was not. `counts`: chunks by message."""

    def __init__(self, broker, counts):
        self._broker = broker
        self._counts = counts
        self._next = 0
        self._pending = []
        self._sent = 0
        self.session = Session(self)
        self.acknowledged = set()

    def send(self):
        if self._sent == len(self._pending):
            count = self._counts[self._next % len(self._counts)]
            self._pending += [(self._next, chunk, count) for chunk in range(count)]
            self._next += 1
        self._sent += 1
        self._broker.send(self.session, self._pending[self._sent - 1])

    def answered(self, part):
        assert self._pending[0] == part, "answers come in order"
        assert part in self._broker.parts(), "an answered chunk is stored"
        self._pending.pop(0)
        self._sent -= 1
        number, chunk, count = part
        if chunk == count - 1:
            self.acknowledged.add(number)

    def reconnect(self):
        self.session = Session(self)
        self._sent = 0

    def start_again(self):
        """The application ends; a new one goes on after the last id that the broker knows."""
        last = self._broker.store.last_sequence_id(NAME)
        assert last >= max(self.acknowledged, default=-1)
        assert last == -1 or last in delivered(self._broker.parts())
        self.session = Session(self)
        self._pending.clear()
        self._sent = 0
        self._next = last + 1


def delivered(parts):
    """The messages that a consumer like Java's makes of these entries."""
    whole, so_far = [], {}
    for number, chunk, count in parts:
        if chunk == 0:
            so_far[number] = 0
        elif number in so_far and chunk == so_far[number] + 1:
            so_far[number] = chunk
        elif number not in so_far or chunk > so_far[number]:
            so_far.pop(number, None)  # a chunk is missing: all of the message is given up
            continue
        if so_far.get(number) == chunk == count - 1:
            whole.append(number)
            del so_far[number]
    return whole


@pytest.fixture
async def broker():
    broker = Broker()
    await broker.start()
    return broker


@pytest.fixture
def answers():
    return []


@pytest.fixture
def session(answers):
    return SimpleNamespace(answered=answers.append)


FIRST, LAST = (7, 0, 2), (7, 1, 2)


async def test_every_chunk_of_a_duplicate_gets_a_receipt(broker, session, answers):
    for part in (FIRST, LAST):
        broker.send(session, part)
        broker.store_next()
    for part in (FIRST, LAST):
        assert broker.send(session, part) is Verdict.DUPLICATE
    assert answers == [FIRST, LAST, FIRST, LAST]
    assert broker.parts() == [FIRST, LAST]


@pytest.mark.parametrize("snapshot", [False, True])
async def test_the_first_chunk_is_not_the_message_after_a_crash(broker, session, snapshot):
    broker.send(session, FIRST)
    broker.store_next()
    if snapshot:
        await broker.store.snapshot()
    await broker.start()
    assert broker.store.last_sequence_id(NAME) == -1
    assert broker.send(session, LAST) is Verdict.NEW
    broker.store_next()
    await broker.start()
    assert broker.store.last_sequence_id(NAME) == 7
    assert broker.send(session, LAST) is Verdict.DUPLICATE


async def test_the_first_chunk_is_not_the_message_when_the_last_one_fails(broker, session, answers):
    broker.send(session, FIRST)
    broker.send(session, LAST)
    broker.store_next()
    assert broker.store.last_sequence_id(NAME) == -1
    assert broker.fail() == []
    assert broker.send(session, LAST) is Verdict.NEW
    broker.store_next()
    assert broker.parts() == answers == [FIRST, LAST]


async def test_copies_of_chunks_in_flight_are_answered_with_the_whole_message(
    broker, session, answers
):
    copies = []
    again = SimpleNamespace(answered=copies.append)
    for part in (FIRST, LAST):
        broker.send(session, part)
    for part in (FIRST, LAST):
        assert broker.send(again, part) is Verdict.IN_FLIGHT
    broker.store_next()
    assert (answers, copies) == ([FIRST], [])
    broker.store_next()
    assert broker.parts() == answers == copies == [FIRST, LAST]


async def test_copies_of_chunks_whose_message_fails_are_refused(broker, session):
    for part in (FIRST, LAST, FIRST, LAST):
        broker.send(session, part)
    broker.store_next()
    assert broker.fail() == [FIRST, LAST]
    assert broker.send(session, FIRST) is Verdict.NEW


STEPS = ("send", "send", "send", "store", "store", "reconnect", "fail", "crash", "snapshot", "new")


@settings(max_examples=200)
@given(
    st.lists(st.integers(1, 3), min_size=1, max_size=4),
    st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 3)), min_size=10, max_size=60),
)
def test_an_acknowledged_message_is_delivered_once_whatever_happens(counts, steps):
    """Its chunks are all stored, so that a consumer can put them together, and no chunk is stored
    after the last one."""
    trio.run(_run, counts, steps)


async def _run(counts, steps):
    broker = Broker()
    await broker.start()
    client = Client(broker, counts)
    for step, amount in [*steps, *[("send", 0)] * 10, *[("store", 3)] * 5]:
        if step == "send":
            client.send()
        elif step == "store":
            for _ in broker.in_flight[: amount + 1]:
                broker.store_next()
        elif step == "reconnect":
            client.reconnect()
        elif step == "fail":
            broker.fail()
            client.reconnect()
        elif step == "crash":
            for entry, _ in broker.in_flight[:amount]:
                broker.ledger.append(entry)  # durable, but nobody was told
            await broker.start()
            client.reconnect()
        elif step == "snapshot":
            await broker.store.snapshot()
        else:
            client.start_again()
        parts = broker.parts()
        messages = delivered(parts)
        assert client.acknowledged <= set(messages)
        assert messages == sorted(set(messages))
        for number, chunk, count in parts:
            if chunk == count - 1:
                end = parts.index((number, chunk, count))
                assert number not in {later for later, _, _ in parts[end + 1 :]}


async def test_a_snapshot_is_due_when_the_last_one_is_old_and_something_was_published_since():
    now = [100.0]
    broker = Broker()
    await broker.start(SimpleNamespace(now=lambda: now[0]))
    store, session = broker.store, SimpleNamespace(answered=lambda part: None)
    now[0] += 1000
    assert not store.is_snapshot_due(10)
    broker.send(session, (0, 0, 1))
    broker.store_next()
    assert store.is_snapshot_due(10)
    assert not store.is_snapshot_due(0)
    await store.snapshot()
    broker.send(session, (1, 0, 1))
    broker.store_next()
    now[0] += 9.5
    assert not store.is_snapshot_due(10)
    now[0] += 0.5
    assert store.is_snapshot_due(10)
    await store.snapshot()
    assert not store.is_snapshot_due(10)
