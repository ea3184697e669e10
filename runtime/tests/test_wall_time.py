"""Sleeping until a time of the wall clock."""

from __future__ import annotations

import pytest
import trio

from runtime.wall_time import LOOK_SECONDS, sleep_until

HOUR_MS = 3_600_000


class MovedClock:
    """Trio's time, and a wall clock that can be set."""

    def __init__(self):
        self.set_by_ms = 0
        self.looks = 0

    def now(self):
        return trio.current_time()

    def wall_ms(self):
        self.looks += 1
        return 1_700_000_000_000 + int(trio.current_time() * 1000) + self.set_by_ms


async def test_it_sleeps_until_the_time(autojump_clock):
    clock = MovedClock()
    begun = trio.current_time()
    await sleep_until(clock, clock.wall_ms() + 90_500)
    assert trio.current_time() - begun == pytest.approx(90.5, abs=0.01)
    await sleep_until(clock, clock.wall_ms())
    await sleep_until(clock, clock.wall_ms() - 1)
    assert trio.current_time() - begun == pytest.approx(90.5, abs=0.01)


async def test_all_wake_when_the_wall_clock_is_set_past_their_times(nursery, autojump_clock):
    clock = MovedClock()
    woken = []

    async def sleeper(minutes):
        await sleep_until(clock, clock.wall_ms() + minutes * 60_000)
        woken.append(minutes)

    for minutes in (30, 50, 70):
        nursery.start_soon(sleeper, minutes)
    await trio.sleep(10)
    clock.set_by_ms += HOUR_MS
    await trio.sleep(LOOK_SECONDS + 0.1)
    assert sorted(woken) == [30, 50]
    clock.set_by_ms += HOUR_MS
    await trio.sleep(LOOK_SECONDS + 0.1)
    assert woken[2:] == [70]


async def test_it_sleeps_longer_when_the_wall_clock_is_set_back(autojump_clock, nursery):
    clock = MovedClock()
    begun = trio.current_time()
    due_ms = clock.wall_ms() + 60_000

    async def set_back():
        await trio.sleep(30)
        clock.set_by_ms -= HOUR_MS

    nursery.start_soon(set_back)
    await sleep_until(clock, due_ms)
    assert trio.current_time() - begun == pytest.approx(3660, abs=0.1)


async def test_another_looks_out_when_the_lookout_is_cancelled(nursery, autojump_clock):
    clock = MovedClock()
    woken = []

    async def sleeper():
        await sleep_until(clock, clock.wall_ms() + 60_000)
        woken.append(trio.current_time())

    lookout = trio.CancelScope()

    async def cancelled():
        with lookout:
            await sleep_until(clock, clock.wall_ms() + 60_000)

    nursery.start_soon(cancelled)
    await trio.sleep(0.5)
    for _ in range(3):
        nursery.start_soon(sleeper)
    await trio.sleep(2.2)
    lookout.cancel()
    await trio.sleep(2)
    clock.set_by_ms += HOUR_MS
    await trio.sleep(LOOK_SECONDS + 0.1)
    assert len(woken) == 3


async def test_a_thousand_sleepers_cost_one_look_in_a_second(nursery, autojump_clock):
    clock = MovedClock()
    for _ in range(1000):
        nursery.start_soon(sleep_until, clock, clock.wall_ms() + HOUR_MS)
    await trio.sleep(3)
    clock.looks = 0
    await trio.sleep(100)
    assert clock.looks <= 300
    nursery.cancel_scope.cancel()
