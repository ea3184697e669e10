"""Unbounded numbers in the requests of one client do not affect the others."""

from __future__ import annotations

import pytest

from broker.topics.subscription.api import AckId
from broker.topics.subscription.consumer import Consumer, KeySharedOptions
from broker.topics.subscription.key_ranges import StickyRanges
from broker.topics.subscription.outgoing import ACK_WORDS_MAX, ack_bits
from broker.topics.subscription.sub_types import EXCLUSIVE, FAILOVER, KEY_SHARED, SHARED
from broker.topics.subscription.tests.fakes import Bench, FakeSession, make_data
from protocol.errors import BrokerError
from protocol.hashing import SLOT_COUNT


def consumer(*ranges):
    options = KeySharedOptions(sticky=True, ranges=ranges)
    return Consumer(1, "c", FakeSession(), KEY_SHARED, key_shared=options)


def test_an_ack_set_counts_up_to_the_largest_batch():
    assert ack_bits((1, -1)) == 1 | ((1 << 64) - 1) << 64
    assert ack_bits((-1,) * (ACK_WORDS_MAX + 1)).bit_length() == 64 * ACK_WORDS_MAX


BY_INDEX = {"acknowledgment_at_batch_index_level_enabled": True}
LONG = (-1,) * ACK_WORDS_MAX


async def opened(nursery, sub_type, *messages):
    bench = Bench(nursery, **BY_INDEX)
    await bench.open()
    consumer = bench.consumer(sub_type, permits=100)
    positions = bench.publish(*(make_data(key="k", messages=each) for each in messages))
    return bench, consumer, positions


@pytest.mark.parametrize("sub_type", [SHARED, KEY_SHARED])
async def test_an_ack_set_longer_than_its_batch_keeps_what_the_batch_has(nursery, sub_type):
    bench, consumer, positions = await opened(nursery, sub_type, None, 3, 3)
    cursor = bench.subscription.cursor
    for position in positions:
        bench.subscription.ack(consumer, [AckId(position, LONG)], cumulative=False)
    assert [cursor.partial[position] for position in positions] == [0b1, 0b111, 0b111]
    assert consumer.pending.messages == 7
    bench.subscription.ack(consumer, [AckId(positions[1], (-6,))], cumulative=False)
    assert cursor.partial[positions[1]] == 0b010
    beyond = (-8, *LONG[1:])
    bench.subscription.ack(consumer, [AckId(positions[2], beyond)], cumulative=False)
    assert cursor.is_acked(positions[2])


@pytest.mark.parametrize("sub_type", [SHARED, KEY_SHARED, EXCLUSIVE, FAILOVER])
async def test_what_is_left_beyond_a_batch_costs_no_permits(nursery, sub_type):
    """As of a cursor that was restored, or moved by an administrator."""
    bench, consumer, positions = await opened(nursery, sub_type, None, 3, 3)
    bench.subscription.remove_consumer(consumer)
    cursor = bench.subscription.cursor
    cursor.partial = {
        positions[0]: ack_bits(LONG),
        positions[1]: ack_bits((-3, *LONG[1:])),
        positions[2]: ack_bits((-8, *LONG[1:])),
    }
    again = bench.consumer(sub_type, permits=100)
    assert [(each.position, each.ack_set) for each in again.session.received] == [
        (positions[0], (0b1,)),
        (positions[1], (0b101,)),
    ]
    assert again.permits.available == 100 - 1 - 2
    assert cursor.partial == {positions[0]: 0b1, positions[1]: 0b101}
    assert cursor.is_acked(positions[2])


@pytest.mark.parametrize("wanted", [(-1, 3), (5, SLOT_COUNT), (7, 6)])
def test_sticky_ranges_outside_of_the_slots_are_refused(wanted):
    with pytest.raises(BrokerError):
        StickyRanges().add(consumer(wanted))


def test_sticky_ranges_of_two_consumers_must_not_overlap():
    ranges = StickyRanges()
    ranges.add(consumer((10, 20), (40, 50)))
    for wanted in ((20, 30), (0, 10), (0, 100), (45, 46), (30, 40)):
        with pytest.raises(BrokerError, match="conflict"):
            ranges.add(consumer(wanted))
    ranges.add(consumer((21, 39), (51, 60)))
