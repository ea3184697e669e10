"""A whole cluster in the place of one server: ZooKeeper, bookies, and a broker that clients use.

Scenarios were written for one process. Here `stop` ends the broker alone, as an upgrade of it does;
`kill` ends the broker and all bookies at once, so that everything acknowledged must come from their
journals. ZooKeeper goes on: its sessions outlive the processes, and who starts again has to get
past them. `start` starts whatever does not run.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from compat_tests.oracle.server_process import (
    START_TIMEOUT_SECONDS,
    ServerFailed,
    ServerProcess,
)

if TYPE_CHECKING:
    import signal
    from collections.abc import Callable, Sequence
    from pathlib import Path

    import psutil


class ClusterServer(ServerProcess):
    """Ready when its broker is, and a client can use it, as for a server that is one process."""

    name = "cluster"

    def __init__(
        self,
        directory: Path,
        zookeeper: ServerProcess,
        bookies: Sequence[ServerProcess],
        broker: ServerProcess,
        initialise: Callable[[], None],
    ) -> None:
        """`initialise`: makes the metadata of the cluster, once, when ZooKeeper has started."""
        super().__init__(directory, broker.broker_port, broker.web_port)
        self.zookeeper = zookeeper
        self.bookies = tuple(bookies)
        self.broker = broker
        self._initialise = initialise
        self._is_initialised = False

    @property
    def parts(self) -> list[ServerProcess]:
        """Each process, in the order of their starts."""
        return [self.zookeeper, *self.bookies, self.broker]

    @property
    def pid(self) -> int:
        """Of the broker."""
        return self.broker.pid

    def command(self) -> list[str]:
        return self.broker.command()

    def environment(self) -> dict[str, str]:
        return self.broker.environment()

    def working_directory(self) -> Path:
        return self.broker.working_directory()

    def is_running(self) -> bool:
        """Whether all processes are there."""
        return all(part.is_running() for part in self.parts)

    def how_it_ended(self) -> str | None:
        """The report on the first part that ended by itself."""
        return next(filter(None, (part.how_it_ended() for part in self.parts)), None)

    def start(self) -> None:
        """Start the parts that do not run, and wait until a client can use the cluster.

        Raises: ServerFailed: one ended or was not ready in time, at its last attempt.
        """
        begun = time.monotonic()
        try:
            _start(self.zookeeper)
            if not self._is_initialised:
                self._initialise()
                self._is_initialised = True
            with ThreadPoolExecutor(len(self.bookies)) as pool:
                for started in [pool.submit(_start, bookie) for bookie in self.bookies]:
                    started.result()
            _start(self.broker)
            while not self.is_ready():
                ended = self.how_it_ended()
                if ended is not None:
                    raise ServerFailed(f"{ended} at start:\n{self.log_tail()}")
                if time.monotonic() - begun > START_TIMEOUT_SECONDS:
                    raise ServerFailed(f"the cluster was not ready in time:\n{self.log_tail()}")
                time.sleep(0.05)
        except BaseException:
            self.kill()
            raise
        self.ready_after_seconds = time.monotonic() - begun

    def stop(self) -> int | None:
        """SIGTERM to the broker; its exit code."""
        return self.broker.stop()

    def kill(self) -> None:
        """kill -9 of the broker and of every bookie."""
        for part in (self.broker, *self.bookies):
            part.kill()

    def close(self) -> None:
        for part in reversed(self.parts):
            part.kill()

    def log_of_start(self) -> str:
        """What the broker has printed since it was started."""
        return self.broker.log_of_start()

    def log_tail(self, size_bytes: int = 3000) -> str:
        """The end of what each part printed."""
        return "\n".join(f"{part.name}:\n{part.log_tail(size_bytes)}" for part in self.parts)

    def _signal(self, number: signal.Signals) -> None:
        for part in self.parts:
            part._signal(number)

    def _processes(self) -> list[psutil.Process]:
        return [process for part in self.parts for process in part._processes()]


def _start(part: ServerProcess) -> None:
    if not part.is_running():
        part.kill()  # reap it, if it ended by itself
        part.start()
