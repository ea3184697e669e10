"""Counters of a bookie's TCP port, for the metrics page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final


@final
@dataclass(slots=True)
class ServerStatistics:
    """Since start, except `connections` and `reads_pending`, which are now."""

    connections: int = 0
    connections_refused: int = 0
    connections_given_up: int = 0
    """Closed because all connections together held too much."""
    reads: int = 0
    """Requests for entries, single and batch, whatever the answer."""
    batch_reads: int = 0
    entries: int = 0
    entry_bytes: int = 0
    reads_absent: int = 0
    """Answered with NO_LEDGER or NO_ENTRY."""
    reads_failed: int = 0
    reads_overloaded: int = 0
    """Answered with TOO_MANY_REQUESTS."""
    requests_refused: int = 0
    """Fences, forces and other requests that this port does not serve."""
    reads_pending: int = 0
    adds: int = 0
    """Adds that were answered, whatever the answer."""
    adds_refused: int = 0
    """Adds among these that were answered with an error."""

    def series(self) -> list[tuple[str, str, str, int]]:
        """(metric name, kind, help text, value)."""
        prefix = "vela_bookie_tcp_"
        rows = (
            ("connections", "gauge", "Connections to bookiePort", self.connections),
            ("reads_pending", "gauge", "Requests that wait for their answer", self.reads_pending),
            ("connections_refused_total", "counter", "Connections over the bound, closed",
             self.connections_refused),
            ("connections_given_up_total", "counter",
             "Closed with an unfinished request or answers not taken, over the bound of all",
             self.connections_given_up),
            ("reads_total", "counter", "Requests for entries", self.reads),
            ("batch_reads_total", "counter", "Batch reads among them", self.batch_reads),
            ("entries_total", "counter", "Entries given", self.entries),
            ("entry_bytes_total", "counter", "Bytes of entries given", self.entry_bytes),
            ("reads_absent_total", "counter", "Reads of missing entries", self.reads_absent),
            ("reads_failed_total", "counter", "Reads answered with an error", self.reads_failed),
            ("reads_overloaded_total", "counter", "Reads answered with TOO_MANY_REQUESTS",
             self.reads_overloaded),
            ("requests_refused_total", "counter", "Fences, forces and the like, refused",
             self.requests_refused),
            ("adds_total", "counter", "Entries to be stored that were answered", self.adds),
            ("adds_refused_total", "counter", "Entries among them not stored", self.adds_refused),
        )  # fmt: skip
        return [(prefix + name, kind, text, value) for name, kind, text, value in rows]
