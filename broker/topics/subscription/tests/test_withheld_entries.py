"""Entries that no client gets: those without readable metadata, on which some clients hang up, and
markers."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from broker.topics.subscription.api import AckId
from broker.topics.subscription.sub_types import EXCLUSIVE, FAILOVER, KEY_SHARED, SHARED
from broker.topics.subscription.tests.fakes import Bench, make_data

NO_METADATA = b"\x0e\x01\0\0\0\0" + (4).to_bytes(4, "big") + b"\xff\xff\xff\xff" + b"payload"
MARKER = make_data(marker_type=22)


@pytest.mark.parametrize("sub_type", [SHARED, KEY_SHARED])
async def test_an_entry_that_nobody_can_read_is_skipped_and_acknowledged(nursery, sub_type):
    bench = Bench(nursery)
    await bench.open()
    consumer = bench.consumer(sub_type, permits=100)
    with capture_logs() as lines:
        positions = bench.publish(
            make_data(key="a"), NO_METADATA, make_data(key="b"), NO_METADATA, make_data(key="a")
        )
    assert consumer.session.positions() == positions[::2]
    assert [each for each in positions if bench.subscription.cursor.is_acked(each)] == positions[
        1::2
    ]
    assert consumer.permits.available == 97
    assert bench.subscription.statistics().unacked_messages == 3
    (line,) = [each for each in lines if "metadata" in each["event"]]
    assert line["position"] == positions[1]


@pytest.mark.parametrize("sub_type", [EXCLUSIVE, FAILOVER, SHARED, KEY_SHARED])
async def test_markers_of_brokers_are_acknowledged_and_not_delivered(nursery, sub_type):
    bench = Bench(nursery)
    await bench.open()
    consumer = bench.consumer(sub_type, permits=3)
    with capture_logs() as lines:
        positions = bench.publish(
            make_data(), MARKER, make_data(), MARKER, make_data(), MARKER, make_data()
        )
    assert consumer.session.positions() == [positions[0], positions[2], positions[4]]
    assert consumer.permits.available == 0
    cursor = bench.subscription.cursor
    assert cursor.is_acked(positions[1])
    assert cursor.is_acked(positions[3])
    assert not lines
    for position in positions[:5:2]:
        bench.subscription.ack(consumer, [AckId(position)], cumulative=False)
    bench.subscription.flow(consumer, 10)
    bench.subscription.ack(consumer, [AckId(positions[6])], cumulative=False)
    assert bench.subscription.backlog_entries == 0
    assert cursor.mark_delete == positions[6]


async def test_a_marker_waits_for_no_consumer_of_its_key(nursery):
    bench = Bench(nursery)
    await bench.open()
    owner = bench.consumer(KEY_SHARED, permits=0)
    bench.consumer(KEY_SHARED, permits=100)
    marker = make_data(key=key_of(bench, owner), marker_type=22)
    (position,) = bench.publish(marker)
    assert bench.subscription.cursor.is_acked(position)
    assert bench.subscription.dispatcher.replay_messages == 0


def key_of(bench, consumer):
    ranges = bench.subscription.dispatcher.ranges
    keys = (f"key-{number}" for number in range(1_000))
    return next(key for key in keys if ranges.owner(ranges.slot(key.encode())) is consumer)


@pytest.mark.parametrize("sub_type", [EXCLUSIVE, FAILOVER])
@pytest.mark.parametrize("batch_index", [False, True])
async def test_one_active_consumer_gets_what_it_can_read(nursery, sub_type, batch_index):
    bench = Bench(nursery, acknowledgment_at_batch_index_level_enabled=batch_index)
    await bench.open()
    consumer = bench.consumer(sub_type, permits=3)
    positions = bench.publish(NO_METADATA, make_data(), NO_METADATA, *[make_data()] * 3)
    bench.subscription.ack(consumer, [AckId(positions[1])], cumulative=True)
    assert consumer.session.positions() == [positions[1], positions[3], positions[4]]
    assert consumer.permits.available == 0
    cursor = bench.subscription.cursor
    assert [cursor.is_acked(each) for each in positions] == [True, True, True, False, False, False]
    bench.subscription.flow(consumer, 10)
    assert consumer.session.positions()[-1] == positions[5]


@pytest.mark.parametrize("rest", [b"", b"\x0e"])
@pytest.mark.parametrize("sub_type", [SHARED, KEY_SHARED])
async def test_an_entry_that_ends_after_its_broker_metadata_is_skipped(nursery, sub_type, rest):
    bench = Bench(nursery)
    await bench.open()
    consumer = bench.consumer(sub_type, permits=100)
    positions = bench.publish(make_data(), b"\x0e\x02\0\0\0\x04abcd" + rest, make_data())
    assert consumer.session.positions() == positions[::2]
    assert bench.subscription.cursor.is_acked(positions[1])


@pytest.mark.parametrize("data", [b"\x0e", b"\x0e\x02\0\0", b"\x0e\x02\0\0\0\x05abcd"])
async def test_an_entry_whose_broker_metadata_is_cut_short_is_skipped(nursery, data):
    bench = Bench(nursery)
    await bench.open()
    consumer = bench.consumer(EXCLUSIVE, permits=100)
    bench.publish(make_data(), data, make_data())
    assert [each.data for each in consumer.session.received] == [make_data(), make_data()]
