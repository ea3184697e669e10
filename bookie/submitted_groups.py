"""SubmittedGroups: the writes that journals have submitted, among the sockets of the event loop.

Nothing is submitted while nobody looks at the sockets, before the start and near the end of a
process: then the threads of the journals write.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Protocol, final

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bookie.disk import Disk, Submissions
    from bookie.journal import GroupDone, Journal
    from runtime.readers import RunningChanged


class LoopReaders(Protocol):
    """`runtime.readers.Readers`, as far as a bookie uses them."""

    def run_sync_soon(self, call: Callable[..., object], *arguments: object) -> None:
        """Call in the event loop, in the order of these calls. From any thread."""

    def on_running(self, call: RunningChanged) -> None:
        """Tell when they begin and when they end to look at what was added."""

    def add_urgent(self, descriptor: int, call: Callable[[], object]) -> None:
        """Call when the descriptor is found readable."""

    def remove_urgent(self, descriptor: int) -> None:
        """Do not call any more."""


@final
class SubmittedGroups:
    """See the module docstring. Event loop only."""

    def __init__(
        self,
        journals: Sequence[Journal],
        done: Callable[[GroupDone], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        self._journals = journals
        self._done = done
        self._failed = failed
        self._readers: LoopReaders | None = None
        self._used: list[tuple[Journal, Submissions]] = []

    def use(self, readers: LoopReaders, disk: Disk) -> None:
        """Submit while these readers run, if the disk can take it."""
        for journal in self._journals:
            submissions = disk.open_submissions() if journal.can_submit else None
            if submissions is not None:
                self._used.append((journal, submissions))
        self._readers = readers
        readers.on_running(self._readers_run)

    def leave(self) -> None:
        """Leave what is under way to the threads, which also release everything."""
        self._readers_run(running=False)
        self._used = []

    def _readers_run(self, *, running: bool) -> None:
        if self._readers is None:
            return
        for journal, submissions in self._used:
            if running:
                self._readers.add_urgent(submissions.fileno(), partial(self._look, journal))
                journal.begin_submissions(submissions)
            else:
                self._readers.remove_urgent(submissions.fileno())
                journal.end_submissions()

    def _look(self, journal: Journal) -> None:
        try:
            done = journal.submitted_is_done()
        except Exception as error:
            self._failed(error)
            return
        if done is not None:
            self._done(done)
            journal.kick()
