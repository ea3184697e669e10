"""Reads the state of subscriptions from the statistics of their topic. Pure.

`stuck`: there is a backlog and nothing is being delivered although a consumer is there (Vela says
why in `whyNotDispatching`). `abandoned`: a backlog without a reader, which holds storage for
ever. `leaked`: the same for a name that a Spark connector made and did not delete.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final, final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

LEAKED: Final = re.compile(
    r"(spar-pulsar-|spark-pulsar-|spark-vela-|spark-pulsar-batch-)[0-9a-f]{8}-[0-9a-f-]{27}.*"
)
"""Names that StreamNative's connector (both generations) and this project's source make up."""


@final
@dataclass(frozen=True, slots=True)
class SubscriptionRow:
    """One subscription; backlog in messages, sizes in bytes."""

    topic: str
    subscription: str
    type: str
    durable: bool
    consumers: int
    backlog: int
    backlog_size: int
    unacked: int
    rate_out: float
    why_not_dispatching: str
    state: str

    def as_dict(self) -> dict[str, Any]:
        """By column."""
        return asdict(self)


def rows_of(topic: str, stats: Mapping[str, Any]) -> list[SubscriptionRow]:
    """The subscriptions in TopicStats."""
    rows = []
    for name, each in stats["subscriptions"].items():
        consumers = each.get("consumers") or []
        reason = each.get("whyNotDispatching") or ""
        rate = float(each.get("msgRateOut", 0.0))
        rows.append(
            SubscriptionRow(
                topic=topic,
                subscription=name,
                type=str(each.get("type") or ""),
                durable=bool(each.get("durable", True)),
                consumers=int(each.get("consumerCount", len(consumers))),
                backlog=int(each.get("msgBacklog", 0)),
                backlog_size=int(each.get("backlogSize", 0)),
                unacked=int(each.get("unackedMessages", 0)),
                rate_out=rate,
                why_not_dispatching=str(reason),
                state=state_of(
                    name,
                    durable=bool(each.get("durable", True)),
                    consumers=int(each.get("consumerCount", len(consumers))),
                    backlog=int(each.get("msgBacklog", 0)),
                    rate_out=rate,
                ),
            )
        )
    return rows


def state_of(name: str, *, durable: bool, consumers: int, backlog: int, rate_out: float) -> str:
    """`leaked`, `abandoned`, `stuck` or `ok`; a leaked one may have no backlog yet."""
    if durable and not consumers and LEAKED.fullmatch(name):
        return "leaked"
    if durable and not consumers and backlog:
        return "abandoned"
    if consumers and backlog and not rate_out:
        return "stuck"
    return "ok"


def summary(rows: Iterable[SubscriptionRow]) -> dict[str, Any]:
    """Counts by state, and the subscriptions that are not ok, largest backlog first."""
    rows = list(rows)
    states: dict[str, int] = {}
    for row in rows:
        states[row.state] = states.get(row.state, 0) + 1
    bad = sorted((row for row in rows if row.state != "ok"), key=lambda row: -row.backlog)
    return {
        "subscriptions": len(rows),
        "by_state": states,
        "backlog": sum(row.backlog for row in rows),
        "findings": [row.as_dict() for row in bad],
    }
