"""Readers are called in the wait of the loop, and everything else of the loop goes on."""

from __future__ import annotations

import os
from contextlib import asynccontextmanager, contextmanager, nullcontext

import pytest
import trio
import trio.lowlevel
import trio.testing

from runtime.readers import Readers
from runtime.testing.conditions import SECONDS_MAX, eventually
from runtime.testing.taken_wait import wait_of_loop_is_taken

HOUR_SECONDS = 3600.0


class Turns(trio.abc.Instrument):
    """Counts the turns of trio."""

    def __init__(self):
        self.count = 0

    def after_io_wait(self, timeout):
        self.count += 1


@pytest.fixture(params=["in the wait", "in turns"])
async def way(request):
    """Both ways in which readers are called."""
    async with wait_of_loop_is_taken() if request.param == "in turns" else nullcontext():
        yield request.param


@asynccontextmanager
async def running():
    readers = Readers()
    with trio.fail_after(SECONDS_MAX):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(readers.run)
            await trio.testing.wait_all_tasks_blocked()
            yield readers, nursery
            nursery.cancel_scope.cancel()


@contextmanager
def counter(readers, call=None):
    """A descriptor whose values are collected by its reader."""
    descriptor, values = os.eventfd(0, os.EFD_NONBLOCK), []

    def read():
        values.append(os.eventfd_read(descriptor))
        if call is not None:
            call()
        return 8

    readers.add(descriptor, read)
    try:
        yield descriptor, values
    finally:
        readers.remove(descriptor, read)
        os.close(descriptor)


async def test_readers_use_a_task_only_while_others_have_the_wait(way):
    async with running() as (readers, _):
        assert (readers._trios == -1) is (way == "in turns")


async def test_what_comes_for_readers_takes_no_turn_of_trio():
    """Fails with a version of trio whose loop this does not know."""
    turns, times, done = Turns(), 20, trio.Event()
    async with running() as (readers, _):

        def write_again():
            if len(values) < times:
                os.eventfd_write(descriptor, 1)
            else:
                done.set()

        with counter(readers, write_again) as (descriptor, values):
            os.eventfd_write(descriptor, 1)
            trio.lowlevel.add_instrument(turns)
            await done.wait()
            trio.lowlevel.remove_instrument(turns)
    assert len(values) == times
    assert turns.count < times // 2


async def test_a_task_that_a_call_wakes_or_starts_runs_at_once(way):
    async with running() as (readers, nursery):
        woken, started = trio.Event(), trio.Event()

        async def start():
            started.set()

        def call():
            woken.set()
            nursery.start_soon(start)

        with counter(readers, call) as (descriptor, _):
            os.eventfd_write(descriptor, 1)
            await woken.wait()  # no deadline of the test is near
            await started.wait()


async def test_deadlines_threads_and_other_sockets_do_not_wait_for_busy_readers(way):
    async with running() as (readers, _):

        def write_again():
            os.eventfd_write(descriptor, 1)

        with counter(readers, write_again) as (descriptor, values):
            os.eventfd_write(descriptor, 1)
            await trio.sleep(0.01)
            assert await trio.to_thread.run_sync(os.getpid) == os.getpid()
            other = os.eventfd(1, os.EFD_NONBLOCK)
            await trio.lowlevel.wait_readable(other)
            trio.lowlevel.notify_closing(other)
            os.close(other)
            assert values


async def test_a_deadline_that_a_call_makes_earlier_is_kept(way):
    async with running() as (readers, _):
        with trio.CancelScope() as scope:

            def call():
                scope.deadline = trio.current_time()

            with counter(readers, call) as (descriptor, _):
                os.eventfd_write(descriptor, 1)
                await trio.sleep(HOUR_SECONDS)
        assert scope.cancelled_caught


async def test_deadlines_and_threads_do_not_wait_for_readers_without_work(way):
    async with running():
        await trio.sleep(0.01)
        assert await trio.to_thread.run_sync(os.getpid) == os.getpid()


async def test_a_failure_of_an_urgent_call_ends_the_readers_and_not_the_loop(way):
    readers = Readers()
    urgent = os.eventfd(1, os.EFD_NONBLOCK)

    def fail():
        raise ValueError("the journal is broken")

    readers.add_urgent(urgent, fail)
    try:
        with trio.fail_after(SECONDS_MAX), pytest.raises(ValueError, match="journal"):
            await readers.run()
        await trio.lowlevel.checkpoint()
    finally:
        readers.remove_urgent(urgent)
        os.close(urgent)


async def test_a_failure_of_a_call_that_has_cancelled_the_readers_is_reported(way):
    """As of a journal whose failure ends its broker."""
    readers, scope = Readers(), trio.CancelScope()
    urgent = os.eventfd(1, os.EFD_NONBLOCK)

    def fail():
        scope.cancel()
        raise ValueError("the journal is broken")

    readers.add_urgent(urgent, fail)
    try:
        with trio.fail_after(SECONDS_MAX), pytest.raises(ValueError, match="journal"), scope:
            await readers.run()
        await trio.lowlevel.checkpoint()
    finally:
        readers.remove_urgent(urgent)
        os.close(urgent)


async def test_several_readers_of_a_loop_are_all_served_in_whatever_order_they_end(way):
    async def run(readers, scope):
        with scope:
            await readers.run()

    alive = [(Readers(), trio.CancelScope()) for _ in range(3)]
    with trio.fail_after(SECONDS_MAX):
        async with trio.open_nursery() as nursery:
            for each in alive:
                nursery.start_soon(run, *each)
            for leaves in (0, 1, 0):
                for readers, _ in alive:
                    with counter(readers) as (descriptor, values):
                        os.eventfd_write(descriptor, 3)
                        await eventually(lambda values=values: values == [3])
                alive.pop(leaves)[1].cancel()


async def test_what_waits_for_another_call_is_called_without_anything_new(way):
    async with running() as (readers, _):
        with counter(readers) as (descriptor, values):
            os.eventfd_write(descriptor, 1)
            await eventually(lambda: values)
            os.eventfd_write(descriptor, 2)
            readers.call_soon(descriptor)
            await eventually(lambda: sum(values) == 3)
