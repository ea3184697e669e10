"""A parent process for tests of supervision: prints the ids of its children, and waits."""

from __future__ import annotations

import os

import trio

from runtime.command_line import log_to_stderr
from runtime.line_writer import LineWriter
from runtime.supervision import Child, ChildPlan, life_line


async def _nothing(_process_id: int) -> None:
    await trio.lowlevel.checkpoint()


async def main() -> None:
    """Two children until the end of this process."""
    lines = LineWriter()
    with life_line() as life:
        async with trio.open_nursery() as nursery:
            for number in range(2):
                plan = ChildPlan(
                    name=f"child-{number}",
                    module="runtime.testing.sample_child",
                    arguments=(),
                    environment=lambda _ready: os.environ,
                    ready_text="sample ready:",
                    stop_seconds_max=10.0,
                )
                child = Child(plan, life, _nothing, lines.write)
                await nursery.start(child.run)
                print(child.process_id, flush=True)


if __name__ == "__main__":
    log_to_stderr("info")
    trio.run(main)
