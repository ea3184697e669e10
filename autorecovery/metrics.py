"""The series of autorecovery on a Prometheus page, under BookKeeper's names.

Sources: AuditorStats, ReplicationWorker, LedgerFragmentReplicator of BookKeeper 4.17. Names of
Vela's own begin with `vela_autorecovery_`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from web.prometheus import label_text

if TYPE_CHECKING:
    from autorecovery.auditor import Auditor
    from autorecovery.election import Election
    from autorecovery.statistics import Distribution
    from autorecovery.worker import ReplicationWorker
    from web.prometheus import Page

_QUANTILES: Final = (0.5, 0.75, 0.95, 0.99, 0.999, 0.9999, 1.0)
_SUCCESS: Final = label_text({"success": "true"})
_AUDITOR: Final = "auditor_"
_WORKER: Final = "replication_worker_"
_OWN: Final = "vela_autorecovery_"


def add_auditor_series(page: Page, auditor: Auditor, election: Election) -> None:
    """Add the counts of the auditor of this process."""
    _counter(page, f"{_OWN}election_attempts", "Times this process stood", election.attempts)
    _counter(
        page,
        f"{_AUDITOR}NUM_LEDGERS_CHECKED",
        "Ledgers whose copies were looked at",
        auditor.ledgers_checked,
    )
    _counter(
        page,
        f"{_AUDITOR}NUM_BOOKIE_AUDITS_DELAYED",
        "Audits put off, so that a lost bookie can come back",
        auditor.audits_delayed,
    )
    _counter(
        page,
        f"{_AUDITOR}NUM_DELAYED_BOOKIE_AUDITS_CANCELLED",
        "Such delays that ended early",
        auditor.delays_cancelled,
    )
    for name, help_text, distribution in (
        ("NUM_UNDER_REPLICATED_LEDGERS", "Ledgers marked in an audit", auditor.marked_per_audit),
        ("AUDIT_BOOKIES_TIME", "Milliseconds of an audit", auditor.audit_times),
        (
            "CHECK_ALL_LEDGERS_TIME",
            "Milliseconds of a look at the copies of all ledgers",
            auditor.check_times,
        ),
    ):
        _summary(page, f"{_AUDITOR}{name}", help_text, distribution)
    page.add(
        f"{_OWN}is_auditor", "gauge", "1: this process is the auditor", "", int(election.is_auditor)
    )
    page.add(
        f"{_OWN}ledgers_damaged",
        "gauge",
        "Ledgers whose metadata is damaged, at the last audit",
        "",
        auditor.ledgers_damaged,
    )


def add_worker_series(page: Page, worker: ReplicationWorker) -> None:
    """Add the counts of the worker of this process."""
    for name, help_text, value in (
        (
            "NUM_FULL_OR_PARTIAL_LEDGERS_REPLICATED",
            "Ledgers that have all copies again",
            worker.ledgers_completed,
        ),
        ("NUM_ENTRIES_READ", "Entries read to be copied", worker.entries_read),
        ("NUM_ENTRIES_WRITTEN", "Entries copied", worker.entries_copied),
        (
            "NUM_ENTRIES_UNABLE_TO_READ_FOR_REPLICATION",
            "Entries that no bookie gave",
            worker.entries_without_source,
        ),
    ):
        _counter(page, f"{_WORKER}{name}", help_text, value)
    for name, help_text, count, total in (
        ("NUM_BYTES_READ", "Bytes of entries read", worker.entries_read, worker.bytes_read),
        (
            "NUM_BYTES_WRITTEN",
            "Bytes of entries copied",
            worker.entries_copied,
            worker.bytes_copied,
        ),
    ):
        lines = page.family(f"{_WORKER}{name}", "summary", help_text)
        lines += [
            f"{_WORKER}{name}_count{_SUCCESS} {count}",
            f"{_WORKER}{name}_sum{_SUCCESS} {total}",
        ]
    _summary(page, f"{_WORKER}rereplicate", "Milliseconds of work on a ledger", worker.replications)
    _counter(
        page, f"{_OWN}failed_total", "Attempts that left copies missing", worker.ledgers_failed
    )
    page.add(
        f"{_OWN}ledgers_waiting",
        "gauge",
        "Ledgers that are tried again later",
        "",
        worker.ledgers_waiting,
    )


def add_marks_series(page: Page, marks: int) -> None:
    """`marks`: ledgers that lack copies now, as far as is known."""
    page.add(
        f"{_OWN}under_replicated_ledgers",
        "gauge",
        "Ledgers marked as lacking copies, in the whole cluster",
        "",
        marks,
    )


def _counter(page: Page, name: str, help_text: str, value: float) -> None:
    page.add(name, "counter", help_text, "", value)


def _summary(page: Page, name: str, help_text: str, distribution: Distribution) -> None:
    lines = page.family(name, "summary", help_text)
    for fraction in _QUANTILES:
        labels = label_text({"success": "true", "quantile": str(fraction)})
        lines.append(f"{name}{labels} {distribution.quantile(fraction)}")
    lines.append(f"{name}_count{_SUCCESS} {distribution.count}")
    lines.append(f"{name}_sum{_SUCCESS} {distribution.total}")
