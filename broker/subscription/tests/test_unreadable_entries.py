"""Entries whose metadata cannot be parsed: no client can read them, and some hang up on them."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from broker.subscription.sub_types import EXCLUSIVE, KEY_SHARED, SHARED
from broker.subscription.tests.fakes import Bench, make_data

NO_METADATA = b"\x0e\x01\0\0\0\0" + (4).to_bytes(4, "big") + b"\xff\xff\xff\xff" + b"payload"


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


async def test_an_exclusive_consumer_gets_entries_as_they_are(nursery):
    bench = Bench(nursery)
    await bench.open()
    consumer = bench.consumer(EXCLUSIVE, permits=100)
    positions = bench.publish(make_data(), NO_METADATA)
    assert consumer.session.positions() == positions


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
async def test_broker_metadata_that_is_cut_short_is_delivered_as_it_is(nursery, data):
    bench = Bench(nursery)
    await bench.open()
    consumer = bench.consumer(EXCLUSIVE, permits=100)
    bench.publish(make_data(), data, make_data())
    assert [each.data for each in consumer.session.received] == [make_data(), data, make_data()]
