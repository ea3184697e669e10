"""What held up the event loop: the name, the time on the clock, and the CPU time."""

from __future__ import annotations

import gc
import os
import time
from functools import partial

import pytest
import trio
import trio.testing

from runtime.readers import Readers
from runtime.watchdog import (
    CALLBACK_SECONDS_MAX,
    COLLECTION,
    NAMES_MAX,
    OTHER,
    SHORT_STEPS,
    TURN_SECONDS_MAX,
    LoopWatchdog,
    callback_name,
    task_name,
    watchdog_of_loop,
    watching,
)


class Clocks:
    """The time and the CPU time, moved by the test."""

    def __init__(self):
        self.now = 100.0
        self.cpu = 7.0
        self.cpu_reads = 0

    def read_cpu(self):
        self.cpu_reads += 1
        return self.cpu

    def work(self, seconds, cpu_share=1.0):
        self.now += seconds
        self.cpu += seconds * cpu_share


class Task:
    def __init__(self, name):
        self.name = name


PUMP = Task("broker.topics.subscription.pump.Pump._go_on")


def watchdog():
    clocks = Clocks()
    return LoopWatchdog(lambda: clocks.now, clocks.read_cpu), clocks


def end_turn(dog):
    """A turn is judged when the next one begins."""
    dog.after_io_wait(0.0)


def counted(dog):
    return {key: (each.wall.cumulative()[-1], round(each.wall.sum_s, 6), round(each.cpu.sum_s, 6))
            for key, each in dog.stalls().items()}  # fmt: skip


def test_a_long_step_is_a_stall_of_its_task_and_of_the_turn():
    dog, clocks = watchdog()
    dog.after_io_wait(0.0)
    clocks.work(0.010, cpu_share=0.4)
    dog.after_task_step(PUMP)
    end_turn(dog)
    assert counted(dog) == {
        ("callback", "Pump._go_on"): (1, 0.010, 0.004),
        ("turn", "Pump._go_on"): (1, 0.010, 0.004),
    }


def test_steps_within_both_budgets_are_no_stalls():
    dog, clocks = watchdog()
    for _ in range(3):
        dog.after_io_wait(0.0)
        for _ in range(2):
            clocks.work(CALLBACK_SECONDS_MAX * 0.99)
            dog.after_task_step(PUMP)
    end_turn(dog)
    assert counted(dog) == {}


def test_many_short_steps_are_a_stall_of_the_turn_alone():
    dog, clocks = watchdog()
    dog.after_io_wait(0.0)
    for _ in range(6):
        clocks.work(0.001)
        dog.after_task_step(PUMP)
    end_turn(dog)
    assert counted(dog) == {("turn", SHORT_STEPS): (1, 0.006, 0.006)}


def test_a_long_turn_is_named_after_its_longest_part():
    dog, clocks = watchdog()
    dog.after_io_wait(0.0)
    for name, seconds in (("a.b.One.run", 0.003), ("a.b.Two.run", 0.004), ("a.b.Three", 0.0025)):
        clocks.work(seconds)
        dog.after_task_step(Task(name))
    end_turn(dog)
    assert [key for key in counted(dog) if key[0] == "turn"] == [("turn", "Two.run")]


def test_a_wait_for_input_is_no_stall():
    dog, clocks = watchdog()
    dog.after_io_wait(0.0)
    dog.after_task_step(PUMP)
    clocks.work(5.0, cpu_share=0.0)
    end_turn(dog)
    assert counted(dog) == {}


def test_a_call_within_a_step_is_named_and_not_counted_again_for_the_step():
    dog, clocks = watchdog()
    dog.after_io_wait(0.0)
    clocks.work(0.004)
    dog.called(dog.stalls, 0.004)
    clocks.work(0.0005)
    dog.after_task_step(PUMP)
    end_turn(dog)
    assert counted(dog) == {("callback", "LoopWatchdog.stalls"): (1, 0.004, 0.004)}


def test_a_collection_of_garbage_that_took_most_of_a_step_is_named():
    dog, clocks = watchdog()
    dog.after_io_wait(0.0)
    clocks.work(0.001)
    dog.on_collection("start", {"generation": 1})
    clocks.work(0.006)
    dog.on_collection("stop", {"generation": 1})
    dog.after_task_step(PUMP)
    end_turn(dog)
    assert set(counted(dog)) == {("callback", COLLECTION.format(1)), ("turn", COLLECTION.format(1))}


