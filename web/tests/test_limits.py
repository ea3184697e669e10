"""The shared bytes and the rate of requests."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from web.limits import ByteBudget, RequestRate


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 60)), max_size=50), st.data())
def test_held_bytes_stay_within_the_budget(steps, data):
    budget = ByteBudget(100)
    requests, answers = [], []
    for of_request, size in steps:
        if of_request:
            if budget.take_for_request(size):
                requests.append(size)
        elif budget.take_for_answer(size):
            answers.append(size)
        assert sum(requests) <= 50
        # One piece of an answer may pass the bound, so that a large one is not refused for ever.
        assert budget.held == sum(requests) + sum(answers)
        assert budget.held <= 100 or len([each for each in answers if each]) == 1
        if requests and data.draw(st.booleans()):
            budget.give_for_request(requests.pop())
        if answers and data.draw(st.booleans()):
            budget.give_for_answer(answers.pop())


def test_full_requests_leave_room_for_answers():
    budget = ByteBudget(100)
    assert budget.take_for_request(50)
    assert not budget.take_for_request(1)
    assert budget.take_for_answer(40)
    assert budget.take_for_answer(10)
    assert not budget.take_for_answer(1)


def test_a_rate_admits_a_second_of_requests_at_once_and_then_its_mean():
    rate = RequestRate(10.0, 0.0)
    assert [rate.admits(0.0) for _ in range(11)] == [True] * 10 + [False]
    assert sum(rate.admits(0.5) for _ in range(10)) == 5
    assert sum(rate.admits(100.0) for _ in range(20)) == 10


def test_less_than_one_request_per_second_admits_some():
    rate = RequestRate(0.5, 0.0)
    assert [rate.admits(at) for at in (0.0, 1.0, 2.0)] == [True, False, True]


def test_no_rate_admits_all():
    rate = RequestRate(0.0, 0.0)
    assert all(rate.admits(0.0) for _ in range(100))
