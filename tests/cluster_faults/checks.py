"""What must hold of a topic after a fault, judged by what clients were told and what is read. Pure.

- A message with a receipt is read at the position of its receipt, with its content.
- Without deduplication a message is stored once for each time its client sent it at most: once, and
  again for each connection that its producer got. It is not stored again after the position of its
  receipt. With deduplication it is stored once.
- The first copies of one producer's messages are in the order in which it sent them, none skipped.
- A ledger's entry ids begin at 0 and have no holes.
- What is stored reaches every subscription, an exclusive one in the order of positions. What a
  subscription did not acknowledge is delivered again to its next consumer.
- A client that waits for ever is not told that a message failed.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.crash import checks as stored

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.crash.checks import MessageId

VIOLATIONS_MAX = 30


@dataclass
class ProducerHistory:
    """Messages of one producer are numbered from 0."""

    sent: int = 0
    receipts: dict[int, MessageId] = field(default_factory=dict)
    """Message -> its position. Negative: it had been stored before, which deduplication found."""
    failed: dict[int, str] = field(default_factory=dict)
    connections: int = 1
    """How often the producer was made at a broker. Each time all messages without a receipt are
    sent."""


@dataclass
class SubscriptionHistory:
    """Deliveries are in order."""

    is_exclusive: bool
    delivered: list[MessageId] = field(default_factory=list)
    acknowledged: set[MessageId] = field(default_factory=set)
    again: set[MessageId] = field(default_factory=set)
    """What the next consumer got. Not looked at for an exclusive one."""


@dataclass
class TopicHistory:
    """What clients did and were told; `log` is what was read from the beginning in the end."""

    has_deduplication: bool = False
    producers: dict[int, ProducerHistory] = field(default_factory=dict)
    refused: set[tuple[int, int]] = field(default_factory=set)
    """(producer, message) of what was sent to a broker that must not accept it."""
    log: list[tuple[MessageId, int, int, bool]] = field(default_factory=list)
    """(position, producer, message, content is what was sent)"""
    subscriptions: dict[str, SubscriptionHistory] = field(default_factory=dict)


def check_topic(name: str, history: TopicHistory) -> list[str]:
    """All that is wrong, as sentences; bounded."""
    found = [*_check_log(history), *_check_copies(history), *_check_receipts(history)]
    for subscription_name, subscription in history.subscriptions.items():
        found += (
            f"{subscription_name}: {sentence}"
            for sentence in _check_subscription(subscription, history)
        )
    return [f"{name}: {sentence}" for sentence in found[:VIOLATIONS_MAX]]


def _check_log(history: TopicHistory) -> list[str]:
    return stored.check_log(
        stored.TopicHistory(
            acked=[
                stored.Sent(number, message, position)
                for number, producer in history.producers.items()
                for message, position in producer.receipts.items()
                if position[0] >= 0
            ],
            failed={
                (number, message)
                for number, producer in history.producers.items()
                for message in producer.failed
            },
            log=history.log,
        )
    )


def _check_copies(history: TopicHistory) -> Iterator[str]:
    copies = Counter((producer, message) for _, producer, message, _ in history.log)
    for (number, message), count in copies.items():
        if (number, message) in history.refused:
            yield f"ACCEPTED: message {message} of producer {number}, sent when it must not be"
            continue
        producer = history.producers.get(number)
        if producer is None or message >= producer.sent:
            yield f"INVENTED: message {message} of producer {number} was never sent"
            continue
        allowed = 1 if history.has_deduplication else producer.connections
        if count > allowed:
            yield (
                f"DOUBLED: message {message} of producer {number} is stored {count} times, and "
                f"may be {allowed} times"
            )


def _check_receipts(history: TopicHistory) -> Iterator[str]:
    there = {(producer, message) for _, producer, message, _ in history.log}
    for number, producer in history.producers.items():
        for message, position in producer.receipts.items():
            if position[0] < 0 and (number, message) not in there:
                yield f"LOST: producer {number} message {message}, acked as a duplicate"
        for message, reason in producer.failed.items():
            yield f"REFUSED: message {message} of producer {number}: {reason}"


def _check_subscription(subscription: SubscriptionHistory, history: TopicHistory) -> Iterator[str]:
    positions = [entry[0] for entry in history.log]
    known = set(positions)
    delivered = set(subscription.delivered)
    missing = [position for position in positions if position not in delivered]
    if missing:
        yield f"NOT DELIVERED: {len(missing)} of {len(positions)}, the first {missing[0]}"
    strange = delivered - known
    if strange:
        yield f"INVENTED: {min(strange)} was delivered, which the topic does not hold"
    if subscription.is_exclusive:
        newest: MessageId = (-1, -1, -1)
        for position in dict.fromkeys(subscription.delivered):
            if position < newest:
                yield f"REORDERED: {position} was delivered after {newest}"
            newest = max(newest, position)
        return
    lacking = [
        position
        for position in positions
        if position not in subscription.acknowledged and position not in subscription.again
    ]
    if lacking:
        yield (
            f"NOT DELIVERED: {len(lacking)} never acknowledged are not delivered again, the first "
            f"{lacking[0]}"
        )


def longest_pause_seconds(times: Sequence[float], begin: float, end: float) -> float:
    """The longest time without an event that begins between `begin` and `end`, or before and is
    counted from `begin` on then. `times` ascend."""
    longest, before = 0.0, begin
    for time in times:
        if time <= begin:
            continue
        longest = max(longest, time - before)
        before = time
        if time >= end:
            return longest
    return max(longest, end - before)
