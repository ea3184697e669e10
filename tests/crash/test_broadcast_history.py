"""Violations of the promises to a consumer of a broadcast."""

from __future__ import annotations

from tests.crash.broadcast_history import ConsumerHistory

DURABLE = range(100)


def consumer() -> ConsumerHistory:
    history = ConsumerHistory("a")
    history.subscribed(10)
    for number in range(10, 20):
        assert history.receive(number, DURABLE) == ""
    return history


def test_a_gap_within_a_life_is_a_loss() -> None:
    assert "went on at 21 without [20]" in consumer().receive(21, DURABLE)


def test_what_never_became_durable_is_no_loss() -> None:
    assert consumer().receive(21, range(20)) == ""


def test_resuming_behind_the_last_acknowledgement_is_a_loss() -> None:
    history = consumer()
    history.ack_through(14)
    history.subscribed(30)
    assert "resumed at 17 without [15, 16]" in history.receive(17, DURABLE)


def test_resuming_at_or_before_the_last_acknowledgement_is_none() -> None:
    for first in (12, 15):
        history = consumer()
        history.ack_through(14)
        history.subscribed(30)
        assert history.receive(first, DURABLE) == ""


def test_an_unacknowledged_hole_must_come_again() -> None:
    history = consumer()
    for number in (10, 11, 13, 14):
        history.ack(number)
    history.subscribed(30)
    assert "without [12]" in history.receive(15, DURABLE)
    history.subscribed(30)
    assert history.receive(12, DURABLE) == ""
    assert history.receive(15, DURABLE) == ""


def test_an_old_acknowledgement_must_be_kept() -> None:
    history = consumer()
    history.ack_through(12)
    history.ack_taken(12, 1.0, cumulative=True)
    history.killed(at=5.0, flush_seconds=3.0)
    history.subscribed(30)
    assert "came again" in history.receive(11, DURABLE)


def test_an_acknowledgement_that_the_server_never_took_need_not_be_kept() -> None:
    history = consumer()
    history.ack_through(12)
    history.killed(at=50.0, flush_seconds=3.0)
    history.subscribed(30)
    assert history.receive(10, DURABLE) == ""


def test_an_acknowledgement_shortly_before_a_kill_counts_from_when_it_is_given_again() -> None:
    history = consumer()
    history.ack_through(12)
    history.ack_taken(12, 4.0, cumulative=True)
    for again, killed_at in ((20.0, 21.0), (40.0, 50.0)):
        history.killed(at=killed_at - 15, flush_seconds=3.0)
        history.subscribed(30)
        for number in (11, 12):
            assert history.receive(number, DURABLE) == ""
        history.ack_through(12)
        history.ack_taken(12, again, cumulative=True)
        history.killed(at=killed_at, flush_seconds=3.0)
    history.subscribed(30)
    assert "came again" in history.receive(11, DURABLE)


def test_order_is_owed_within_a_life() -> None:
    assert "came after" in consumer().receive(15, DURABLE)


def test_everything_durable_since_it_was_subscribed_is_owed() -> None:
    assert consumer().missing(range(22)) == [20, 21]
    assert ConsumerHistory("new").missing(DURABLE) == []
