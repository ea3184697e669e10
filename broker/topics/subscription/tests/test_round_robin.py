"""The rotation of a Shared subscription against a model that keeps every consumer in one list."""

from __future__ import annotations

import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from broker.topics.subscription.consumer import Consumer
from broker.topics.subscription.round_robin import RoundRobin, can_take
from broker.topics.subscription.sub_types import SHARED
from broker.topics.subscription.tests.fakes import FakeSession

LEVELS_MAX = 1_000


def make_consumer(priority_level, granted=1):
    consumer = Consumer(1, "c", FakeSession(), SHARED, priority_level)
    consumer.equip()
    consumer.permits.granted = granted
    return consumer


class Model:
    """The consumers of the rotation, those of one level in their order."""

    def __init__(self):
        self.members = []
        self.queued = []

    def ready(self, consumer):
        if consumer in self.members and consumer not in self.queued:
            self.queued.append(consumer)

    def add(self, consumer):
        self.members.append(consumer)
        self.ready(consumer)

    def remove(self, consumer):
        self.members.remove(consumer)
        self.queued = [each for each in self.queued if each is not consumer]

    def first(self):
        """Drops those found unable, up to the first that can take something."""
        for consumer in sorted(self.queued, key=lambda each: each.priority_level):
            if can_take(consumer):
                return consumer
            self.queued.remove(consumer)
        return None

    def next(self):
        consumer = self.first()
        if consumer is not None:
            self.queued.remove(consumer)
            self.queued.append(consumer)
        return consumer

    def capacity(self, count_max):
        able = [each.permits.available for each in self.queued if can_take(each)]
        return min(count_max, sum(able))


KINDS = ("add", "remove", "ready", "unable", "able", "next", "any_ready", "capacity")
STEPS = st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 7)), max_size=80)
PRIORITIES = st.lists(
    st.sampled_from([-(2**31), -1, 0, 0, 1, 2, 2**31 - 1]), min_size=8, max_size=8
)


@given(PRIORITIES, STEPS)
def test_turns_are_those_of_the_model(priorities, steps):
    consumers = [
        make_consumer(priority, granted=1 + index) for index, priority in enumerate(priorities)
    ]
    rotation, model = RoundRobin(), Model()
    for kind, number in steps:
        consumer = consumers[number]
        is_member = consumer in model.members
        if kind == "add" and not is_member:
            rotation.add(consumer)
            model.add(consumer)
        elif kind == "remove" and is_member:
            rotation.remove(consumer)
            model.remove(consumer)
        elif kind == "ready":
            rotation.ready(consumer)
            model.ready(consumer)
        elif kind in ("unable", "able"):
            consumer.blocked_on_unacked = kind == "unable"
        elif kind == "next":
            assert rotation.next() is model.next()
        elif kind == "any_ready":
            assert rotation.any_ready() is (model.first() is not None)
        elif kind == "capacity":
            assert rotation.capacity(number * 3) == model.capacity(number * 3)
    while (consumer := rotation.next()) is not None:
        assert consumer is model.next()
        consumer.blocked_on_unacked = True
    assert model.next() is None


def test_levels_without_consumers_leave_nothing_behind():
    rotation = RoundRobin()
    consumers = [make_consumer(level, granted=level % 2) for level in range(LEVELS_MAX)]
    tracemalloc.start()
    try:
        for consumer in consumers:
            rotation.add(consumer)
            rotation.any_ready()
            rotation.remove(consumer)
        kept_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept_bytes < LEVELS_MAX  # less than a byte for each
