"""What the benchmark needs of the thing it measures: one server, or several as one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from compat_tests.oracle.server_process import ServerProcess


class Subject(Protocol):
    """`ServerProcess` has it all; a cluster of several processes is the other kind."""

    name: str
    directory: Path
    """Everything it writes is below it."""

    @property
    def service_url(self) -> str:
        """For clients."""

    @property
    def perf_arguments(self) -> Sequence[str]:
        """What pulsar-perf needs to be let in, besides the URL."""

    @property
    def parts(self) -> Sequence[ServerProcess]:
        """The processes with a log of their own."""

    @property
    def process_ids(self) -> Sequence[int]:
        """Of all of its processes; none while it does not run."""

    def start(self) -> None:
        """Until a client can use it. Raises: ServerFailed."""

    def kill(self) -> None:
        """kill -9."""

    def pause(self) -> None:
        """SIGSTOP: no CPU until `resume`."""

    def resume(self) -> None:
        """SIGCONT."""

    def is_running(self) -> bool:
        """Whether all of its processes are there."""

    def how_it_ended(self) -> str | None:
        """The report on a process that ended by itself."""

    def log_tail(self, size_bytes: int = 3000) -> str:
        """The end of what it printed."""

    def http(
        self, method: str, path: str, body: Any = None, timeout_seconds: float = 15.0
    ) -> tuple[int, Any]:
        """One request to its admin port. Raises: OSError."""

    def cpu_seconds(self) -> float:
        """User and system time so far."""

    def cpu_by_kind(self) -> dict[str, float]:
        """The same by kind of process."""

    def resident_bytes(self) -> int:
        """Resident memory, each page counted once."""
