"""Tasks that are needed to end in order after storage has failed."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import trio

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@asynccontextmanager
async def outliving(parent: trio.Nursery) -> AsyncIterator[trio.Nursery]:
    """A nursery whose tasks end with the block, and are not cancelled before that with `parent`.

    The failure of the bookie or of the metadata store cancels `parent`. Topics are closed after
    that, which takes tasks of theirs and of the managed ledgers. An error of one of the tasks is an
    error of `parent`.
    """
    ended = trio.Event()

    async def run(task_status: trio.TaskStatus[trio.Nursery]) -> None:
        try:
            async with trio.open_nursery() as nursery:
                nursery.cancel_scope.shield = True
                task_status.started(nursery)
                await trio.sleep_forever()
        finally:
            ended.set()

    nursery: trio.Nursery = await parent.start(run)
    try:
        yield nursery
    finally:
        nursery.cancel_scope.cancel()
        with trio.CancelScope(shield=True):
            await ended.wait()
