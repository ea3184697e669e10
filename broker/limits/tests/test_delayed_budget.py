"""How many delayed messages a topic and the broker hold in memory."""

from __future__ import annotations

from structlog.testing import capture_logs

from broker.limits.delayed_budget import DelayedBudget
from broker.topics.subscription.delayed import DelayedIndex


def add(budget, topic, count):
    for _ in range(count):
        budget.added(topic)


def test_a_topic_and_the_broker_have_bounds_and_each_subscription_a_reserve():
    budget = DelayedBudget(100, 60, reserve=5)
    add(budget, "a", 60)
    assert budget.holds("a", 60) == "delayedDeliveryMaxEntriesPerTopic"
    assert budget.holds("a", 4) == ""
    assert budget.holds("b", 30) == ""
    add(budget, "b", 40)
    assert budget.holds("b", 40) == "delayedDeliveryMaxEntriesPerBroker"
    assert budget.holds("c", 4) == ""
    budget.removed("a", 60)
    budget.removed("b", 40)
    assert (budget.entries, budget._topics) == (0, {})


def test_who_waits_is_called_when_enough_have_become_due():
    budget = DelayedBudget(1_000, 160, reserve=1)
    called = []
    add(budget, "a", 160)
    with capture_logs() as logs:
        for key in ("s", "s", "t"):
            assert budget.blocks("a", key, 80, lambda key=key: called.append(key))
    assert [each["bound"] for each in logs] == ["delayedDeliveryMaxEntriesPerTopic"]
    budget.removed("a", 9)
    assert not called
    budget.removed("a", 1)
    assert called == ["s", "t"]
    budget.removed("a", 100)
    assert called == ["s", "t"]


def test_the_broker_calls_all_topics_that_have_room():
    budget = DelayedBudget(160, 100, reserve=1)
    called = []
    add(budget, "a", 100)
    add(budget, "b", 59)
    add(budget, "c", 1)
    for topic in ("a", "b", "c"):
        assert budget.blocks(topic, topic, 1, lambda topic=topic: called.append(topic))
    budget.forget("c", "c")
    budget.removed("b", 9)
    assert not called
    budget.removed("b", 1)
    assert called == ["b"]  # the topic of the other is still full
    budget.removed("a", 50)
    assert called == ["b", "a"]
    assert not budget._waiting


def test_a_topic_that_is_nearly_full_is_called_when_the_broker_has_room_again():
    budget = DelayedBudget(192, 100, reserve=1)
    called = []
    add(budget, "a", 97)
    add(budget, "b", 95)
    assert budget.blocks("a", "a", 97, lambda: called.append("a"))
    budget.removed("b", 12)
    assert called == ["a"]


def test_delayed_messages_that_are_skipped_count_no_longer():
    budget = DelayedBudget(1_000, 1_000, reserve=1)
    index = DelayedIndex(budget, "a")
    for entry_id in range(10):
        index.add(1_000 + entry_id, (1, entry_id))
    index.drop_before((1, 7))
    assert budget.entries == len(index) == 3
    index.clear()
    assert (budget.entries, budget._topics) == (0, {})
