"""Those that wait have their turns in order, at their time, and leave other work its turns."""

from __future__ import annotations

import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from runtime.turn_line import CALLED_AT_ONCE_MAX, TurnLine


def run_with_clock(what):
    trio.run(what, clock=trio.testing.MockClock(autojump_threshold=0))


@given(st.lists(st.floats(0, 100), min_size=1, max_size=30), st.sets(st.integers(0, 29)))
def test_each_that_stays_has_one_turn_in_order_and_not_before_its_time(times, forgotten):
    async def run():
        turns = []
        async with trio.open_nursery() as nursery:
            line = TurnLine(
                lambda due: max(0.0, due - trio.current_time()),
                lambda number, due: turns.append((number, due, trio.current_time())),
                lambda: nursery,
            )
            begun = trio.current_time()
            for number, time in enumerate(times):
                line.join(number, begun + time)
            for number in forgotten:
                line.forget(number)
        assert [number for number, _, _ in turns] == [
            number for number in range(len(times)) if number not in forgotten
        ]
        assert all(at >= due for _, due, at in turns)
        assert (bool(line), line.joined) == (False, len(times))

    run_with_clock(run)


class CallsOfSteps(trio.abc.Instrument):
    """How many were called in each step of a task."""

    def __init__(self, turns):
        self._turns = turns
        self._before = 0
        self.calls = []

    def before_task_step(self, task):
        self._before = len(self._turns)

    def after_task_step(self, task):
        self.calls.append(len(self._turns) - self._before)


def test_a_long_line_leaves_other_work_its_turns():
    turns = []
    steps = CallsOfSteps(turns)

    async def run():
        async with trio.open_nursery() as nursery:
            line = TurnLine(lambda _: 0.0, lambda number, _: turns.append(number), lambda: nursery)
            for number in range(3 * CALLED_AT_ONCE_MAX):
                line.join(number, None)

    trio.run(run, instruments=[steps])
    assert [calls for calls in steps.calls if calls] == 3 * [CALLED_AT_ONCE_MAX]


def test_the_first_in_line_does_not_wait_longer_than_a_changed_rate_asks():
    async def run():
        seconds = 1_000.0
        called_at = []
        async with trio.open_nursery() as nursery:
            line = TurnLine(
                lambda _: seconds, lambda *_: called_at.append(trio.current_time()), lambda: nursery
            )
            begun = trio.current_time()
            line.join("one", None)
            await trio.sleep(1)
            seconds = 0.0
            line.look_again()
        assert called_at == [begun + 1]

    run_with_clock(run)


def test_one_may_join_again_in_its_turn():
    async def run():
        turns = []

        def call(name, left):
            turns.append((name, left))
            if left:
                line.join(name, left - 1)

        async with trio.open_nursery() as nursery:
            line = TurnLine(lambda _: 0.0, call, lambda: nursery)
            line.join("a", 1)
            line.join("b", 1)
            assert "a" in line
        assert turns == [("a", 1), ("b", 1), ("a", 0), ("b", 0)]
        assert "a" not in line

    run_with_clock(run)
