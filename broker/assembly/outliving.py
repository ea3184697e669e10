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
    opened: list[trio.Nursery] = []
    has_opened, ended = trio.Event(), trio.Event()
    scope = trio.CancelScope(shield=True)

    async def run() -> None:
        try:
            with scope:
                async with trio.open_nursery() as nursery:
                    opened.append(nursery)
                    has_opened.set()
                    await trio.sleep_forever()
        finally:
            ended.set()

    # Not `parent.start`: a task that is shielded would not end if the start of it was cancelled.
    parent.start_soon(run)
    try:
        with trio.CancelScope(shield=True):
            await has_opened.wait()
        yield opened[0]
    finally:
        scope.cancel()
        with trio.CancelScope(shield=True):
            await ended.wait()
