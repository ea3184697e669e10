"""A parent that starts child processes, watches them, starts them again and stops them.

A child is a Python module run as a program by `runtime.child`, so it ends with the parent. It is
ready when it prints a line that begins with its ready text. Its other lines are passed on, each
after the child's name (`runtime.line_writer` writes them to stderr). It is in a session of its
own: Ctrl-C in a terminal reaches the parent only, which stops its children in order.

Start children from the main thread: the kernel takes the end of the thread that started a child for
the end of its parent.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, final

import structlog
import trio

from runtime.restarts import RestartRules, Restarts

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence

log = structlog.get_logger()

LINE_BYTES_MAX: Final = 16_384
"""Longer lines of a child are divided."""
_CHUNK_BYTES: Final = 65_536
_LAST_LINES: Final = "vela: "
"""How a refusal begins."""


class ChildFailed(Exception):
    """A child ended before it was ready for the first time. The text is one line for the user."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ChildPlan:
    """The plan of a child."""

    name: str
    module: str
    arguments: Sequence[str]
    environment: Callable[[str], Mapping[str, str]]
    """The environment of a process to be started, given the ready line of the one before it; empty:
    it is the first."""
    ready_text: str
    stop_seconds_max: float
    """A child that has not ended so long after SIGTERM is killed."""
    rules: RestartRules = field(default_factory=RestartRules)


@contextmanager
def life_line() -> Iterator[int]:
    """The descriptor that children wait on: it ends when this process does, or the block."""
    reading, writing = os.pipe()
    try:
        yield reading
    finally:
        os.close(reading)
        os.close(writing)


@final
class Child:
    """One child process, and those that replace it. Run it with `nursery.start(run)`; `stop` ends
    it in order. If `run` is cancelled, the process is killed."""

    def __init__(
        self,
        plan: ChildPlan,
        life: int,
        on_end: Callable[[int], Awaitable[None]],
        write: Callable[[str], None],
    ) -> None:
        """`on_end` is called with the id of each process that has ended, before the next one is
        started. `write` takes one or several lines without the last line's end. It is called in
        the event loop and must not wait."""
        self.plan = plan
        self._life = life
        self._on_end = on_end
        self._write = write
        self._process: subprocess.Popen[bytes] | None = None
        self._is_running = False
        self._is_stopping = False
        self._stopping = trio.Event()
        self._ended = trio.Event()
        self._refusal = ""
        self.ready_line = ""
        """The rest of the child's last ready line, after the ready text; empty: not yet."""
        self.is_ready = False
        """Whether the process that runs now is ready."""
        self.restarts = 0
        """How often it was started again."""

    @property
    def process_id(self) -> int:
        """0: there is none."""
        return 0 if self._process is None else self._process.pid

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Keep the child running until `stop`. Started when it is ready for the first time.

        Raises: ChildFailed.
        """
        restarts = Restarts(self.plan.rules, trio.current_time())
        self._is_running = True
        try:
            while not self._is_stopping:
                restarts.started(trio.current_time())
                code = await self._run_once(task_status)
                if self._is_stopping:
                    return
                if not self.ready_line:
                    raise ChildFailed(
                        f"{self.plan.name} did not start: {self._refusal or _how(code)}"
                    )
                delay = restarts.ended(trio.current_time())
                self.restarts = restarts.count
                log.error(
                    "a child has ended, it is started again",
                    child=self.plan.name,
                    ended=_how(code),
                    in_seconds=delay,
                )
                with trio.move_on_after(delay):
                    await self._stopping.wait()
        finally:
            self._is_running = False
            self._ended.set()

    async def stop(self) -> None:
        """SIGTERM, SIGKILL if that takes too long; return when the process is gone."""
        self._is_stopping = True
        self._stopping.set()
        if not self._is_running:
            return
        process = self._process
        if process is not None:
            process.send_signal(signal.SIGTERM)
        with trio.move_on_after(self.plan.stop_seconds_max) as scope:
            await self._ended.wait()
        process = self._process
        if scope.cancelled_caught and process is not None:
            log.error(
                "a child did not stop in time, it is killed",
                child=self.plan.name,
                seconds=self.plan.stop_seconds_max,
            )
            process.kill()
            await self._ended.wait()

    async def _run_once(self, task_status: trio.TaskStatus[None]) -> int:
        """Returns the exit code of the process; negative: the signal that ended it."""
        plan = self.plan
        process = subprocess.Popen(  # noqa: ASYNC220 - not in a thread, see the module docstring
            [sys.executable, "-m", "runtime.child", str(self._life), plan.module, *plan.arguments],
            env=dict(plan.environment(self.ready_line)),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=(self._life,),
            start_new_session=True,
        )
        self._process = process
        log.info("a child is started", child=plan.name, process=process.pid)
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._follow_output, process.stdout.fileno(), task_status)
                nursery.start_soon(self._follow_output, process.stderr.fileno(), None)
                await _wait_for_end(process.pid)
                # Processes that the child left behind may keep the pipes open.
                nursery.cancel_scope.deadline = trio.current_time() + 1.0
        finally:
            if process.poll() is None:
                process.kill()
            code = process.wait()  # at once: it is dead
            self._process = None
            self.is_ready = False
            process.stdout.close()
            process.stderr.close()
        with trio.CancelScope(shield=True):
            await self._on_end(process.pid)
        return code

    async def _follow_output(
        self, descriptor: int, task_status: trio.TaskStatus[None] | None
    ) -> None:
        """Pass lines on. `task_status`: this is where the ready line comes."""
        rest = b""
        async with trio.lowlevel.FdStream(os.dup(descriptor)) as stream:
            async for chunk in stream:
                *lines, rest = (rest + chunk).split(b"\n")
                if len(rest) > LINE_BYTES_MAX:
                    lines, rest = [*lines, rest], b""
                self._take_lines(lines, task_status)
        if rest:
            self._take_lines([rest], task_status)

    def _take_lines(self, lines: list[bytes], task_status: trio.TaskStatus[None] | None) -> None:
        """Pass lines on together: a child may log thousands of them per second."""
        passed_on: list[str] = []
        for each in lines:
            line = each.decode(errors="replace")
            if task_status is not None and line.startswith(self.plan.ready_text):
                self._become_ready(line, task_status)
                continue
            if line.startswith(_LAST_LINES):
                self._refusal = line.removeprefix(_LAST_LINES)
            passed_on.append(f"{self.plan.name} | {line}")
        if passed_on:
            self._write("\n".join(passed_on))

    def _become_ready(self, line: str, task_status: trio.TaskStatus[None]) -> None:
        is_first = not self.ready_line
        self.ready_line = line.removeprefix(self.plan.ready_text).strip()
        self.is_ready = True
        if is_first:
            task_status.started()
        else:
            log.info("a child is ready again", child=self.plan.name)


async def _wait_for_end(process_id: int) -> None:
    descriptor = os.pidfd_open(process_id)
    try:
        await trio.lowlevel.wait_readable(descriptor)
    finally:
        os.close(descriptor)


def _how(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    return f"signal {signal.Signals(-code).name}"
