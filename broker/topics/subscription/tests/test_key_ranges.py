"""Key slots: Pulsar's hashing, splitting and merging; every slot has an owner."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.topics.subscription.consumer import Consumer, KeySharedOptions
from broker.topics.subscription.key_ranges import (
    SINGLE_CHANGES_MAX,
    AutoSplit,
    ConsistentHashing,
    StickyRanges,
)
from broker.topics.subscription.sub_types import KEY_SHARED
from broker.topics.subscription.tests.fakes import FakeSession
from protocol.errors import BrokerError
from protocol.hashing import SLOT_COUNT, key_hash


def consumer(name):
    return Consumer(1, name, FakeSession(), KEY_SHARED)


VECTORS = [
    ("vehicle-0", 1708174597, 44293, 4823),
    ("vehicle-1", 201043663, 44751, 47819),
    ("vehicle-2", 1516302379, 61483, 19085),
    ("vehicle-3", 1541157633, 13057, 36574),
    ("road-7", 1444813274, 6618, 28665),
    ("é", 269551495, 1927, 6041),
]


@pytest.mark.parametrize(("key", "hashed", "slot", "ring_slot"), VECTORS)
def test_slots_are_those_of_pulsar(key, hashed, slot, ring_slot):
    assert key_hash(key.encode()) == hashed
    assert AutoSplit().slot(key.encode()) == slot
    assert ConsistentHashing(100).slot(key.encode()) == ring_slot


def test_a_newcomer_takes_the_lower_half_of_the_largest_range_the_lowest_on_a_tie():
    ranges = AutoSplit()
    a, b, c, d = (consumer(name) for name in "abcd")
    ranges.add(a)
    assert ranges.ranges_of(a) == ((0, 65535),)
    ranges.add(b)
    assert (ranges.ranges_of(b), ranges.ranges_of(a)) == (((0, 32768),), ((32769, 65535),))
    ranges.add(c)
    assert (ranges.ranges_of(c), ranges.ranges_of(b)) == (((0, 16384),), ((16385, 32768),))
    ranges.add(d)
    assert (ranges.ranges_of(d), ranges.ranges_of(a)) == (((32769, 49152),), ((49153, 65535),))


def test_a_leaving_consumers_range_goes_to_the_upper_neighbour_and_the_top_one_down():
    ranges = AutoSplit()
    a, b, c = (consumer(name) for name in "abc")
    for each in (a, b, c):
        ranges.add(each)
    ranges.remove(c)
    assert ranges.ranges_of(b) == ((0, 32768),)
    ranges.remove(a)
    assert ranges.ranges_of(b) == ((0, 65535),)
    ranges.remove(b)
    assert ranges.owner(5) is None


def test_slots_run_out():
    ranges = AutoSplit(slot_count=4)
    for n in range(3):
        ranges.add(consumer(str(n)))
    with pytest.raises(BrokerError):
        ranges.add(consumer("one too many"))


@settings(deadline=None)
@given(st.lists(st.integers(0, 9), max_size=40), st.booleans())
def test_every_slot_has_exactly_the_owner_its_ranges_say(steps, ring):
    ranges = ConsistentHashing(10) if ring else AutoSplit()
    present = {}
    for step in steps:
        if step in present:
            ranges.remove(present.pop(step))
        else:
            present[step] = consumer(f"c{step % 4}")
            ranges.add(present[step])
    if not present:
        assert all(ranges.owner(slot) is None for slot in (1, 100, 65535))
        return
    covered = sorted(
        (start, end, name)
        for name, each in present.items()
        for start, end in ranges.ranges_of(each)
    )
    expected = 1 if ring else 0
    for start, end, name in covered:
        assert start == expected
        expected = end + 1
        for slot in {max(start, 1), (start + end) // 2 or 1, end}:
            assert ranges.owner(slot) is present[name]
    assert expected == SLOT_COUNT
    assert [(start, end, each.name) for start, end, each in ranges.ranges()] == [
        (start, end, present[name].name) for start, end, name in covered
    ]


def test_consumers_of_one_name_share_the_ring_and_a_reconnect_changes_nothing():
    ranges = ConsistentHashing(100)
    first, second, third = consumer("same"), consumer("same"), consumer("other")
    for each in (first, second, third):
        ranges.add(each)
    before = ranges.ranges_of(second)
    assert before
    ranges.remove(second)
    again = consumer("same")
    ranges.add(again)
    assert ranges.ranges_of(again) == before


def sticky_consumer(name, *ranges):
    return Consumer(
        1, name, FakeSession(), KEY_SHARED, key_shared=KeySharedOptions(sticky=True, ranges=ranges)
    )


@settings(deadline=None, max_examples=50)
@given(st.lists(st.integers(0, 6), max_size=20))
def test_sticky_ranges_come_and_go_one_by_one_or_all_together(steps):
    ranges = StickyRanges()
    present = {}
    for step in steps:
        if step in present:
            ranges.remove(present.pop(step))
            continue
        count = 3 if step % 2 else 2 * SINGLE_CHANGES_MAX
        own = [(10 * number + step, 10 * number + step) for number in range(count)]
        present[step] = sticky_consumer(str(step), *reversed(own))
        ranges.add(present[step])
        assert ranges.ranges_of(present[step]) == tuple(own)
        with pytest.raises(BrokerError, match="Range conflict"):
            ranges.add(sticky_consumer("late", own[1]))
    expected = sorted(
        (start, end, each.name)
        for each in present.values()
        for start, end in each.key_shared.ranges
    )
    assert [(start, end, each.name) for start, end, each in ranges.ranges()] == expected
    for start, _, name in expected:
        assert ranges.owner(start).name == name
    ranges.remove(sticky_consumer("never added", (0, 0), (1, 1)))
    assert len(list(ranges.ranges())) == len(expected)


def test_a_consumer_of_one_range_does_not_take_those_of_all_others():
    """A turn with 64 such consumers took half a second."""
    ranges = StickyRanges()
    ranges.add(sticky_consumer("many", *((number, number) for number in range(4_000))))
    ranges._ranges = held = CountedRing(ranges._ranges)
    ranges._starts = starts = CountedRing(ranges._starts)
    few = sticky_consumer("few", (5_000, 5_000))
    ranges.add(few)
    assert ranges.ranges_of(few) == ((5_000, 5_000),)
    ranges.remove(few)
    assert ranges._ranges is held
    assert ranges._starts is starts
    assert held.looked_at + starts.looked_at < 100


class CountedRing(list):
    """Points that count how many of them are looked at; a binary search passes by uncounted."""

    looked_at = 0

    def __iter__(self):
        for point in super().__iter__():
            self.looked_at += 1
            yield point

    def __getitem__(self, at):
        self.looked_at += 1
        return super().__getitem__(at)

    def remove(self, point):
        self.looked_at += self.index(point) + 1
        super().remove(point)


def test_the_ranges_of_one_consumer_do_not_take_the_whole_ring():
    """A client may ask for the statistics of its consumer: 500 consumers took 20 ms."""
    ranges = ConsistentHashing(100)
    consumers = [consumer(f"c{number}") for number in range(50)]
    for each in consumers:
        ranges.add(each)
    expected = [(start, end) for start, end, owner in ranges.ranges() if owner is consumers[7]]
    ring = ranges._ring = CountedRing(ranges._ring)
    assert list(ranges.ranges_of(consumers[7])) == expected
    assert len(ring) > 4_000
    assert ring.looked_at <= len(ring) // 2


def test_a_consumer_that_leaves_finds_its_points_without_looking_at_the_others():
    """100 consumers that closed together looked at thousands of points for each of theirs."""
    ranges = ConsistentHashing(100)
    consumers = [consumer(f"c{number}") for number in range(50)]
    for each in consumers:
        ranges.add(each)
    ring = ranges._ring = CountedRing(ranges._ring)
    ranges.remove(consumers[7])
    assert ring.looked_at < len(ring) // 2
    assert ranges.ranges_of(consumers[7]) == ()
    assert all(owner is not consumers[7] for _, _, owner in ranges.ranges())
    assert list(ring) == sorted(ranges._holders)
