"""What must hold whatever happened, judged by what clients sent, got and acknowledged."""

from __future__ import annotations

from collections import Counter

from protocol import pulsar_api_pb2 as pb
from tests.simulation.clients import payload_of

STORED_SECONDS = 3.0
"""So long after an acknowledgement it is stored, if nothing is disturbed."""
ARRIVED_SECONDS = 0.5
RECOVERED_SECONDS = 8.0
"""So long after a fault has healed nothing is disturbed by it any more."""


def check_topic(producers, subscribers, *, has_deduplication, disturbed):
    """Yields a sentence for everything that is wrong with one topic. `disturbed`: beginnings and
    ends of faults."""
    content = {}
    for subscriber in subscribers:
        for position, payload in subscriber.content.items():
            if content.setdefault(position, payload) != payload:
                yield f"{position} is {content[position]} and {payload} for two subscriptions"
    yield from _check_holes(content)
    for subscriber in subscribers:
        yield from _check_deliveries(subscriber, content)
        yield from _check_repeated(subscriber, disturbed)
    by_payload = Counter(content.values())
    in_order = [content[position] for position in sorted(content)]
    for producer in producers:
        yield from _check_receipts(producer, content)
        yield from _check_order(producer, in_order)
        yield from _check_doubles(producer, by_payload, has_deduplication)
    known = {payload_of(each.name, seq) for each in producers for seq in range(len(each.sends))}
    for payload in by_payload:
        if payload not in known:
            yield f"{payload} was delivered and never sent"


def _check_receipts(producer, content):
    everything = set(content.values())
    for seq, receipt in enumerate(producer.receipts):
        payload = payload_of(producer.name, seq)
        if receipt is None:
            continue
        if payload not in everything:
            yield (
                f"{payload} is lost: it has a receipt for {receipt}, given at "
                f"{producer.receipt_times[seq]:.3f}, and was never delivered"
            )
        elif receipt and content.get(receipt) != payload:
            yield f"{payload} has a receipt for {receipt}, where {content.get(receipt)} is"


def _check_order(producer, in_order):
    """First copies are in the order in which they were sent."""
    mine = f"{producer.name}:".encode()
    highest = -1
    for payload in in_order:
        if payload.startswith(mine):
            seq = int(payload[len(mine) :])
            if seq > highest + 1:
                yield f"{payload} is stored before {producer.name}:{highest + 1}"
            highest = max(highest, seq)


def _check_doubles(producer, by_payload, has_deduplication):
    for seq, sends in enumerate(producer.sends):
        copies = by_payload[payload_of(producer.name, seq)]
        allowed = 1 if has_deduplication else sends
        if copies > allowed:
            yield f"{producer.name}:{seq} is stored {copies} times, and was sent {sends} times"


def _check_holes(content):
    """Entry ids of a ledger begin at 0 and have no holes."""
    entries = Counter(ledger_id for ledger_id, _entry_id in content)
    last = {}
    for ledger_id, entry_id in content:
        last[ledger_id] = max(last.get(ledger_id, -1), entry_id)
    for ledger_id, count in entries.items():
        if last[ledger_id] + 1 != count:
            yield f"ledger {ledger_id} has {count} entries up to {last[ledger_id]}"


def _check_deliveries(subscriber, content):
    missing = sorted(content.keys() - subscriber.content.keys())
    if missing:
        yield (
            f"subscription {subscriber.name} of {subscriber.topic} did not get {len(missing)} "
            f"entries, the first {missing[0]} ({content[missing[0]]})"
        )
    if subscriber.sub_type == pb.CommandSubscribe.Exclusive:
        seen, attachment, last = set(), None, (-1, -1)
        for when, _consumer, number, position in subscriber.deliveries:
            if number != attachment:
                attachment, last = number, (-1, -1)
            if position not in seen and position < last:
                yield f"{subscriber.name} got {position} after {last} at {when:.3f}"
            seen.add(position)
            last = max(last, position)


def _check_repeated(subscriber, disturbed):
    """What was acknowledged while nothing was disturbed does not come again: not to the same
    exclusive consumer, and to nobody once the acknowledgement is stored."""
    is_exclusive = subscriber.sub_type == pb.CommandSubscribe.Exclusive
    for when, attachment, position, (acked, acked_by) in subscriber.again:
        is_same = is_exclusive and attachment == acked_by and position not in subscriber.given_back
        effective = acked + (ARRIVED_SECONDS if is_same else STORED_SECONDS)
        was_calm = not any(
            begin < effective and end > acked - RECOVERED_SECONDS for begin, end in disturbed
        )
        if was_calm and effective < min(when, subscriber.left.get(acked_by, when)):
            yield (
                f"{subscriber.name} got {position} again at {when:.3f}, acknowledged at "
                f"{acked:.3f}, when nothing was disturbed"
            )
