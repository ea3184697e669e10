"""Pure checks of the observations of clients against the content of the topic after crashes.

The promises:

- A message whose send callback said Ok is at the message id it was given, with its content, for
  ever. A message whose callback had not come yet may be there twice, because the client sends it
  again after it reconnects (without deduplication real Pulsar stores both); but never again after
  the position that was acked.
- The first occurrences of one producer's messages are in the order it sent them, none skipped.
- A position holds one entry, and the entry ids of a ledger have no holes.
- An acknowledgement that a server lived with for longer than the flush interval is kept: what it
  covers is never delivered again. Unacknowledged messages are delivered again: holes are kept.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import NamedTuple

MessageId = tuple[int, int, int]
"""(ledger id, entry id, batch index; -1 when not batched)"""

VIOLATIONS_MAX = 50
CONNECT_SECONDS = 1.0
"""A client may need as long to be connected after the server is ready: acknowledgements given
earlier are not counted on."""


class Lifetime(NamedTuple):
    """One incarnation of the server, in seconds on the driver's clock."""

    ready_at: float
    killed_at: float


class Sent(NamedTuple):
    """A send that was acked Ok."""

    producer: int
    sequence: int
    message_id: MessageId


class Event(NamedTuple):
    """A message received or acknowledged, and when."""

    message_id: MessageId
    at: float


@dataclass
class SubscriptionHistory:
    """The events of one subscription, in order."""

    is_cumulative: bool
    received: list[Event] = field(default_factory=list)
    acked: list[Event] = field(default_factory=list)


@dataclass
class TopicHistory:
    """Operations and observations of clients on one topic; `log` is its content at the end."""

    acked: list[Sent] = field(default_factory=list)
    failed: set[tuple[int, int]] = field(default_factory=set)
    """(producer, sequence) whose send was reported as failed: may or may not be there."""
    log: list[tuple[MessageId, int, int, bool]] = field(default_factory=list)
    """(message id, producer, sequence, content is what was sent), in the order read."""
    subscriptions: dict[str, SubscriptionHistory] = field(default_factory=dict)


def check_topic(
    name: str, history: TopicHistory, lifetimes: list[Lifetime], flush_seconds: float
) -> list[str]:
    """All that is wrong, as sentences; bounded."""
    found = check_log(history)
    for subscription_name, subscription in history.subscriptions.items():
        check = _check_cumulative if subscription.is_cumulative else _check_individual
        found += (
            f"{subscription_name}: {one}"
            for one in check(subscription, history, lifetimes, flush_seconds)
        )
    return [f"{name}: {one}" for one in found[:VIOLATIONS_MAX]]


def check_log(history: TopicHistory) -> list[str]:
    """What is wrong with the content of the topic itself, subscriptions left aside."""
    return [
        *_check_positions(history),
        *_check_acked(history),
        *_check_producer_order(history),
    ]


def _check_positions(history: TopicHistory) -> list[str]:
    found = []
    previous: MessageId | None = None
    for message_id, _, _, is_intact in history.log:
        if not is_intact:
            found.append(f"content of {message_id} is not what was sent")
        if previous is not None:
            ledger_id, entry_id, batch_index = message_id
            if message_id <= previous:
                found.append(f"{message_id} read after {previous}")
            elif ledger_id == previous[0]:
                is_same_entry = entry_id == previous[1] and batch_index == previous[2] + 1
                is_next_entry = entry_id == previous[1] + 1 and batch_index <= 0
                if not is_same_entry and not is_next_entry:
                    found.append(f"hole between {previous} and {message_id}")
            elif entry_id != 0 or batch_index > 0:
                found.append(f"ledger {ledger_id} starts with {message_id}")
        previous = message_id
    return found


def _check_acked(history: TopicHistory) -> list[str]:
    there = {message_id: (producer, sequence) for message_id, producer, sequence, _ in history.log}
    last_seen: dict[tuple[int, int], MessageId] = {}
    for message_id, producer, sequence, _ in history.log:
        last_seen[producer, sequence] = message_id
    found = []
    acked_once: set[tuple[int, int]] = set()
    for producer, sequence, message_id in history.acked:
        message = (producer, sequence)
        if message_id not in there:
            found.append(f"LOST: producer {producer} message {sequence}, acked as {message_id}")
        elif there[message_id] != message:
            found.append(f"{message_id} was acked for {message} but holds {there[message_id]}")
        elif last_seen[message] != message_id:
            found.append(f"{message} is there again at {last_seen[message]} after {message_id}")
        if message in acked_once:
            found.append(f"{message} was acked twice")
        acked_once.add(message)
    return found


def _check_producer_order(history: TopicHistory) -> list[str]:
    found = []
    next_sequence: dict[int, int] = defaultdict(int)
    for message_id, producer, sequence, _ in history.log:
        expected = next_sequence[producer]
        while expected < sequence and (producer, expected) in history.failed:
            expected += 1
        if sequence > expected:
            found.append(
                f"producer {producer}: message {sequence} at {message_id} before {expected}"
            )
        next_sequence[producer] = max(next_sequence[producer], sequence + 1)
    return found


