"""Shares of flows that want very different amounts."""

from __future__ import annotations

from collections import Counter, defaultdict

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from runtime.fair_queue import NEW_IN_A_ROW, FairQueue


def take_all(queue, costs=None):
    taken = []
    while queue:
        item = queue.take()
        queue.charge((costs or {}).get(item, 1))
        taken.append(item)
    return taken


def test_one_flow_is_a_plain_queue():
    queue = FairQueue(3)
    for number in range(10):
        queue.append("a", number)
    assert take_all(queue) == list(range(10))
    with pytest.raises(IndexError):
        queue.take()


def test_one_item_goes_before_the_queue_of_a_flow_that_has_been_served():
    queue = FairQueue(2)
    for number in range(1_000):
        queue.append("flood", number)
    for _ in range(10):
        queue.take()
        queue.charge(1)
    queue.append("quiet", "quiet")
    next_three = []
    for _ in range(3):
        next_three.append(queue.take())
        queue.charge(1)
    assert "quiet" in next_three


def test_a_flow_that_is_alone_and_asks_for_more_is_not_a_new_one():
    queue = FairQueue(2)
    queue.append("flood", "flood")
    for _ in range(50):
        assert queue.take() == "flood"
        queue.append("flood", "flood")
        queue.charge(1)
    queue.append("quiet", "quiet")
    assert queue.take() == "quiet"
    queue.charge(1)
    assert queue.take() == "flood"


def test_a_flow_with_one_item_at_a_time_does_not_starve_the_others():
    queue = FairQueue(2)
    for _number in range(100):
        queue.append("flood", "flood")
    served = Counter()
    for _ in range(100):
        queue.append("quiet", "quiet")
        item = queue.take()
        queue.charge(1)
        served[item] += 1
        if item == "flood":
            continue
    assert served["flood"] >= 40


def test_flows_share_by_cost_and_not_by_items():
    queue = FairQueue(10)
    for _ in range(1_000):
        queue.append("large", "large")
        queue.append("small", "small")
    used = Counter()
    for _ in range(220):
        item = queue.take()
        cost = 20 if item == "large" else 2
        queue.charge(cost)
        used[item] += cost
    assert abs(used["large"] - used["small"]) <= 40


def test_a_flow_that_has_ended_is_forgotten():
    queue = FairQueue(10)
    for number in range(100):
        queue.append(number, number)
        take_all(queue)
    queue.append("last", "last")
    take_all(queue)
    assert queue.flows <= 2


@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(1, 30)), max_size=60),
    st.integers(1, 20),
    st.sets(st.integers(0, 59)),
)
@example(
    [(0, 1), (0, 1), (0, 7), (0, 30), (4, 9), (0, 15), (3, 1), (3, 1), (1, 1), (1, 1), (2, 8)],
    4,
    {4, 6, 8},
)
def test_each_flow_keeps_its_order_nothing_is_lost_and_backlogged_flows_share(
    items, quantum, peeked
):
    queue = FairQueue(quantum)
    wanted = defaultdict(list)
    for number, (flow, cost) in enumerate(items):
        queue.append(flow, (flow, number, cost))
        wanted[flow].append(number)
    got = defaultdict(list)
    used = Counter()
    between = 0
    """The most items of served flows that may have gone between the first items of the others."""
    for take in range(len(items)):
        first = queue.first() if take in peeked else None
        if len(used) < len(wanted):
            between = (take + 1) // (NEW_IN_A_ROW + 1)
        flow, number, cost = item = queue.take()
        assert first in (None, item)
        queue.charge(cost)
        got[flow].append(number)
        used[flow] += cost
        waiting = [each for each in wanted if len(got[each]) < len(wanted[each])]
        if len(waiting) > 1:
            shares = [used[each] for each in waiting]
            assert max(shares) - min(shares) <= 2 * quantum + 30 * (1 + between)
    assert not queue
    assert got == wanted


def test_ever_new_flows_do_not_starve_one_that_waits():
    queue = FairQueue(2)
    for _ in range(20):
        queue.append("old", "old")
    for _ in range(3):
        queue.take()
        queue.charge(1)
    served = Counter()
    for number in range(100):
        queue.append(("new", number), "new")
        queue.append(("newer", number), "new")
        served[queue.take()] += 1
        queue.charge(1)
    assert served["old"] >= 10
