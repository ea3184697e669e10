"""The checks find what they are for: each test breaks one promise in a small history."""

from __future__ import annotations

from tests.crash.checks import (
    Event,
    Lifetime,
    Sent,
    SubscriptionHistory,
    TopicHistory,
    check_topic,
)

FLUSH = 3.0
LIFETIMES = [Lifetime(0.0, 10.0), Lifetime(20.0, 30.0)]


def history(
    exclusive: SubscriptionHistory | None = None, shared: SubscriptionHistory | None = None
) -> TopicHistory:
    """Producer 0, five unbatched messages, all acked, and a batch of two from producer 1."""
    messages = [((7, entry_id, -1), 0, entry_id, True) for entry_id in range(5)]
    messages += [((7, 5, 0), 1, 0, True), ((7, 5, 1), 1, 1, True)]
    made = TopicHistory(
        acked=[Sent(producer, sequence, at) for at, producer, sequence, _ in messages],
        log=messages,
    )
    if exclusive is not None:
        made.subscriptions["exclusive"] = exclusive
    if shared is not None:
        made.subscriptions["shared"] = shared
    return made


def found(made: TopicHistory) -> str:
    return "\n".join(check_topic("t", made, LIFETIMES, FLUSH))


def events(at: float, *entry_ids: int) -> list[Event]:
    """Received or acknowledged in order, 1 ms apart."""
    return [Event((7, entry_id, -1), at + entry_id / 1000) for entry_id in entry_ids]


def batch(at: float) -> list[Event]:
    return [Event((7, 5, index), at + index / 1000) for index in (0, 1)]


def test_a_good_run_is_good() -> None:
    exclusive = SubscriptionHistory(
        True,
        received=events(2, 0, 1, 2, 3) + events(21, 2, 3, 4) + batch(22),
        acked=events(3, 1) + events(9, 3),
    )
    shared = SubscriptionHistory(
        False,
        received=events(2, 0, 1, 2) + batch(2.5) + events(21, 1, 3, 4),
        acked=events(3, 0, 2) + batch(3.5),
    )
    assert found(history(exclusive, shared)) == ""


def test_lost_and_changed_messages() -> None:
    made = history()
    del made.log[4]
    assert "LOST: producer 0 message 4" in found(made)

    made = history()
    made.log[3] = ((7, 3, -1), 0, 3, False)
    assert "content of (7, 3, -1) is not what was sent" in found(made)

    made = history()
    made.log[3], made.log[4] = ((7, 3, -1), 0, 4, True), ((7, 4, -1), 0, 3, True)
    assert "(7, 3, -1) was acked for (0, 3) but holds (0, 4)" in found(made)
    assert "producer 0: message 4 at (7, 3, -1) before 3" in found(made)


def test_a_message_sent_again_before_its_ack_is_fine_but_not_after() -> None:
    made = history()
    made.log.append(((8, 0, -1), 0, 4, True))
    assert "(0, 4) is there again at (8, 0, -1) after (7, 4, -1)" in found(made)

    made.acked[4] = Sent(0, 4, (8, 0, -1))
    assert found(made) == ""


def test_positions() -> None:
    made = history()
    made.log[2] = ((7, 3, -1), 0, 2, True)
    assert "hole between (7, 1, -1) and (7, 3, -1)" in found(made)
    assert "(7, 3, -1) read after (7, 3, -1)" in found(made)

    made = history()
    made.log.append(((8, 1, -1), 1, 2, True))
    assert "ledger 8 starts with (8, 1, -1)" in found(made)


def test_a_failed_send_may_be_missing() -> None:
    made = history()
    made.log += [((8, 0, -1), 1, 3, True)]
    assert "producer 1: message 3" in found(made)
    made.failed.add((1, 2))
    assert found(made) == ""


def test_cumulative_acks_are_kept_once_flushed() -> None:
    again = events(21, 0, 1, 2, 3, 4)
    late = SubscriptionHistory(True, events(2, 0, 1) + again, acked=events(9, 1))
    assert found(history(late)) == ""

    flushed = SubscriptionHistory(True, events(2, 0, 1) + again, acked=events(3, 1))
    assert "2 messages again from (7, 0, -1) to (7, 1, -1), though acked up to (7, 1)" in found(
        history(flushed)
    )


def test_exclusive_delivery_has_no_gaps() -> None:
    skipping = SubscriptionHistory(True, events(2, 0, 1) + events(21, 3, 4), acked=events(3, 1))
    assert "starts with (7, 3, -1), 1 unacked are skipped" in found(history(skipping))

    reordered = SubscriptionHistory(True, events(2, 0) + [Event((7, 2, -1), 2.5)])
    assert "(7, 2, -1) follows (7, 0, -1)" in found(history(reordered))


def test_individual_acks_and_holes_are_kept() -> None:
    lost_ack = SubscriptionHistory(
        False, events(2, 0, 1) + events(21, 0, 1, 2, 3, 4) + batch(22), acked=events(3, 0)
    )
    assert found(history(None, lost_ack)) == (
        "t: shared: 1 messages again, (7, 0, -1) to (7, 0, -1), though acked long before "
        "incarnation 1"
    )

    lost_hole = SubscriptionHistory(
        False, events(2, 0, 1) + events(21, 2, 3, 4) + batch(22), acked=events(3, 0)
    )
    assert "(7, 1, -1) was never acked and is not delivered again" in found(
        history(None, lost_hole)
    )


def test_half_a_batch_acknowledged_may_come_back_whole() -> None:
    half = SubscriptionHistory(
        False,
        batch(2) + events(21, 0, 1, 2, 3, 4) + batch(22),
        acked=batch(3)[:1],
    )
    assert found(history(None, half)) == ""
