"""The processes of the load generator: starts them, sends orders, collects results."""

from __future__ import annotations

import multiprocessing
from typing import TYPE_CHECKING, Final, final

from cli.perf.worker import COUNTERS, WorkerPlan, WorkerResult
from cli.perf.worker import main as worker_main

if TYPE_CHECKING:
    from collections.abc import Sequence
    from multiprocessing.connection import Connection

READY_SECONDS_MAX: Final = 120.0


class RunFailed(Exception):
    """The run failed. The text says why and what to do."""


@final
class Processes:
    """The load generator's processes, as one."""

    def __init__(self, work: Sequence[WorkerPlan]) -> None:
        context = multiprocessing.get_context("spawn")
        self._counters = context.RawArray("q", COUNTERS * len(work))
        self._count = len(work)
        self._pipes: list[Connection] = []
        self._processes = []
        for number, plan in enumerate(work):
            ours, theirs = context.Pipe()
            process = context.Process(
                target=worker_main,
                args=(plan, self._counters, COUNTERS * number, theirs),
                daemon=True,
            )
            process.start()
            theirs.close()
            self._pipes.append(ours)
            self._processes.append(process)

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, *_: object) -> None:
        for pipe in self._pipes:
            pipe.close()
        for process in self._processes:
            process.join(5.0)
            if process.is_alive():
                process.kill()
                process.join()

    def wait_ready(self) -> None:
        """Raises: RunFailed."""
        for pipe in self._pipes:
            self._wait_for(pipe)
            pipe.recv()

    def tell(self, order: str) -> None:
        """Send an order to all of them."""
        for pipe in self._pipes:
            pipe.send(order)

    def stop(self, published: int) -> list[WorkerResult]:
        """End them. Returns their results.

        Raises: RunFailed.
        """
        self.tell("stop")
        for pipe in self._pipes:
            pipe.send(published)
        results = []
        for pipe in self._pipes:
            self._wait_for(pipe)
            result = pipe.recv()
            assert isinstance(result, WorkerResult)
            results.append(result)
        return results

    def total(self, counter: int) -> int:
        """The sum over all processes. Raises: RunFailed: one of them has ended."""
        for process in self._processes:
            if not process.is_alive():
                raise RunFailed(
                    f"a process of the load generator ended with status {process.exitcode};"
                    " what it printed says why"
                )
        return sum(self._counters[COUNTERS * each + counter] for each in range(self._count))

    def _wait_for(self, pipe: Connection) -> None:
        if not pipe.poll(READY_SECONDS_MAX):
            raise RunFailed("a process of the load generator does not answer")
