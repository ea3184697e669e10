"""The statistics of a partitioned topic from those that the owners of its partitions gave."""

from broker.http.topics.partitioned_json import partitioned_stats
from broker.topics.subscription.request import SubscriptionRequest
from protocol.topic_name import TopicName

PATH = "persistent/public/default/parted"
FULL = "persistent://public/default/parted"


async def test_they_equal_what_one_broker_says_of_all_partitions(broker, http):
    assert (await http("PUT", f"{PATH}/partitions", 3))[0] == 204
    for index in range(3):
        name = TopicName.parse(f"{FULL}-partition-{index}")
        topic = await broker.service.get_or_load_topic(name, create=True)
        for subscription in ("s", "only")[: 2 if index == 1 else 1]:
            await topic.open_subscription(SubscriptionRequest(name=subscription))
    for per_part in (True, False):
        flag = "true" if per_part else "false"
        _, whole = await http("GET", f"{PATH}/partitioned-stats?perPartition={flag}")
        parts = []
        for index in range(3):
            _, part = await http("GET", f"{PATH}-partition-{index}/stats")
            parts.append((f"{FULL}-partition-{index}", part))
        assert partitioned_stats({"partitions": 3, "deleted": False}, per_part, parts) == whole


def row(**fields):
    numbers = dict.fromkeys(
        (
            "msgRateOut",
            "msgThroughputOut",
            "bytesOutCounter",
            "msgOutCounter",
            "msgRateRedeliver",
            "messageAckRate",
            "msgBacklog",
            "backlogSize",
            "msgBacklogNoDelayed",
            "msgDelayed",
            "msgInReplay",
            "unackedMessages",
            "nonContiguousDeletedMessagesRanges",
        ),
        1,
    )
    return {**numbers, "type": "Shared", "consumers": [], **fields}


def test_numbers_are_summed_and_lists_are_put_together():
    parts = [
        (
            f"p{index}",
            {
                "publishers": [{"producerName": str(index)}],
                "subscriptions": {"s": row(msgBacklog=index, consumers=[{"name": index}])},
                "msgRateIn": 2.0,
                "msgThroughputIn": 20.0,
                "storageSize": 5,
                "ownerBroker": f"b{index}",
            },
        )
        for index in range(3)
    ]
    whole = partitioned_stats({"partitions": 3}, False, parts)
    assert whole["subscriptions"]["s"]["msgBacklog"] == 3
    assert [each["name"] for each in whole["subscriptions"]["s"]["consumers"]] == [0, 1, 2]
    assert [each["producerName"] for each in whole["publishers"]] == ["0", "1", "2"]
    assert (whole["msgRateIn"], whole["averageMsgSize"], whole["storageSize"]) == (6.0, 10.0, 15)
    assert "ownerBroker" not in whole
    assert whole["partitions"] == {}
    assert parts[0][1]["subscriptions"]["s"]["msgBacklog"] == 0
