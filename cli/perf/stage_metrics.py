"""The stages of a broadcast message, from the broker's /metrics.

Pure. Vela exports the latency of the stages as histograms (`vela_broadcast_stage_seconds`, see
docs/operations/monitoring.md). Two readings give the values between them. A percentile is the upper
end of its bucket, so it means "at most".
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

_NAME: Final = "vela_broadcast_stage_seconds"
_LINE: Final = re.compile(_NAME + r"_(bucket|sum|count)\{(.*)\} (\S+)")
_LABEL: Final = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


@dataclass(slots=True)
class Stage:
    """One histogram."""

    buckets: dict[float, float] = field(default_factory=dict)
    """Upper end in seconds -> number of values not above it."""
    total_seconds: float = 0.0
    count: float = 0.0

    def since(self, before: Stage) -> Stage:
        """The values added since."""
        return Stage(
            {end: count - before.buckets.get(end, 0.0) for end, count in self.buckets.items()},
            self.total_seconds - before.total_seconds,
            self.count - before.count,
        )

    def percentile(self, part: float) -> float | None:
        """Seconds that the given part (0..1) did not exceed; None when there are no values, or the
        result is above the last bucket."""
        if not self.count:
            return None
        for end, count in sorted(self.buckets.items()):
            if count >= part * self.count:
                return end if end != float("inf") else None
        return None

    @property
    def mean_seconds(self) -> float | None:
        """None when there are no values."""
        return self.total_seconds / self.count if self.count else None


def stages(metrics: str, topic: str, subscription: str) -> dict[str, Stage]:
    """By name, in the order of the page; empty when the server is not Vela."""
    found: dict[str, Stage] = {}
    for line in metrics.splitlines():
        match = _LINE.fullmatch(line)
        if match is None:
            continue
        labels = dict(_LABEL.findall(match[2]))
        if (labels.get("topic"), labels.get("subscription")) != (topic, subscription):
            continue
        stage = found.setdefault(labels["stage"], Stage())
        value = float(match[3])
        if match[1] == "bucket":
            stage.buckets[float(labels["le"])] = value
        elif match[1] == "sum":
            stage.total_seconds = value
        else:
            stage.count = value
    return found
