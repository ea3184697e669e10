"""Series of broadcast subscriptions: gauges per subscription, and the six stages as histograms.

No series per consumer. The buckets are those of `broker.broadcast.stages`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.broadcast.broadcast_subscription import BroadcastSubscription
from broker.broadcast.stages import BUCKETS_SECONDS
from broker.broadcast.statistics import broadcast_details
from broker.metrics.page import label_text

if TYPE_CHECKING:
    from broker.metrics.page import Page
    from broker.topic.topic import Topic

_GAUGES = (
    ("vela_broadcast_virtual_cursors", "virtualCursors", "Consumer names with a position"),
    ("vela_broadcast_virtual_cursors_kept", "virtualCursorsKept", "Of consumers that have left"),
    ("vela_broadcast_slowest_backlog", "slowestBacklog", "Entries behind, the slowest consumer"),
    ("vela_broadcast_laggards", "laggards", "Connected consumers not sent the newest entries"),
    ("vela_broadcast_without_permits", "withoutPermits", "Consumers that take nothing now"),
    ("vela_broadcast_connections_full", "connectionsFull", "Connections that take nothing now"),
)
_STAGE = "vela_broadcast_stage_seconds"


def add_broadcasts(page: Page, labels: dict[str, str], topic: Topic) -> None:
    """All broadcast subscriptions of a topic."""
    for name, subscription in topic.subscriptions.items():
        if isinstance(subscription, BroadcastSubscription):
            _add(page, {**labels, "subscription": name}, subscription)


def _add(page: Page, labels: dict[str, str], subscription: BroadcastSubscription) -> None:
    text = label_text(labels)
    details = broadcast_details(subscription)["broadcast"]
    for name, field, help_text in _GAUGES:
        page.add(name, "gauge", help_text, text, details[field])
    lines = page.family(_STAGE, "histogram", "Where the time of a broadcast message goes")
    for stage, histogram in subscription.stages.histograms.items():
        of_stage = {**labels, "stage": stage}
        count = 0
        for upper, number in zip((*BUCKETS_SECONDS, None), histogram.counts, strict=True):
            count += number
            bucket = label_text({**of_stage, "le": "+Inf" if upper is None else f"{upper:g}"})
            lines.append(f"{_STAGE}_bucket{bucket} {count}")
        lines.append(f"{_STAGE}_sum{label_text(of_stage)} {histogram.total:.6f}")
        lines.append(f"{_STAGE}_count{label_text(of_stage)} {count}")
