"""What was published to a topic, whoever has left."""

from __future__ import annotations

from types import SimpleNamespace

from broker.topics.topic.publish_totals import PublishTotals


def test_producers_that_have_left_count_on_and_rates_are_those_of_the_last_window():
    producers = {"a": SimpleNamespace(messages_in=10, bytes_in=100, chunks_in=2)}
    totals = PublishTotals(producers)
    assert (totals.messages(), totals.size_bytes()) == (10, 100)
    assert totals.messages_per_second == 0.0
    totals.end_window(5.0)
    assert (totals.messages_per_second, totals.bytes_per_second) == (2.0, 20.0)
    totals.left(producers.pop("a"))
    assert totals.has_chunks()
    producers["b"] = SimpleNamespace(messages_in=4, bytes_in=8, chunks_in=0)
    assert (totals.messages(), totals.size_bytes()) == (14, 108)
    totals.end_window(2.0)
    assert (totals.messages_per_second, totals.bytes_per_second) == (2.0, 4.0)
    totals.end_window(2.0)
    assert (totals.messages_per_second, totals.bytes_per_second) == (0.0, 0.0)
