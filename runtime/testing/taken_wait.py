"""Readers have two ways: within the wait of trio's loop, or with a task. A test chooses the second
by taking the wait, as the other readers of a process do. To replace `wait_of_loop` would not do:
compiled code calls it directly."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import trio
import trio.testing

from runtime.readers import Readers

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@asynccontextmanager
async def wait_of_loop_is_taken() -> AsyncIterator[None]:
    """Readers that begin to run within it use tasks."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(Readers().run)
        await trio.testing.wait_all_tasks_blocked()
        yield
        nursery.cancel_scope.cancel()
