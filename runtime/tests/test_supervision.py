"""Children are watched, started again, stopped in order, and end with their parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import trio

from runtime.restarts import RestartRules
from runtime.supervision import Child, ChildFailed, ChildPlan, life_line

WAIT_SECONDS_MAX = 60.0
TREE = Path(__file__).resolve().parent.parent.parent


def plan(*arguments, stop_seconds_max=60.0, first_delay_seconds=0.5):
    return ChildPlan(
        name="sample-1",
        module="runtime.testing.sample_child",
        arguments=arguments,
        environment=lambda _ready: os.environ | {"PYTHONPATH": str(TREE)},
        ready_text="sample ready:",
        stop_seconds_max=stop_seconds_max,
        rules=RestartRules(first_delay_seconds=first_delay_seconds, delay_seconds_max=600.0),
    )


class Family:
    """A child, what it said, and the ids of its processes that ended."""

    def __init__(self, life, *arguments, **changes):
        self.said = []
        self.ended = []
        self.child = Child(plan(*arguments, **changes), life, self._note_end, self.said.append)

    async def _note_end(self, process_id):
        self.ended.append(process_id)
        await trio.lowlevel.checkpoint()


@pytest.fixture
def life():
    with life_line() as descriptor:
        yield descriptor


async def until(condition):
    with trio.fail_after(WAIT_SECONDS_MAX):
        while not condition():  # noqa: ASYNC110 - the condition is another process's
            await trio.sleep(0.01)


def is_alive(process_id):
    try:
        state = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


async def test_a_child_is_ready_when_it_says_so_and_its_lines_bear_its_name(life, nursery):
    family = Family(life)
    await nursery.start(family.child.run)
    assert family.child.ready_line == "here"
    assert family.child.is_ready
    await family.child.stop()
    assert not family.child.is_ready
    assert sorted(family.said) == ["sample-1 | ended in order", "sample-1 | on stderr"]


async def test_a_killed_child_is_started_again_after_its_end_was_told(life, nursery):
    family = Family(life)
    await nursery.start(family.child.run)
    first = family.child.process_id
    os.kill(first, signal.SIGKILL)
    await until(lambda: family.child.restarts == 1 and family.child.is_ready)
    assert family.ended == [first]
    assert family.child.process_id not in (0, first)
    await family.child.stop()


async def test_a_child_that_refuses_at_the_first_start_is_an_error_with_its_reason(life):
    family = Family(life, "refuse")
    with pytest.RaisesGroup(ChildFailed) as failed:
        async with trio.open_nursery() as nursery:
            await nursery.start(family.child.run)
    assert str(failed.value.exceptions[0]) == "sample-1 did not start: the port is taken"


async def test_a_child_that_does_not_stop_is_killed(life, nursery):
    family = Family(life, "deaf", stop_seconds_max=0.2)
    await nursery.start(family.child.run)
    process_id = family.child.process_id
    await family.child.stop()
    assert not is_alive(process_id)
    assert family.child.restarts == 0


async def test_a_child_that_waits_to_be_started_again_can_be_stopped(life, nursery):
    family = Family(life, first_delay_seconds=600.0)
    await nursery.start(family.child.run)
    for count in (1, 2):
        os.kill(family.child.process_id, signal.SIGKILL)
        await until(lambda count=count: family.child.restarts == count)
        if count == 1:
            await until(lambda: family.child.is_ready)
    assert family.child.process_id == 0
    with trio.fail_after(WAIT_SECONDS_MAX):
        await family.child.stop()


async def test_a_cancelled_parent_leaves_no_child(life):
    family = Family(life)
    async with trio.open_nursery() as nursery:
        await nursery.start(family.child.run)
        process_id = family.child.process_id
        nursery.cancel_scope.cancel()
    assert not is_alive(process_id)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
async def test_children_end_with_a_parent_that_is_killed(number):
    parent = subprocess.Popen(  # noqa: ASYNC220 - a short start
        [sys.executable, "-m", "runtime.testing.sample_parent"],
        cwd=TREE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    try:
        children = [int(await trio.to_thread.run_sync(parent.stdout.readline)) for _ in range(2)]
        assert all(map(is_alive, children))
    finally:
        parent.send_signal(number)
        await trio.to_thread.run_sync(parent.wait)
        parent.stdout.close()
    await until(lambda: not any(map(is_alive, children)))


async def test_children_end_with_the_life_line_alone(life):
    """As where the kernel has no rule for it."""
    reading, writing = os.pipe()
    script = "import os, runtime.child as c, time; c.ctypes.CDLL = lambda _: c; c.prctl = print; "
    script += f"c.end_with_parent({reading}); print('waits', flush=True); time.sleep(60)"
    process = subprocess.Popen(  # noqa: ASYNC220 - a short start
        [sys.executable, "-c", script], cwd=TREE, pass_fds=(reading,), stdout=subprocess.PIPE
    )
    try:
        await trio.to_thread.run_sync(process.stdout.readline)
        os.close(writing)
        with trio.fail_after(WAIT_SECONDS_MAX):
            code = await trio.to_thread.run_sync(process.wait)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        os.close(reading)
    assert code == -signal.SIGKILL
