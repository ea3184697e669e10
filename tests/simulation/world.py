"""Runs a scenario so that its seed decides everything: order of tasks, time, threads, chance.

- The clock is virtual and jumps when nothing can run.
- trio draws the order of ready tasks from a seeded source.
- What production code gives to a thread is done in the event loop after a drawn time. A journal's
  thread writes one group after the other in this way.
- Tasks of a process that is paused are held back, whatever they wait for. Its clocks go on.
- Sources of chance and time in the standard library are replaced for the run.

Python's hash seed must be fixed, and modules must not be compiled: `check_environment`.
"""

from __future__ import annotations

import gc
import os
import random
import sys
import time
from collections import deque
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from queue import Empty

import outcome
import structlog
import trio
from trio._core import _run
from trio.testing import MockClock

import bookie.journal
from bookie.errors import StorageError
from tests.simulation.network import Events, on_grid

WALL_MS_AT_START = 1_700_000_000_000

is_process_alive = ContextVar("is_process_alive")
"""Asked by the journals of the bookie that is being opened before each write."""
current_host = ContextVar("current_host", default=None)
"""The host whose process a task belongs to."""


def check_environment():
    """Raises: RuntimeError: a seed would not decide everything."""
    if os.environ.get("PYTHONHASHSEED") != "0":
        raise RuntimeError("a simulation needs PYTHONHASHSEED=0")
    if not bookie.journal.__file__.endswith(".py"):
        raise RuntimeError("a simulation needs modules that are not compiled")


def _jumping(events):
    """`MockClock._autojump`, called when no task can run: on to the next event or deadline."""

    def jump(clock):
        runner = _run.GLOBAL_RUN_CONTEXT.runner
        deadline = runner.deadlines.next_deadline()
        while not (runner.runq or runner.entry_queue.queue):
            when = min(deadline, events.next_at)
            if when == float("inf"):
                raise RuntimeError("no task can ever run again")
            clock._virtual_base = max(clock._virtual_base, when)
            events.happen(clock._virtual_base)
            if when == deadline:
                return

    return jump


def _current_time(clock):
    """`MockClock.current_time` of a clock that only jumps."""
    return clock._virtual_base


def _reschedule(runner, task, next_send=_run._NO_SEND):
    """`Runner.reschedule` that holds the tasks of a paused process back."""
    task._next_send_fn = task.coro.send
    task._next_send = outcome.Value(None) if next_send is _run._NO_SEND else next_send
    task._abort_func = None
    task.custom_sleep_data = None
    host = task.context.get(current_host)
    if host is not None and host.is_paused:
        host.held.append(task)
    else:
        runner.runq.append(task)


def _spawning(spawn_impl):
    """`Runner.spawn_impl` that makes a task part of the process that its nursery belongs to,
    whoever starts it: threads do, and the other ends of connections."""

    def spawn(runner, async_fn, args, nursery, name, *, system_task=False, context=None):
        if nursery is not None and context is None and not system_task:
            context = copy_context()
            context.run(current_host.set, nursery.parent_task.context.get(current_host))
        return spawn_impl(
            runner, async_fn, args, nursery, name, system_task=system_task, context=context
        )

    return spawn


class _Order(random.Random):
    """Where trio draws the order of ready tasks from."""

    def shuffle(self, tasks):
        """As the original does, at less cost for the few tasks of most batches."""
        draw = self.random
        for last in range(len(tasks) - 1, 0, -1):
            other = int(draw() * (last + 1))
            tasks[last], tasks[other] = tasks[other], tasks[last]


def put_back(tasks):
    """Let tasks that were held back run."""
    _run.GLOBAL_RUN_CONTEXT.runner.runq.extend(tasks)


class _Wakeup:
    """In place of the pair of sockets by which threads wake up the event loop. There are none."""

    def __init__(self):
        self._woken = trio.lowlevel.ParkingLot()
        self._is_woken = False

    def wakeup_thread_and_signal_safe(self):
        self._is_woken = True
        self._woken.unpark()

    async def wait_woken(self):
        while not self._is_woken:
            await self._woken.park()
        self._is_woken = False

    def drain(self):
        self._is_woken = False

    def wakeup_on_signals(self):
        """Ctrl-C ends the program at once."""

    def close(self):
        """Nothing is open."""


