"""Heavy work is spread over rounds of the loop, in the order of asking."""

from __future__ import annotations

import trio
import trio.testing

from runtime.rounds import YIELDING_SLICES, Rounds, heavy_rounds
from runtime.testing.conditions import SECONDS_MAX

PER_ROUND = 3


class CountedRounds(trio.abc.Instrument):
    """The slices of each round."""

    def __init__(self):
        self.slices = []

    def after_io_wait(self, timeout):
        self.slices.append([])

    def add(self, name):
        self.slices[-1].append(name)


def run(*, tasks, slices_each, published_at=()):
    """The slices of each round. `published_at`: numbers of rounds in which a message comes."""
    counted = CountedRounds()

    async def heavy(rounds, name):
        for number in range(slices_each):
            async with rounds:
                counted.add((number, name))

    async def publish(rounds):
        for number in range(max(published_at, default=-1) + 1):
            if number in published_at:
                rounds.published()
            await trio.lowlevel.checkpoint()

    async def main():
        rounds = Rounds(PER_ROUND)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(publish, rounds)
            await trio.lowlevel.checkpoint()
            for name in range(tasks):
                nursery.start_soon(heavy, rounds, name)

    trio.run(main, instruments=[counted])
    return [each for each in counted.slices if each]


def test_a_round_has_a_bounded_number_of_slices_and_none_is_lost():
    slices = run(tasks=20, slices_each=5)
    assert max(map(len, slices)) == PER_ROUND
    assert sorted(each for part in slices for each in part) == [
        (number, name) for number in range(5) for name in range(20)
    ]


def test_nobody_gets_ahead_of_those_that_wait():
    had = [0] * 20
    for part in run(tasks=20, slices_each=5):
        for number, name in part:
            had[name] += 1
            assert had[name] == number + 1
            assert had[name] - min(had) <= 2


def test_slices_follow_each_other_in_every_round():
    slices = run(tasks=20, slices_each=6)
    assert len(slices) <= 20 * 6 / PER_ROUND + 2


def test_after_a_message_each_slice_has_a_round_for_itself():
    slices = run(tasks=20, slices_each=10, published_at=(0,))
    assert [len(each) for each in slices[:YIELDING_SLICES]] == [1] * YIELDING_SLICES
    assert max(map(len, slices[YIELDING_SLICES:])) == PER_ROUND
    assert sum(map(len, slices)) == 200


def test_a_message_among_full_rounds_makes_them_short():
    slices = run(tasks=20, slices_each=10, published_at=(5,))
    counts = [len(each) for each in slices]
    assert sum(counts) == 200
    short = counts.index(1, 2)
    assert PER_ROUND in counts[:short]
    settled = short + PER_ROUND  # places taken before are given up one after the other
    few = YIELDING_SLICES // 2
    assert counts[settled : settled + few] == [1] * few


def test_messages_all_the_time_stop_no_backlog():
    slices = run(tasks=5, slices_each=10, published_at=range(200))
    assert {len(each) for each in slices} == {1}
    assert sum(map(len, slices)) == 50


def test_one_that_is_alone_has_a_slice_in_every_round():
    assert len(run(tasks=1, slices_each=10)) == 10


async def test_one_that_is_cancelled_leaves_the_line():
    rounds = Rounds(1)
    done = []

    async def heavy(name):
        async with rounds:
            done.append(name)

    async with trio.open_nursery() as nursery:
        for name in range(3):
            nursery.start_soon(heavy, name)
        with trio.CancelScope() as scope:
            scope.cancel()
            async with rounds:
                pass
        async with trio.open_nursery() as cancelled:
            for name in range(10, 20):
                cancelled.start_soon(heavy, name)
            await trio.lowlevel.checkpoint()
            await trio.lowlevel.checkpoint()
            cancelled.cancel_scope.cancel()
    assert {0, 1, 2} <= set(done)
    with trio.fail_after(SECONDS_MAX):
        async with rounds:
            pass


async def test_a_loop_has_one_for_all_its_heavy_work():
    assert heavy_rounds() is heavy_rounds()


class Work:
    """Slices, the last of which ends the work."""

    def __init__(self, slices):
        self.left = slices

    def __call__(self):
        self.left -= 1
        return self.left > 0


async def test_slices_are_steps_of_the_turns_that_there_are():
    rounds, asked, work = Rounds(1), [], Work(3)
    rounds.use_turns(asked.append)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(rounds.do, work)
        await trio.testing.wait_all_tasks_blocked()
        [step] = asked
        assert [step(), step(), step()] == [True, True, False]
    assert work.left == 0


async def test_what_turns_that_end_have_not_done_is_done_in_rounds():
    rounds, asked, work = Rounds(1), [], Work(5)
    rounds.use_turns(asked.append)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(rounds.do, work)
        await trio.testing.wait_all_tasks_blocked()
        [step] = asked
        assert step()
        rounds.use_turns(None)
    assert work.left == 0
    assert not step()
    assert work.left == 0


async def test_work_whose_task_is_cancelled_is_called_no_more():
    rounds, asked, work = Rounds(1), [], Work(5)
    rounds.use_turns(asked.append)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(rounds.do, work)
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    [step] = asked
    assert not step()
    assert work.left == 5


async def test_so_many_slices_in_turns_yield_to_a_message():
    rounds, asked = Rounds(1), []
    rounds.use_turns(asked.append)
    rounds.published()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(rounds.do, Work(YIELDING_SLICES + 1))
        await trio.testing.wait_all_tasks_blocked()
        [step] = asked
        for _ in range(YIELDING_SLICES):
            assert rounds.is_yielding
            step()
        assert not rounds.is_yielding
        step()
