"""The frames that the consumers of a connection get are exactly what their subscriptions say."""

from __future__ import annotations

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.doors.pulsar.consuming import ACTIVE_CHANGE_VERSION_MIN
from broker.doors.pulsar.session import consuming_of
from broker.net.tests.harness import T, running
from broker.topics.subscription.consumer import Consumer, Delivery, SharedEntry
from broker.topics.subscription.sub_types import FAILOVER, SHARED
from protocol.frames import FrameDecoder

IDS = st.integers(0, 2**40)
EPOCHS = st.integers(-1, 5)
ENTRIES = st.lists(
    st.tuples(
        IDS,
        st.binary(min_size=1, max_size=9) | st.just(b"x" * 5_000),
        st.integers(0, 3),
        st.lists(st.integers(0, 2**62), max_size=2).map(tuple),
    ),
    min_size=1,
    max_size=20,
)


def queued(session):
    """Take the frames out of its outbox, before another task can send them."""
    outbox = session.outbox
    pieces = list(outbox._buffers)
    for strip, buffers in outbox._strips:
        pieces += [*strip.buffers(strip.size_bytes), *buffers]
    data = b"".join(pieces)
    assert len(data) == outbox.pending_bytes
    outbox._clear()
    outbox.pending_bytes = 0
    return FrameDecoder(1 << 24).feed(data)


@pytest.fixture
async def session():
    """Of a client that is connected."""
    async with running() as broker:
        await broker.connect(protocol_version=ACTIVE_CHANGE_VERSION_MIN - 1)
        (session,) = broker.service.connections.open
        yield session


def shown(message, payload):
    """What a client reads in a MESSAGE."""
    return (
        message.consumer_id,
        (message.message_id.ledgerId, message.message_id.entryId, message.message_id.partition),
        message.redelivery_count,
        tuple(message.ack_set),
        message.consumer_epoch if message.HasField("consumer_epoch") else -1,
        payload,
    )


@pytest.mark.parametrize("is_plain", [True, False])
async def test_a_delivery_is_one_message_frame_for_each_of_its_entries(session, is_plain):
    consumers = consuming_of(session)

    @given(
        entries=ENTRIES, consumer_id=IDS, ledger_id=IDS, partition=st.integers(-1, 9), epoch=EPOCHS
    )
    def check(entries, consumer_id, ledger_id, partition, epoch):
        consumer = Consumer(consumer_id, "c", consumers, SHARED, epoch=epoch)
        delivery = Delivery(partition, ledger_id, is_plain=is_plain)
        expected = []
        for entry_id, payload, count, ack_set in entries:
            more = (0, ()) if is_plain else (count, ack_set)
            delivery.add(entry_id, payload, *more)
            expected.append((consumer_id, (ledger_id, entry_id, partition), *more, epoch, payload))
        consumers.deliver(consumer, delivery)
        assert [shown(command.message, payload) for command, payload in queued(session)] == expected

    check()


@pytest.mark.parametrize("size", [7, 2_047, 2_048])
@pytest.mark.parametrize("copies", [3, 8, 100])
async def test_one_entry_for_many_consumers_is_encoded_once_for_all_sessions(session, size, copies):
    payload = b"x" * size
    consumers = consuming_of(session)
    many = [Consumer(7 * at, "c", consumers, SHARED, epoch=3) for at in range(200)]
    entry = SharedEntry((5, 6), -1)
    ids = array("Q", [each.consumer_id for each in many])
    slots = array("i", [3, 199, 0, *range(10, 7 + copies)])
    consumers.deliver_to_many(slots, many, ids, entry, payload, 3)
    expected = [(7 * slot, (5, 6, -1), 0, (), 3, payload) for slot in slots]
    assert [shown(command.message, payload) for command, payload in queued(session)] == expected
    assert list(entry.encodings) == [3]
    # A door that has no way of its own sends the same.
    super(type(consumers), consumers).deliver_to_many(slots, many, ids, entry, payload, 3)
    assert [shown(command.message, payload) for command, payload in queued(session)] == expected


async def test_old_clients_are_not_told_which_consumer_is_active():
    for version in (ACTIVE_CHANGE_VERSION_MIN - 1, ACTIVE_CHANGE_VERSION_MIN):
        async with running() as broker:
            connection = await broker.connect(protocol_version=version)
            await connection.subscribe("t", sub_type=FAILOVER)
            if version < ACTIVE_CHANGE_VERSION_MIN:
                await connection.nothing_more()
            else:
                change = await connection.expect(T.ACTIVE_CONSUMER_CHANGE)
                assert change.is_active
