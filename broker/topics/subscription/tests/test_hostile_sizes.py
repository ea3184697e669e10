"""Unbounded numbers in the requests of one client do not affect the others."""

from __future__ import annotations

import pytest

from broker.topics.subscription.consumer import Consumer, KeySharedOptions
from broker.topics.subscription.key_ranges import StickyRanges
from broker.topics.subscription.outgoing import ACK_WORDS_MAX, ack_bits
from broker.topics.subscription.sub_types import KEY_SHARED
from broker.topics.subscription.tests.fakes import FakeSession
from protocol.errors import BrokerError
from protocol.hashing import SLOT_COUNT


def consumer(*ranges):
    options = KeySharedOptions(sticky=True, ranges=ranges)
    return Consumer(1, "c", FakeSession(), KEY_SHARED, key_shared=options)


def test_an_ack_set_counts_up_to_the_largest_batch():
    assert ack_bits((1, -1)) == 1 | ((1 << 64) - 1) << 64
    assert ack_bits((-1,) * (ACK_WORDS_MAX + 1)).bit_length() == 64 * ACK_WORDS_MAX


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