def _run_loop(scenario, world):
    """`trio.run(scenario, world)` without asking the kernel what has happened: nothing does."""
    runner = _run.setup_runner(MockClock(autojump_threshold=0), (), False, True)
    runner.entry_queue.wakeup.close()
    runner.entry_queue.wakeup = _Wakeup()
    runner.instruments = {}  # it is asked several times per step of a task
    steps = _run.unrolled_run(runner, scenario, (world,))
    steps.send(None)
    try:
        while True:
            steps.send(())
    except StopIteration:
        return runner.main_task_outcome.unwrap()


class SimClock:
    """The clock of one process. The monotonic one is that of all; the other one may be wrong."""

    def __init__(self):
        self.wrong_by_ms = 0

    def now(self):
        """Seconds."""
        return trio.current_time()

    def wall_ms(self):
        """Milliseconds since 1970."""
        return WALL_MS_AT_START + int(trio.current_time() * 1000) + self.wrong_by_ms


# --- threads ----------------------------------------------------------------------------------


class _Threads:
    """In place of trio's worker threads."""

    def __init__(self, rng):
        self._rng = rng
        self._default = None

    async def run_sync(self, call, *arguments, limiter=None, **_options):
        """See `trio.to_thread.run_sync`."""
        await trio.lowlevel.checkpoint_if_cancelled()
        if limiter is None:
            limiter = self._default = self._default or trio.CapacityLimiter(40)
        borrower = object()
        await limiter.acquire_on_behalf_of(borrower)
        try:
            with trio.CancelScope(shield=True):
                if self._rng.random() < 0.1:
                    delay = self._rng.choice((0.0, 0.004, 0.02))
                    await trio.sleep_until(on_grid(trio.current_time() + delay))
                else:
                    await trio.lowlevel.checkpoint()
            return call(*arguments)
        finally:
            limiter.release_on_behalf_of(borrower)


class _Queue:
    """`queue.SimpleQueue` between the event loop and the worker of a journal."""

    def __init__(self):
        self.items = deque()
        self.filled = None
        """Called after something was put into it."""

    def put(self, item):
        self.items.append(item)
        if self.filled is not None:
            self.filled()

    def get(self):
        return self.items.popleft()

    def get_nowait(self):
        if not self.items:
            raise Empty
        return self.items.popleft()


class _JournalThreads:
    """In place of the `threading` module of `bookie.journal`."""

    def __init__(self, rng, events):
        self._rng = rng
        self._events = events

    def Thread(self, *, target, name, daemon):
        del name, daemon
        return _JournalWorker(
            target.__self__, is_process_alive.get(), current_host.get(), self._rng, self._events
        )


class _JournalWorker:
    """The thread of a journal: one event for each group it writes."""

    def __init__(self, journal, is_alive, host, rng, events):
        self._journal = journal
        self._queue = journal._handed
        self._is_alive = is_alive
        self._host = host
        self._rng = rng
        self._events = events
        self._is_over = False
        self._is_busy = False

    def start(self):
        self._queue.filled = self._begin
        self._begin()

    def _begin(self):
        if self._queue.items and not self._is_busy and not self._is_over:
            self._is_busy = True
            delay = 0.0 if self._rng.random() < 0.95 else self._rng.uniform(0.001, 0.05)
            self._events.at(on_grid(trio.current_time() + delay), self._written)

    def _written(self):
        if self._host.is_paused:
            self._host.after_pause(self._written)
            return
        self._is_busy = False
        if not self._is_alive():
            self._is_over = True  # what is left in the queue is written by nobody
            return
        if self._queue.items:
            self._step()
        self._begin()

    def _step(self):
        """What `Journal._run` does in one round."""
        journal = self._journal
        if self._is_over:
            return
        try:
            if journal._run_group():
                return
            if journal._writer is not None:
                journal._writer.close()
        except StorageError as error:
            journal._failed(error)
        self._is_over = True

    def join(self):
        """Finish now."""
        while not self._is_over and self._queue.items:
            self._step()


