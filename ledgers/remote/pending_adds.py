"""Adds of one connection that have no answer yet: which sink gets an answer. Pure.

Protocol version 2 has no request ids. An answer belongs to the oldest add of the same ledger and
entry. Adds are kept as runs, so an answer to a run costs as much as one to an entry.

The runs of a ledger lie in layers. Runs of one layer do not overlap and are sorted. An add of an
entry that is pending already goes to a layer above those that have the entry, so the lowest layer
with an entry has its oldest add. Every add of a writer is in the first layer, at its end.

`since` is the time of an add, rounded by the owner: runs are joined only if it is equal, so that
the age of every add stays known. Runs are counted by it, so that the age of the oldest costs as
much as there are different times, and not as much as there are runs.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Final, final

from protocol.errors import RemoteProtocolError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from bookie.api import AddSink

LAYERS_MAX: Final = 64
"""Adds of the same entry that may be pending at once."""


@final
class PendingRun:
    """Entries `first` to `end` - 1 of one ledger, `size_bytes` together."""

    __slots__ = ("end", "first", "since", "sink", "size_bytes")

    def __init__(self, first: int, end: int, sink: AddSink, size_bytes: int, since: float) -> None:
        self.first = first
        self.end = end
        self.sink = sink
        self.size_bytes = size_bytes
        self.since = since


def _first_of(run: PendingRun) -> int:
    return run.first


def _place_of(layer: list[PendingRun], entry_id: int) -> int:
    """Index of the last run that starts at or before the entry; -1: none."""
    if layer[0].first == entry_id:
        return 0
    return bisect_right(layer, entry_id, key=_first_of) - 1


@final
class PendingAdds:
    """See the module docstring."""

    __slots__ = ("_ledgers", "_runs_since", "size_bytes")

    def __init__(self) -> None:
        self._ledgers: dict[int, list[list[PendingRun]]] = {}
        self._runs_since: dict[float, int] = {}
        """How many runs there are of each time."""
        self.size_bytes = 0
        """The size of all pending adds, as their owner counts them."""

    def add(
        self,
        ledger_id: int,
        first: int,
        count: int,
        sink: AddSink,
        size_bytes: int,
        since: float,
    ) -> bool:
        """These entries have been sent. False: some of them are pending too many times."""
        end = first + count
        layers = self._ledgers.get(ledger_id)
        if layers is None:
            layers = self._ledgers[ledger_id] = []
        elif len(layers) == 1:
            last = layers[0][-1]
            if last.end == first and last.sink is sink and last.since == since:
                last.end = end
                last.size_bytes += size_bytes
                self.size_bytes += size_bytes
                return True
        above = 0
        for number, layer in enumerate(layers):
            at = bisect_right(layer, end - 1, key=_first_of) - 1
            if at >= 0 and layer[at].end > first:
                above = number + 1
        if above == LAYERS_MAX:
            return False
        self.size_bytes += size_bytes
        if above == len(layers):
            layers.append([PendingRun(first, end, sink, size_bytes, since)])
            self._runs_since[since] = self._runs_since.get(since, 0) + 1
            return True
        layer = layers[above]
        at = bisect_right(layer, first, key=_first_of)
        before = layer[at - 1] if at else None
        if before and before.end == first and before.sink is sink and before.since == since:
            before.end = end
            before.size_bytes += size_bytes
        else:
            layer.insert(at, PendingRun(first, end, sink, size_bytes, since))
            self._runs_since[since] = self._runs_since.get(since, 0) + 1
        return True

    def answered(
        self, ledger_id: int, first: int, count: int
    ) -> Iterable[tuple[AddSink, int, int]]:
        """(sink, first entry id, count) of the adds that an answer belongs to. They are pending
        until they are taken from the result.

        Raises: RemoteProtocolError: after those that it does belong to, the answer to an add that
            was not sent, or was answered.
        """
        layers = self._ledgers.get(ledger_id)
        end = first + count
        if layers is not None and len(layers) == 1:
            oldest = layers[0][0]
            if oldest.first == first and end < oldest.end:
                self.size_bytes -= self._take(layers[0], 0, first, end)
                return [(oldest.sink, first, count)]
        return self._answered_in_parts(layers, ledger_id, first, end)

    def _answered_in_parts(
        self, layers: list[list[PendingRun]] | None, ledger_id: int, first: int, end: int
    ) -> Iterator[tuple[AddSink, int, int]]:
        while first < end:
            if layers is None:
                raise RemoteProtocolError(f"the answer to an add of {ledger_id}:{first}, not sent")
            run, number, at = self._oldest(layers, ledger_id, first)
            stop = min(end, run.end)
            if number:  # a lower layer may have a later part of the answer's entries
                stop = self._limit(layers[:number], first, stop)
            self.size_bytes -= self._take(layers[number], at, first, stop)
            if not layers[number]:
                del layers[number]
                if not layers:
                    del self._ledgers[ledger_id]
                    layers = None
            yield run.sink, first, stop - first
            first = stop

    @staticmethod
    def _oldest(
        layers: list[list[PendingRun]], ledger_id: int, entry_id: int
    ) -> tuple[PendingRun, int, int]:
        for number, layer in enumerate(layers):
            at = _place_of(layer, entry_id)
            if at >= 0 and entry_id < layer[at].end:
                return layer[at], number, at
        raise RemoteProtocolError(f"the answer to an add of {ledger_id}:{entry_id}, not sent")

    @staticmethod
    def _limit(lower: list[list[PendingRun]], first: int, stop: int) -> int:
        for layer in lower:
            at = bisect_right(layer, first, key=_first_of)
            if at < len(layer):
                stop = min(stop, layer[at].first)
        return stop

    def _take(self, layer: list[PendingRun], at: int, first: int, stop: int) -> int:
        """Remove entries `first` to `stop` - 1 from a run that has them. Returns their bytes, taken
        to be of equal size."""
        run = layer[at]
        if run.first == first and run.end == stop:
            del layer[at]
            runs = self._runs_since[run.since] - 1
            if runs:
                self._runs_since[run.since] = runs
            else:
                del self._runs_since[run.since]
            return run.size_bytes
        entries = run.end - run.first
        size_bytes = run.size_bytes * (stop - first) // entries
        run.size_bytes -= size_bytes
        if run.first == first:
            run.first = stop
            return size_bytes
        if run.end > stop:
            rest_bytes = run.size_bytes * (run.end - stop) // (run.end - stop + first - run.first)
            run.size_bytes -= rest_bytes
            layer.insert(at + 1, PendingRun(stop, run.end, run.sink, rest_bytes, run.since))
            self._runs_since[run.since] += 1
        run.end = first
        return size_bytes

    def oldest_since(self) -> float | None:
        """The rounded time of the oldest add; None: nothing is pending."""
        return min(self._runs_since, default=None)

    def take_all(self) -> Iterator[tuple[int, PendingRun]]:
        """(ledger id, run) of everything pending, which is forgotten."""
        ledgers, self._ledgers = self._ledgers, {}
        self._runs_since.clear()
        self.size_bytes = 0
        for ledger_id, layers in ledgers.items():
            for layer in layers:
                for run in layer:
                    yield ledger_id, run