def _lifetime_of(at: float, lifetimes: list[Lifetime], flush_seconds: float) -> int | None:
    """The incarnation that lived long enough to keep an acknowledgement of that moment."""
    for number, (ready_at, killed_at) in enumerate(lifetimes):
        if ready_at + CONNECT_SECONDS <= at <= killed_at - flush_seconds:
            return number
    return None


def _received_in(subscription: SubscriptionHistory, lifetime: Lifetime) -> list[Event]:
    return [
        event
        for event in subscription.received
        if lifetime.ready_at <= event.at <= lifetime.killed_at
    ]


def _check_cumulative(
    subscription: SubscriptionHistory,
    history: TopicHistory,
    lifetimes: list[Lifetime],
    flush_seconds: float,
) -> list[str]:
    """Exclusive: delivery goes on in order, right after the acknowledged messages, or before."""
    place = {entry[0]: index for index, entry in enumerate(history.log)}
    found = []
    kept = [(-1, -1)] * (len(lifetimes) + 1)  # by incarnation: newest entry it must know as acked
    for message_id, at in subscription.acked:
        number = _lifetime_of(at, lifetimes, flush_seconds)
        if number is not None:
            ledger_id, entry_id, batch_index = message_id
            # Within a batch a client without batch index acks covers only what is before it.
            whole = entry_id if batch_index < 0 else entry_id - 1
            kept[number + 1] = max(kept[number + 1], (ledger_id, whole))
    for number, lifetime in enumerate(lifetimes):
        kept[number] = max(kept[: number + 1])
        previous: int | None = None
        again: list[MessageId] = []
        for message_id, at in _received_in(subscription, lifetime):
            index = place.get(message_id)
            if index is None:
                found.append(f"received {message_id}, which the topic does not hold")
                continue
            if message_id[:2] <= kept[number]:
                again.append(message_id)
            if previous is None:
                first = 1 + _newest_acked(subscription, place, at)
                if index > first:
                    found.append(f"starts with {message_id}, {index - first} unacked are skipped")
            elif index != previous + 1:
                found.append(f"{message_id} follows {history.log[previous][0]}")
            previous = index
        if again:
            found.append(
                f"{len(again)} messages again from {again[0]} to {again[-1]}, though acked "
                f"up to {kept[number]}"
            )
    return found


def _newest_acked(
    subscription: SubscriptionHistory, place: dict[MessageId, int], before: float
) -> int:
    """Place in the log of the newest message acknowledged by then, whether kept or not."""
    return max(
        (place.get(event.message_id, -1) for event in subscription.acked if event.at < before),
        default=-1,
    )


def _check_individual(
    subscription: SubscriptionHistory,
    history: TopicHistory,
    lifetimes: list[Lifetime],
    flush_seconds: float,
) -> list[str]:
    """Shared: an entry acked as a whole within one incarnation is not delivered in later ones;
    what was never acked is delivered in the last one."""
    messages_of: dict[tuple[int, int], int] = defaultdict(int)
    for message_id, *_ in history.log:
        messages_of[message_id[:2]] += 1
    acked_in: dict[tuple[int, int, int], set[int]] = defaultdict(set)
    acked_ever: set[MessageId] = set()
    for message_id, at in subscription.acked:
        acked_ever.add(message_id)
        number = _lifetime_of(at, lifetimes, flush_seconds)
        if number is not None:
            acked_in[(*message_id[:2], number)].add(message_id[2])
    kept_since: dict[tuple[int, int], int] = {}
    for (ledger_id, entry_id, number), indexes in acked_in.items():
        entry = (ledger_id, entry_id)
        if len(indexes) == messages_of[entry]:
            kept_since[entry] = min(number, kept_since.get(entry, number))
    found = []
    for number, lifetime in enumerate(lifetimes):
        again: list[MessageId] = []
        for event in _received_in(subscription, lifetime):
            entry = event.message_id[:2]
            if entry not in messages_of:
                found.append(f"received {event.message_id}, which the topic does not hold")
            if kept_since.get(entry, number) < number:
                again.append(event.message_id)
        if again:
            found.append(
                f"{len(again)} messages again, {again[0]} to {again[-1]}, though acked long before "
                f"incarnation {number}"
            )
    delivered = {event.message_id for event in _received_in(subscription, lifetimes[-1])}
    for message_id, *_ in history.log:
        if message_id not in acked_ever and message_id not in delivered:
            found.append(f"{message_id} was never acked and is not delivered again")
    return found


def kept_hole_count(subscription: SubscriptionHistory, history: TopicHistory) -> int:
    """Messages never acked that lie before an acked one."""
    acked = {event.message_id for event in subscription.acked}
    newest = max(acked, default=(-1, -1, -1))
    return sum(1 for entry in history.log if entry[0] < newest and entry[0] not in acked)
