"""Statistics of partitions put together."""

from __future__ import annotations

from broker.http.topics.partitioned_json import partitioned_stats
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


def test_the_whole_was_published_to_last_when_any_partition_was():
    parts = [{"lastPublishTimeStamp": 3}, {"lastPublishTimeStamp": 7}]
    assert with_oldest(parts[0], parts) == {"lastPublishTimeStamp": 7}


def subscription_of(rows):
    """A subscription of a topic, one row for each partition."""
    parts = [
        (str(number), {"publishers": [], "subscriptions": {"s": {"consumers": [], **row}}})
        for number, row in enumerate(rows)
    ]
    return partitioned_stats({}, False, parts)["subscriptions"]["s"]


def test_members_of_a_subscription_are_those_of_all_partitions():
    whole = subscription_of(
        [
            {
                "consumersCount": 1,
                "lastAckedTimestamp": 5,
                "blockedSubscriptionOnUnackedMsgs": False,
            }
            | {"delayedMessageIndexSizeInBytes": 16, "drainingHashesCount": 0},
            {"consumersCount": 2, "lastAckedTimestamp": 9}
            | {"blockedSubscriptionOnUnackedMsgs": True}
            | {"delayedMessageIndexSizeInBytes": 32, "drainingHashesCount": 3},
        ]
    )
    assert whole == {
        "consumers": [],
        "consumersCount": 3,
        "lastAckedTimestamp": 9,
        "blockedSubscriptionOnUnackedMsgs": True,
        "delayedMessageIndexSizeInBytes": 48,
        "drainingHashesCount": 3,
    }


def test_the_active_consumer_of_a_partitioned_topic_is_shown_if_it_is_the_same_everywhere():
    same, other = {"activeConsumerName": "a"}, {"activeConsumerName": "b"}
    assert subscription_of([same, same]) == {"consumers": [], **same}
    assert subscription_of([same, other]) == {"consumers": []}
