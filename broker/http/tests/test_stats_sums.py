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


def test_the_earliest_publish_time_and_the_chunks_are_those_of_any_partition():
    def part(earliest_ms, chunks):
        return {"earliestMsgPublishTimeInBacklogs": earliest_ms, "msgChunkPublished": chunks}

    parts = [part(0, False), part(700, True), part(600, False)]
    assert with_oldest(parts[0], parts) == part(600, True)
    assert with_oldest(parts[0], parts[:1]) == part(0, False)
