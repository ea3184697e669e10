"""Finds the steps that held up the event loop: a watchdog of its turns.

A turn is what the loop does between two waits for input. Everything that arrives in it waits for
its end, so a turn has a budget, and so has each of its parts: a step of a task, or a call of
`runtime.readers`. A part that exceeds its budget is a stall. It is counted by name, with the time
by the clock and, separately, the CPU time of the thread. On a busy machine the former alone would
blame the program for time in which the loop did not run, because it waited for a processor, for the
interpreter's lock, or for a disk.

Cost: the loop calls twice per turn and once more for each further task (0.3 us each); it reads the
CPU clock, a system call of 0.6 us, once in `CPU_READ_SECONDS` at most. The CPU time of a stall may
therefore contain up to that much of the part that ran just before. A thread that samples the stack
would have to wake up all the time, or would miss the first stall; and compiled functions have no
frames.

Names are those of the source: functions of tasks and calls, and names that their owners give
(`what_ran`). There are at most `NAMES_MAX`; all others count as `OTHER`.
"""

from __future__ import annotations

import gc
import time
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, final

import trio

from runtime.durations import Durations

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from contextlib import AbstractContextManager

CALLBACK_SECONDS_MAX: Final = 0.002
"""The budget of a step of a task, and of a call of a reader."""
TURN_SECONDS_MAX: Final = 0.005
CPU_READ_SECONDS: Final = 0.001
BOUNDS_SECONDS: Final = (
    0.003, 0.005, 0.007, 0.01, 0.015, 0.02, 0.03, 0.05, 0.07, 0.1, 0.2, 0.5, 1.0,
)  # fmt: skip
"""Buckets of the histograms."""
NAMES_MAX: Final = 40
OTHER: Final = "other"
CALLS: Final = "Readers.serve"
"""The name of a step of many short calls."""
SHORT_STEPS: Final = "many short steps"
"""The name of a turn in which every part kept to its budget."""
COLLECTION: Final = "garbage collection, generation {}"
"""The name of what took less time itself than collections within it, with the last one's."""

Kind = Literal["callback", "turn"]


class Stall(NamedTuple):
    """All stalls of one kind and name."""

    wall: Durations
    cpu: Durations


