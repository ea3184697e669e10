"""The checks find what they are for: a good history is altered in one way, and that is found."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cluster_faults.checks import (
    ProducerHistory,
    SubscriptionHistory,
    TopicHistory,
    check_topic,
    longest_pause_seconds,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.crash.checks import MessageId


@st.composite
def sends(draw) -> list[tuple[int, int, bool]]:
    """(producer, message, a new ledger begins) in the order of storing. Now and then a producer
    lost its connection: all its messages since its last receipt are stored again."""
    stored: list[tuple[int, int, bool]] = []
    next_message = {0: 0, 1: 0}
    for _ in range(draw(st.integers(2, 30))):
        producer = draw(st.integers(0, 1))
        begins = draw(st.integers(0, 5)) == 0
        back = draw(st.sampled_from((0, 0, 0, 0, 1, 2)))
        first = max(0, next_message[producer] - back)
        for message in range(first, next_message[producer] + 1):
            stored.append((producer, message, begins))
            begins = False
        next_message[producer] += 1
    return stored


def history_of(stored: list[tuple[int, int, bool]], *, has_deduplication: bool) -> TopicHistory:
    """What clients know of it when nothing went wrong: each receipt is for the last copy, and there
    was a connection for each copy."""
    made = TopicHistory(has_deduplication)
    seen: set[tuple[int, int]] = set()
    ledger_id, entry_id = 7, -1
    for producer, message, begins in stored:
        if has_deduplication and (producer, message) in seen:
            continue
        seen.add((producer, message))
        ledger_id, entry_id = (ledger_id + 1, 0) if begins else (ledger_id, entry_id + 1)
        position = (ledger_id, entry_id, -1)
        made.log.append((position, producer, message, True))
        history = made.producers.setdefault(producer, ProducerHistory())
        history.receipts[message] = position
        history.sent = max(history.sent, message + 1)
        history.connections += 1
    positions = [entry[0] for entry in made.log]
    made.subscriptions["exclusive"] = SubscriptionHistory(True, list(positions))
    made.subscriptions["shared"] = SubscriptionHistory(
        False, list(positions), acknowledged=set(positions[::2]), again=set(positions[1::2])
    )
    return made


histories = st.builds(history_of, sends(), has_deduplication=st.booleans())


def found(made: TopicHistory) -> str:
    return "\n".join(check_topic("t", made))


@given(histories)
def test_a_good_history_is_good(made: TopicHistory) -> None:
    assert found(made) == ""


@given(histories, st.data())
def test_a_lost_message_is_found(made: TopicHistory, data: st.DataObject) -> None:
    producer = data.draw(st.sampled_from(sorted(made.producers)))
    message = data.draw(st.sampled_from(sorted(made.producers[producer].receipts)))
    made.log = [entry for entry in made.log if entry[1:3] != (producer, message)]
    assert f"LOST: producer {producer} message {message}, acked as" in found(made)


@given(histories, st.data())
def test_a_message_acked_as_a_duplicate_must_be_there(
    made: TopicHistory, data: st.DataObject
) -> None:
    producer = data.draw(st.sampled_from(sorted(made.producers)))
    message = data.draw(st.sampled_from(sorted(made.producers[producer].receipts)))
    made.producers[producer].receipts[message] = (-1, -1, -1)
    assert found(made) == ""
    made.log = [entry for entry in made.log if entry[1:3] != (producer, message)]
    assert f"LOST: producer {producer} message {message}, acked as a duplicate" in found(made)


@given(histories, st.data())
def test_another_message_at_a_position_is_found(made: TopicHistory, data: st.DataObject) -> None:
    index = data.draw(st.integers(0, len(made.log) - 1))
    position, producer, message, _ = made.log[index]
    receipt = made.producers[producer].receipts[message]
    made.log[index] = (position, producer, message + 100, True)
    assert f"INVENTED: message {message + 100} of producer {producer}" in found(made)
    if receipt == position:
        assert f"{position} was acked for" in found(made)


@given(histories, st.data())
def test_changed_content_is_found(made: TopicHistory, data: st.DataObject) -> None:
    index = data.draw(st.integers(0, len(made.log) - 1))
    made.log[index] = (*made.log[index][:3], False)
    assert f"content of {made.log[index][0]} is not what was sent" in found(made)


@given(histories, st.data())
def test_a_copy_after_the_receipt_is_found(made: TopicHistory, data: st.DataObject) -> None:
    producer = data.draw(st.sampled_from(sorted(made.producers)))
    message = data.draw(st.sampled_from(sorted(made.producers[producer].receipts)))
    receipt = made.producers[producer].receipts[message]
    last = made.log[-1][0]
    made.log.append(((last[0] + 1, 0, -1), producer, message, True))
    assert f"is there again at {(last[0] + 1, 0, -1)} after {receipt}" in found(made)


@given(histories, st.data())
def test_more_copies_than_connections_are_found(made: TopicHistory, data: st.DataObject) -> None:
    """Even where the receipt names the last of them."""
    producer = data.draw(st.sampled_from(sorted(made.producers)))
    history = made.producers[producer]
    message = data.draw(st.sampled_from(sorted(history.receipts)))
    copies = sum(entry[1:3] == (producer, message) for entry in made.log)
    last = made.log[-1][0]
    allowed = 1 if made.has_deduplication else history.connections
    for number in range(allowed + 1 - copies):
        made.log.append(((last[0] + 1, number, -1), producer, message, True))
        history.receipts[message] = made.log[-1][0]
    told = f"DOUBLED: message {message} of producer {producer} is stored {allowed + 1} times"
    assert told in found(made)
    made.log.pop()
    history.receipts[message] = made.log[at_last(made, producer, message)][0]
    assert "DOUBLED" not in found(made)


def at_last(made: TopicHistory, producer: int, message: int) -> int:
    return max(index for index, each in enumerate(made.log) if each[1:3] == (producer, message))


@given(histories, st.data())
def test_two_messages_in_the_wrong_order_are_found(made: TopicHistory, data: st.DataObject) -> None:
    producer = data.draw(st.sampled_from(sorted(made.producers)))
    history = made.producers[producer]
    made.log.append(((90, 0, -1), producer, history.sent + 1, True))
    made.log.append(((90, 1, -1), producer, history.sent, True))
    history.receipts[history.sent + 1] = (90, 0, -1)
    history.receipts[history.sent] = (90, 1, -1)
    history.sent += 2
    message = history.sent - 1
    assert f"producer {producer}: message {message} at (90, 0, -1) before {message - 1}" in found(
        made
    )


@given(histories, st.data())
def test_a_delivery_that_is_missing_or_late_is_found(
    made: TopicHistory, data: st.DataObject
) -> None:
    exclusive, shared = made.subscriptions["exclusive"], made.subscriptions["shared"]
    index = data.draw(st.integers(0, len(made.log) - 1))
    position = made.log[index][0]
    exclusive.delivered.remove(position)
    assert f"exclusive: NOT DELIVERED: 1 of {len(made.log)}, the first {position}" in found(made)
    exclusive.delivered.append(position)
    assert ("exclusive: REORDERED" in found(made)) == (index < len(made.log) - 1)
    shared.acknowledged.discard(position)
    shared.again.discard(position)
    assert f"delivered again, the first {position}" in found(made)


def test_what_comes_again_to_an_exclusive_subscription_is_in_order() -> None:
    made = history_of([(0, number, False) for number in range(4)], has_deduplication=True)
    delivered = made.subscriptions["exclusive"].delivered
    delivered[2:2] = delivered[:2]
    assert found(made) == ""


def change_producer(change: Callable[[ProducerHistory], object]) -> TopicHistory:
    made = history_of([(0, number, False) for number in range(4)], has_deduplication=False)
    change(made.producers[0])
    return made


def test_a_client_that_was_told_of_a_failure_is_found() -> None:
    made = change_producer(lambda each: each.failed.update({4: "TimeOut"}))
    assert "REFUSED: message 4 of producer 0: TimeOut" in found(made)


def test_what_a_broker_must_not_accept_is_found_wherever_it_is() -> None:
    made = change_producer(lambda each: None)
    made.refused = {(0, 4)}
    assert found(made) == ""
    made.producers[0].sent = 5
    made.log.append(((7, 4, -1), 0, 4, True))
    assert "ACCEPTED: message 4 of producer 0" in found(made)


def test_a_delivery_of_what_is_not_stored_is_found() -> None:
    made = change_producer(lambda each: None)
    strange: MessageId = (6, 0, -1)
    made.subscriptions["shared"].delivered.append(strange)
    assert f"shared: INVENTED: {strange} was delivered" in found(made)


@pytest.mark.parametrize(
    ("times", "longest"),
    [
        ([], 10.0),
        ([1.0, 2.0], 10.0),
        ([9.0, 12.0, 13.0, 20.5], 7.5),
        ([9.0, 14.0, 19.0, 30.0], 11.0),
        ([9.0, 10.5, 21.0], 10.5),
        ([12.0, 13.0], 7.0),
    ],
)
def test_a_pause_is_counted_from_the_fault_on(times: list[float], longest: float) -> None:
    assert longest_pause_seconds(times, 10.0, 20.0) == longest
