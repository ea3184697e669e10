"""The work for one consumer or one ack does not grow with the number of consumers."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from broker.topics.subscription.active_consumer import RING_POINTS, ActiveOrder
from broker.topics.subscription.consumer import Consumer
from broker.topics.subscription.in_flight import InFlight
from broker.topics.subscription.tests.fakes import FakeSession, limits_among
from protocol.hashing import key_hash

CONSUMERS = 1_000


def new_consumer(name, priority_level=0):
    consumer = Consumer(1, name, FakeSession(), 2, priority_level)
    consumer.equip()
    return consumer


class CountedName(str):
    """Counts comparisons."""

    __slots__ = ()
    compared = 0

    def __lt__(self, other):
        CountedName.compared += 1
        return str.__lt__(self, other)


class CountedPosition(tuple):
    """Counts how often it is looked up."""

    __slots__ = ()
    hashed = 0

    def __hash__(self):
        CountedPosition.hashed += 1
        return tuple.__hash__(self)


def test_choosing_the_active_consumer_looks_at_few_others():
    order = ActiveOrder(0, "t")
    consumers = [new_consumer(CountedName(f"c{number:04}")) for number in range(CONSUMERS)]
    for consumer in consumers:
        order.add(consumer)
    CountedName.compared = 0
    for consumer in consumers:
        assert order.chosen() is consumer
        order.remove(consumer)
    assert order.chosen() is None
    assert CountedName.compared < 30 * CONSUMERS


def test_an_ack_of_what_another_holds_looks_at_one_consumer():
    in_flight = InFlight(limits_among({}))
    consumers = [new_consumer(f"c{number}") for number in range(CONSUMERS)]
    for consumer in consumers:
        in_flight.add(consumer)
    position = CountedPosition((1, 2))
    in_flight.sent(consumers[-1], position, 5)
    CountedPosition.hashed = 0
    assert in_flight.part_acked(position, 3) == 2
    assert in_flight.acked(position) == 3
    assert in_flight.acked(position) == 0
    assert CountedPosition.hashed < 20
    assert in_flight.tally.messages == 0


def chosen_by_the_rule(consumers, partition, topic):
    """Among those of the best level: by number, or by a ring of all their points."""
    if not consumers:
        return None
    best = min(consumer.priority_level for consumer in consumers)
    of_level = [consumer for consumer in consumers if consumer.priority_level == best]
    of_level.sort(key=lambda consumer: consumer.name)
    if partition >= 0:
        return of_level[partition % len(of_level)]
    ring = {
        key_hash(f"{consumer.name}{point}".encode()): consumer
        for consumer in of_level
        for point in range(RING_POINTS)
    }
    after = [point for point in ring if point >= key_hash(topic.encode())]
    return ring[min(after) if after else min(ring)]


@given(
    st.lists(st.tuples(st.integers(-2, 2), st.sampled_from("abcdef"), st.booleans()), max_size=20),
    st.integers(-1, 5),
    st.sampled_from(["t", "u", "persistent://a/b/c"]),
)
def test_the_kept_order_is_that_of_the_rule(steps, partition, topic):
    order = ActiveOrder(partition, topic)
    consumers = []
    for level, name, leaves in steps:
        if leaves and consumers:
            order.remove(consumers.pop(len(name) * level % len(consumers)))
        else:
            consumers.append(new_consumer(name, level))
            order.add(consumers[-1])
        assert order.chosen() is chosen_by_the_rule(consumers, partition, topic)
