"""Statistics of partitions put together."""

from __future__ import annotations

from broker.http.topics.stats_sums import with_oldest


def part(age, name=None):
    fields = {"oldestBacklogMessageAgeSeconds": age}
    return fields if name is None else {**fields, "oldestBacklogMessageSubscriptionName": name}


def test_the_oldest_message_is_that_of_the_slowest_partition():
    parts = [part(3, "a"), part(-1), part(7, "b")]
    assert with_oldest({**parts[0], "other": 1}, parts) == {**part(7, "b"), "other": 1}
    assert with_oldest(parts[1], parts[1:2]) == part(-1)
    assert with_oldest({**part(3, "a")}, []) == {}
