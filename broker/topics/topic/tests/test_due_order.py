"""Keys in the order in which they are due."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from broker.topics.topic.due_order import SKIPPED_PER_SLICE, DueOrder

keys = st.integers(0, 5)
times = st.integers(0, 20)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("plan"), keys, times),
        st.tuples(st.just("forget"), keys, times),
        st.tuples(st.just("take"), keys, times),
    ),
    max_size=300,
)


@given(steps)
def test_the_order_equals_that_of_a_sorted_table(steps):
    order: DueOrder[int] = DueOrder()
    planned: dict[int, int] = {}
    for what, key, time in steps:
        if what == "plan":
            order.plan(key, time)
            planned[key] = time
        elif what == "forget":
            order.forget(key)
            planned.pop(key, None)
        else:
            taken = [each for each in order.take_due(time) if each is not None]
            due = [each for each in planned if planned[each] <= time]
            assert sorted(taken) == sorted(due)
            assert [planned[each] for each in taken] == sorted(planned[each] for each in due)
            for each in taken:
                del planned[each]
        assert len(order) == len(planned)
        assert all((key in order) == (key in planned) for key in range(6))


def test_planning_again_and_again_keeps_it_small():
    order: DueOrder[str] = DueOrder()
    for number in range(10_000):
        order.plan("a", number)
    assert len(order._heap) + len(order._aside) < 100


class CountedKey:
    """Counts the look-ups of all keys."""

    looked_up = 0

    def __hash__(self):
        CountedKey.looked_up += 1
        return id(self)


def test_no_call_looks_at_many_places_however_many_keys_there_are():
    order: DueOrder[CountedKey] = DueOrder()
    keys = [CountedKey() for _ in range(1_000)]

    def looked_up_at_most(call):
        most = 0
        for key in keys:
            before = CountedKey.looked_up
            call(key)
            most = max(most, CountedKey.looked_up - before)
            places = len(order._heap) + len(order._aside)
            assert places <= 3 * len(keys) + 100
        return most

    for due in range(20):
        assert looked_up_at_most(lambda key, due=due: order.plan(key, due)) <= 8
    assert looked_up_at_most(order.forget) <= 8
    assert looked_up_at_most(lambda key: order.plan(key, 1)) <= 8
    assert [key for key in order.take_due(1) if key is not None] == keys


@given(st.lists(times, min_size=70, max_size=150), st.integers(0, 100))
def test_the_order_holds_while_it_is_swept(dues, more):
    order: DueOrder[int] = DueOrder()
    for key, due in enumerate(dues):
        order.plan(key, 30)
        order.plan(key, due)
    for key in range(more):
        order.plan(key % len(dues), 25)
    planned = dict(enumerate(dues)) | {key % len(dues): 25 for key in range(more)}
    taken = [each for each in order.take_due(30) if each is not None]
    assert sorted(taken) == sorted(planned)
    assert [planned[each] for each in taken] == sorted(planned.values())


def test_those_planned_meanwhile_come_too_if_they_are_due():
    order: DueOrder[str] = DueOrder()
    order.plan("a", 1)
    taken = []
    for key in order.take_due(5):
        taken.append(key)
        if len(taken) < 3:
            order.plan("b", 5)
        order.plan("c", 6)
    assert taken == ["a", "b", "b"]


def test_former_places_are_skipped_in_slices():
    order: DueOrder[int] = DueOrder()
    count = 4 * SKIPPED_PER_SLICE
    for number in range(count):
        order.plan(number, 1)
        order.forget(number)
        order.plan(-number, 9)
    order.plan(count, 2)
    assert list(order.take_due(3)) == [None] * 4 + [count]
