"""Series of backlog quotas that are not fields of statistics. Names are Pulsar's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from web.prometheus import Families, Family, with_label

if TYPE_CHECKING:
    from collections.abc import Mapping

    from broker.topics.topic.topic_base import StoredCounts
    from runtime.durations import Durations
    from web.prometheus import Page

_CHECK: Final = "pulsar_storage_backlog_quota_check_duration_seconds"


def _evictions(prefix: str) -> Families:
    name = f"{prefix}_backlog_quota_exceeded_evictions_total"
    help_text = "How often messages were acknowledged because of a backlog quota"
    return Families([Family(name, "gauge", help_text)])


_OF_TOPIC: Final = _evictions("pulsar_storage")
_OF_BROKER: Final = _evictions("pulsar_broker_storage")


def add_evictions(page: Page, labels: str, stored: StoredCounts) -> None:
    """How often the backlog of a topic was evicted because of its size and because of its age."""
    _add_evictions(page, _OF_TOPIC, labels, (stored.evictions_by_size, stored.evictions_by_age))


def add_evictions_of_broker(page: Page, labels: str, evictions: tuple[int, int]) -> None:
    """The same, summed for the loaded topics of the broker."""
    _add_evictions(page, _OF_BROKER, labels, evictions)


def _add_evictions(page: Page, families: Families, labels: str, evictions: tuple[int, int]) -> None:
    for kind, count in zip(("size", "time"), evictions, strict=True):
        page.add_row(families, with_label(labels, "quota_type", kind), (count,))


def add_check_durations(page: Page, durations: Durations, labels: Mapping[str, str]) -> None:
    """How long checks of all backlogs took."""
    page.add_histogram(_CHECK, "Seconds that a check of all backlogs took", labels, durations)
