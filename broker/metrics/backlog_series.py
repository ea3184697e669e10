"""Series of backlog quotas that are not fields of statistics. Names are Pulsar's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from web.prometheus import label_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from broker.topic.storage import StoredCounts
    from runtime.durations import Durations
    from web.prometheus import Page

_CHECK: Final = "pulsar_storage_backlog_quota_check_duration_seconds"


def evictions_of(stored: StoredCounts) -> tuple[int, int]:
    """How often the backlog of a topic was evicted because of its size and because of its age."""
    return stored.evictions_by_size, stored.evictions_by_age


def add_evictions(
    page: Page, prefix: str, labels: Mapping[str, str], evictions: tuple[int, int]
) -> None:
    """Those of a topic, or of the loaded topics of the broker."""
    for kind, count in zip(("size", "time"), evictions, strict=True):
        page.add(
            f"{prefix}_backlog_quota_exceeded_evictions_total",
            "gauge",
            "How often messages were acknowledged because of a backlog quota",
            label_text({**labels, "quota_type": kind}),
            count,
        )


def add_check_durations(page: Page, durations: Durations, labels: Mapping[str, str]) -> None:
    """How long checks of all backlogs took."""
    page.add_histogram(_CHECK, "Seconds that a check of all backlogs took", labels, durations)
