"""Tasks that outlive the cancellation of their parent end with the block, however it ends."""

import subprocess
import sys

import pytest

from runtime.testing.conditions import SECONDS_MAX

PROGRAM = """
import sys
import trio
from broker.assembly.outliving import outliving

class CancelAtStep(trio.abc.Instrument):
    def __init__(self, scope, step):
        self.scope, self.left = scope, step

    def before_task_step(self, task):
        self.left -= 1
        if not self.left:
            self.scope.cancel()

async def main(step):
    async with trio.open_nursery() as parent:
        with trio.CancelScope() as starting:
            trio.lowlevel.add_instrument(CancelAtStep(starting, step))
            async with outliving(parent):
                while True:
                    await trio.lowlevel.checkpoint()

for step in range(1, 10):
    print(step, flush=True)
    trio.run(main, step)
"""


def test_a_start_that_is_cancelled_at_any_step_leaves_no_task():
    """In a process, because a task that nobody ends keeps its loop for ever."""
    try:
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=SECONDS_MAX
        )
    except subprocess.TimeoutExpired as late:
        pytest.fail(f"does not end when cancelled at step {late.stdout}")
    assert done.returncode == 0, done.stderr
