"""Statistics of a partitioned topic from those of its partitions, as JSON. Pure."""

from __future__ import annotations

from typing import Any, Final

from broker.http.topics.stats_sums import ADDED_UP, add_subscription, with_oldest

Json = dict[str, Any]
_NOT_OF_THE_WHOLE: Final = ("ownerBroker", "topicEpoch", "publishers", "subscriptions")


def partitioned_stats(metadata: Json, per_part: bool, parts: list[tuple[str, Json]]) -> Json:
    """PartitionedTopicStats from TopicStats by full name. `per_part`: with those, too."""
    subscriptions: dict[str, Json] = {}
    publishers: list[Json] = []
    for _name, stats in parts:
        publishers += stats["publishers"]
        for name, row in stats["subscriptions"].items():
            known = subscriptions.get(name)
            if known is None:
                subscriptions[name] = {**row, "consumers": list(row["consumers"])}
                continue
            add_subscription(known, row)
            known["consumers"] += row["consumers"]
    first = parts[0][1] if parts else {}
    total = {field: sum(stats.get(field, 0) for _name, stats in parts) for field in ADDED_UP}
    rate = total["msgRateIn"]
    kept = {field: first[field] for field in first if field not in _NOT_OF_THE_WHOLE}
    return {
        "publishers": publishers,
        "partitions": dict(parts) if per_part else {},
        "subscriptions": subscriptions,
        **with_oldest({**kept, **total}, [stats for _name, stats in parts]),
        "averageMsgSize": total["msgThroughputIn"] / rate if rate else 0.0,
        "metadata": metadata,
    }


def partitioned_internal_stats(metadata: Json, parts: list[tuple[str, Json]]) -> Json:
    """PartitionedTopicInternalStats from PersistentTopicInternalStats by full name."""
    return {"metadata": metadata, "partitions": dict(parts)}
