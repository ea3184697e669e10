"""Entries whose metadata cannot be parsed: no client can read them, and some hang up on them."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from broker.subscription.api import EXCLUSIVE, KEY_SHARED, SHARED
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