# --- the run ----------------------------------------------------------------------------------


class LogLines:
    """The log of a run: what tells of a programming error is kept, and with `is_traced` all."""

    FAULTS = (
        AssertionError,
        AttributeError,
        LookupError,
        NameError,
        RecursionError,
        TypeError,
        ValueError,
        ZeroDivisionError,
    )

    def __init__(self, *, is_traced):
        self.is_traced = is_traced
        self.faults = []
        self.on_line = lambda _event: None
        """Called with what each line says first."""

    def __call__(self, _logger, method, event):
        self.on_line(event.get("event"))
        error = event.get("exc_info")
        if error is True:
            error = sys.exc_info()[1]
        if isinstance(error, BaseException):
            for each in leaves(error):
                if isinstance(each, self.FAULTS) or type(each) is Exception:
                    self.faults.append((event.get("event"), each))
            event["exc_info"] = repr(error)
        if self.is_traced:
            text = " ".join(f"{key}={value!r}" for key, value in event.items() if key != "event")
            trace(f"{method}: {event.get('event')} {text}"[:400])
        raise structlog.DropEvent


def leaves(error):
    """The errors in groups of errors."""
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from leaves(each)
    else:
        yield error


_tracing = []


def trace(text):
    """Print a line with the time, if the run is traced."""
    if _tracing:
        try:
            now = f"{trio.current_time():9.4f}"
        except RuntimeError:
            now = "        -"
        print(now, text, file=_tracing[0], flush=True)


@contextmanager
def _replaced(*replacements):
    before = [(owner, name, getattr(owner, name)) for owner, name, _value in replacements]
    for owner, name, value in replacements:
        setattr(owner, name, value)
    try:
        yield
    finally:
        for owner, name, value in before:
            setattr(owner, name, value)


def run(scenario, seed, *, trace_to=None):
    """`await scenario(world)` in a world of its own. Returns what it returns."""
    check_environment()
    world = World(seed, is_traced=trace_to is not None)
    _tracing[:] = [trace_to] if trace_to is not None else []
    order = _Order(f"order {seed}")
    was_collecting = gc.isenabled()
    gc.collect()
    gc.disable()
    logging_before = structlog.get_config()
    structlog.configure(processors=[world.log], cache_logger_on_first_use=False)

    def virtual():
        try:
            return trio.current_time()
        except RuntimeError:
            return 0.0

    try:
        with _replaced(
            (_run, "_ALLOW_DETERMINISTIC_SCHEDULING", True),
            (_run, "_r", order),
            (_run.Runner, "reschedule", _reschedule),
            (_run.Runner, "spawn_impl", _spawning(_run.Runner.spawn_impl)),
            (MockClock, "_autojump", _jumping(world.events)),
            (MockClock, "current_time", _current_time),
            (trio.to_thread, "run_sync", world.threads.run_sync),
            (bookie.journal, "threading", world.journal_threads),
            (bookie.journal, "SimpleQueue", _Queue),
            (time, "monotonic", virtual),
            (time, "time_ns", lambda: WALL_MS_AT_START * 1_000_000 + int(virtual() * 1e9)),
            (os, "urandom", random.Random(f"urandom {seed}").randbytes),
        ):
            random.seed(seed)
            return _run_loop(scenario, world)
    finally:
        structlog.configure(**logging_before)
        if was_collecting:
            gc.enable()


class World:
    """What the parts of one run share."""

    def __init__(self, seed, *, is_traced):
        self.seed = seed
        self.log = LogLines(is_traced=is_traced)
        self.events = Events()
        self.threads = _Threads(self.chance("threads"))
        self.journal_threads = _JournalThreads(self.chance("journals"), self.events)

    def chance(self, purpose):
        """A source of chance of its own for a purpose."""
        return random.Random(f"{self.seed} {purpose}")
