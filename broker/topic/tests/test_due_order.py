"""Keys in the order in which they are due."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from broker.topic.due_order import SKIPPED_PER_SLICE, DueOrder

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
    assert len(order._heap) < 100


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