def test_what_ran_in_an_earlier_turn_names_no_later_one():
    dog, clocks = watchdog()
    dog.after_io_wait(0.0)
    dog.on_collection("start", {"generation": 1})
    clocks.work(0.003)
    dog.on_collection("stop", {"generation": 1})
    dog.after_task_step(PUMP)
    dog.after_io_wait(0.0)
    for _ in range(6):
        clocks.work(0.001)
        dog.after_task_step(PUMP)
    dog.after_io_wait(0.0)
    clocks.work(0.003)
    dog.after_task_step(PUMP)
    end_turn(dog)
    assert set(counted(dog)) == {
        ("callback", COLLECTION.format(1)), ("turn", SHORT_STEPS), ("callback", "Pump._go_on")
    }  # fmt: skip


def test_the_cpu_clock_is_read_once_in_a_millisecond_of_short_turns():
    dog, clocks = watchdog()
    for _ in range(1000):
        dog.after_io_wait(0.0)
        clocks.work(0.00001)
        dog.after_task_step(PUMP)
    assert clocks.cpu_reads <= 11


def test_names_are_bounded():
    dog, clocks = watchdog()
    for number in range(3 * NAMES_MAX):
        dog.after_io_wait(0.0)
        clocks.work(0.003)
        dog.after_task_step(Task(f"module.Task{number}.run"))
    names = {name for _, name in dog.stalls()}
    assert len(names) == NAMES_MAX + 1
    assert OTHER in names
    assert sum(each.wall.cumulative()[-1] for each in dog.stalls().values()) == 3 * NAMES_MAX


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("broker.topics.subscription.pump.Pump._go_on", "Pump._go_on"),
        ("<bound method Outbox.run of <broker.net.outbox.Outbox object at 0x7f2e>>", "Outbox.run"),
        ("<cyfunction pump.<locals>.go_on at 0x7f2e>", "<locals>.go_on"),
        ("<TrioToken.run_sync_soon task>", "<TrioToken.run_sync_soon task>"),
    ],
)
def test_tasks_are_named_by_functions_and_never_by_objects(name, short):
    assert task_name(name) == short


class Owner:
    def call(self):
        return 0

    def what_ran(self):
        return "Session FLOW"


def test_an_owner_says_more_than_the_name_of_its_method():
    assert callback_name(Owner().call) == "Session FLOW"
    assert callback_name(partial(Owner().call)) == "Session FLOW"
    assert callback_name(watchdog) == "watchdog"
    assert callback_name([].append) == "list.append"


def busy(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


def keep_busy():
    busy(20 * TURN_SECONDS_MAX)  # longer than the process may have to wait for a processor


def end_of_write():
    keep_busy()


async def hold_up():
    keep_busy()


async def test_the_watched_loop_names_tasks_and_calls_of_readers():
    dog = LoopWatchdog()
    assert watchdog_of_loop() is None
    with watching(dog):
        assert watchdog_of_loop() is dog
        readers = Readers()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(readers.run)
            await trio.testing.wait_all_tasks_blocked()
            called = trio.Event()
            await trio.to_thread.run_sync(readers.run_sync_soon, keep_busy)
            await trio.to_thread.run_sync(readers.run_sync_soon, called.set)
            await called.wait()
            urgent = os.eventfd(1, os.EFD_NONBLOCK)
            readers.add_urgent(urgent, end_of_write)
            await trio.testing.wait_all_tasks_blocked()
            readers.remove_urgent(urgent)
            os.close(urgent)
            nursery.cancel_scope.cancel()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(hold_up)
        await trio.lowlevel.checkpoint()
    assert watchdog_of_loop() is None
    assert dog.on_collection not in gc.callbacks
    found = dog.stalls()
    for name in ("keep_busy", "end_of_write", "test_watchdog.hold_up"):
        assert {("callback", name), ("turn", name)} <= set(found)
        stall = found["callback", name]
        assert stall.wall.cumulative()[-1] == 1
        assert stall.wall.sum_s >= stall.cpu.sum_s > 0
