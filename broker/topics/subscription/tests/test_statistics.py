"""Statistics carry Pulsar's names and agree with what happened."""

from __future__ import annotations

import json

from broker.topics.subscription.sub_types import SHARED
from broker.topics.subscription.tests.fakes import Bench, make_data


async def test_names_and_numbers(nursery):
    bench = Bench(nursery)
    await bench.open()
    consumer = bench.consumer(SHARED, permits=10, metadata={"k": "v"}, connected_since_ms=5)
    positions = bench.publish(*[make_data(messages=2) for _ in range(4)])
    bench.ack(consumer, positions[1])
    bench.subscription.redeliver(consumer, [positions[2]], -1)
    bench.clock.ms += 10_000
    bench.subscription.update_rates(bench.clock.now())
    stats = json.loads(json.dumps(bench.subscription.statistics().as_json(backlog_size=99)))
    row = stats["consumers"][0]
    assert stats["type"] == "Shared"
    assert stats["msgBacklog"] == 3
    assert stats["backlogSize"] == 99
    assert stats["unackedMessages"] == row["unackedMessages"] == 6
    assert stats["msgOutCounter"] == row["msgOutCounter"] == 10
    assert stats["msgRateOut"] == row["msgRateOut"] == 1.0
    assert row["msgRateRedeliver"] == 0.2
    assert row["availablePermits"] == 0
    assert row["consumerName"] == "c1"
    assert row["lastConsumedFlowTimestamp"] == stats["lastConsumedFlowTimestamp"] == 1_000_000
    assert row["lastAckedTimestamp"] == stats["lastAckedTimestamp"] > 0
    assert row["avgMessagesPerEntry"] == 2
    assert row["metadata"] == {"k": "v"}
    assert row["connectedSince"] == "1970-01-01T00:00:00.005Z"
    assert "keyHashRanges" not in row
    assert stats["isDurable"] is True
    assert stats["whyNotDispatching"] == "no permits from any consumer"
    assert bench.subscription.statistics().as_json(consumers=False)["consumers"] == []


async def test_a_subscription_nobody_used_has_type_none(nursery):
    bench = Bench(nursery)
    await bench.open(properties={"a": "b"})
    stats = bench.subscription.statistics().as_json()
    assert stats["type"] == "None"
    assert stats["subscriptionProperties"] == {"a": "b"}
    assert stats["activeConsumerName"] is None