@final
class LoopWatchdog(trio.abc.Instrument):
    """The watchdog of one event loop, in whose thread all of it is called."""

    def __init__(
        self,
        now: Callable[[], float] = time.monotonic,
        cpu_now: Callable[[], float] = time.thread_time,
    ) -> None:
        """`now`, `cpu_now`: in seconds; the latter of the thread of the loop."""
        self._now = now
        self._cpu_now = cpu_now
        self._stalls: dict[tuple[Kind, str], Stall] = {}
        self._names: set[str] = set()
        self._turn_begun = self._part_begun = self._cpu_read_at = now()
        self._cpu = self._turn_cpu = cpu_now()
        self._told = 0.0
        """Seconds of this step whose name is known already."""
        self._longest = 0.0
        self._longest_name = ""
        self._longest_of = 0.0
        """The part that exceeded its budget most, of the turn that began then."""
        self._collected = 0.0
        self._collected_of = 0.0
        """Seconds of collections in the step that began then."""
        self._collection_begun = 0.0
        self._generation = 0
        """The generation of the last collection."""

    def stalls(self) -> Mapping[tuple[Kind, str], Stall]:
        """By kind and name, since the start."""
        return self._stalls

    # --- the loop -----------------------------------------------------------------------

    def after_io_wait(self, timeout: float) -> None:
        """A turn of trio begins. The one before has ended with its last step."""
        del timeout
        now = self._now()
        self._read_cpu(now)
        self.calls_begin(now)

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        """A step has ended; the next one begins."""
        now = self._now()
        if now - self._part_begun > CALLBACK_SECONDS_MAX:
            self._step_ended(task_name(task.name), now)
        self._part_begun = now

    def calls_begin(self, now: float) -> None:
        """A turn begins at this time, of calls of the readers within the wait of the loop."""
        if self._part_begun - self._turn_begun > TURN_SECONDS_MAX:
            self._turn_ended(self._part_begun - self._turn_begun)
        self._turn_begun = self._part_begun = now
        self._turn_cpu = self._cpu

    def calls_end(self, now: float) -> None:
        """Such a turn has ended. Not needed for one that leaves all of them since the last time
        within CPU_READ_SECONDS."""
        if now - self._part_begun > CALLBACK_SECONDS_MAX:
            self._step_ended(CALLS, now)
        self._part_begun = now
        self._read_cpu(now)

    def _read_cpu(self, now: float) -> None:
        if now - self._cpu_read_at > CPU_READ_SECONDS:
            self._cpu = self._cpu_now()
            self._cpu_read_at = now

    def _step_ended(self, name: str, now: float) -> None:
        """A long one. Calls within it have been reported."""
        took = now - self._part_begun - self._told
        self._told = 0.0
        if took > CALLBACK_SECONDS_MAX:
            self._part_ended(name, took)

    def called(self, call: Callable[..., object], seconds: float) -> None:
        """A call within this step, which has just ended, took longer than its budget."""
        self._told += seconds
        self._part_ended(callback_name(call), seconds)

    def on_collection(self, phase: str, info: Mapping[str, Any]) -> None:
        """For `gc.callbacks`. A collection stops the loop in whatever thread it runs."""
        if phase == "start":
            self._collection_begun = self._now()
            if self._collected_of != self._part_begun:
                self._collected_of, self._collected = self._part_begun, 0.0
        else:
            self._collected += self._now() - self._collection_begun
            self._generation = info["generation"]

    # --- counting -----------------------------------------------------------------------

    def _part_ended(self, name: str, seconds: float) -> None:
        if self._collected_of == self._part_begun and self._collected > seconds / 2:
            name = COLLECTION.format(self._generation)
        self._collected = 0.0
        before, self._cpu = self._cpu, self._cpu_now()
        self._cpu_read_at = self._now()
        self._count("callback", name, seconds, self._cpu - before)
        if self._longest_of != self._turn_begun or seconds > self._longest:
            self._longest, self._longest_name = seconds, name
            self._longest_of = self._turn_begun

    def _turn_ended(self, seconds: float) -> None:
        self._cpu = self._cpu_now()
        self._cpu_read_at = self._now()
        name = self._longest_name if self._longest_of == self._turn_begun else SHORT_STEPS
        self._count("turn", name, seconds, self._cpu - self._turn_cpu)

    def _count(self, kind: Kind, name: str, wall: float, cpu: float) -> None:
        if name not in self._names:
            if len(self._names) >= NAMES_MAX:
                name = OTHER
            else:
                self._names.add(name)
        stall = self._stalls.get((kind, name))
        if stall is None:
            stall = Stall(Durations(BOUNDS_SECONDS), Durations(BOUNDS_SECONDS))
            self._stalls[kind, name] = stall
        stall.wall.add(wall)
        stall.cpu.add(min(cpu, wall))


def task_name(name: str) -> str:
    """The function that a task runs, without its package. Trio knows compiled methods only by a
    description, which ends with the address of the object."""
    described = name.partition(" of ")[0].partition(" at 0x")[0]
    if described != name:
        name = described.split(" ")[-1]
    return ".".join(name.rsplit(".", 2)[-2:])


def callback_name(call: Callable[..., object]) -> str:
    """The name that its owner gives its work (`what_ran`), or the qualified name of the
    function."""
    while isinstance(call, partial):
        call = call.func
    owner = getattr(call, "__self__", None)
    what_ran = getattr(owner, "what_ran", None)
    if what_ran is not None:
        return str(what_ran())
    name = str(getattr(call, "__name__", type(call).__name__))
    return name if owner is None else f"{type(owner).__name__}.{name}"


_of_loop: trio.lowlevel.RunVar[LoopWatchdog | None] = trio.lowlevel.RunVar("watchdog", None)


def watchdog_of_loop() -> LoopWatchdog | None:
    """The watchdog of the running loop; None: there is none."""
    return _of_loop.get()


@contextmanager
def watching(watchdog: LoopWatchdog) -> Iterator[None]:
    """Watch the running loop. Readers that are made within report their calls."""
    token = _of_loop.set(watchdog)
    trio.lowlevel.add_instrument(watchdog)
    gc.callbacks.append(watchdog.on_collection)
    try:
        yield
    finally:
        gc.callbacks.remove(watchdog.on_collection)
        trio.lowlevel.remove_instrument(watchdog)
        _of_loop.reset(token)


def watching_if(is_wanted: bool) -> AbstractContextManager[None]:
    """Watch the running loop, or do nothing."""
    return watching(LoopWatchdog()) if is_wanted else nullcontext()
