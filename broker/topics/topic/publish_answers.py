"""The answers to the messages that a persistent topic has handed to its ledger. Hot path.

Receipts of a journal group are one buffer for each run of messages of one connection. Duplicates of
messages in flight are parked until these are stored or fail, and answered with them
(`TopicPart.stored`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from protocol import commands
from protocol.templates import ReceiptTemplate

if TYPE_CHECKING:
    from broker.ground.entry import Entry
    from broker.ground.histograms import EntrySizes
    from broker.net.session import AnySession
    from broker.topics.topic.producer import Producer, Publish
    from protocol.errors import BrokerError


def send_receipts(entries: list[Entry], contexts: list[Any], sizes: EntrySizes) -> None:
    """One buffer for each run of messages of one connection. `sizes` counts the entries."""
    session: AnySession | None = None
    template: ReceiptTemplate | None = None
    producer: Producer | None = None
    last_ledger_id = -1
    parts: list[bytes] = []
    count = answered_bytes = 0
    index, end = 0, len(entries)
    while index < end:
        publish: Publish = contexts[index]
        ledger_id, entry_id = entries[index].position
        if publish.producer is not producer or ledger_id != last_ledger_id or template is None:
            producer, last_ledger_id = publish.producer, ledger_id
            template = ReceiptTemplate(producer.producer_id, ledger_id)
            if producer.session is not session:
                if session is not None:
                    session.publish_answered(b"".join(parts), count, answered_bytes)
                session = producer.session
                parts = []
                count = answered_bytes = 0
        taken, taken_bytes = publish.append_receipts(template, parts, entry_id, end - index, sizes)
        index += taken
        count += taken
        answered_bytes += taken_bytes
    if session is not None:
        session.publish_answered(b"".join(parts), count, answered_bytes)


def answer_with_copies(
    waiting: list[tuple[int, list[Publish]]],
    entries: list[Entry],
    publishes: list[Publish],
    sizes: EntrySizes,
) -> None:
    """Copies of a message are answered after it and before what follows it: each producer gets
    its receipts in the order in which it sent. `waiting`: see `TopicPart.stored`, in order."""
    start = 0
    for end, copies in waiting:
        send_receipts(entries[start:end], publishes[start:end], sizes)
        _answer_parked(copies)
        start = end
    if start < len(entries):
        send_receipts(entries[start:], publishes[start:], sizes)


def _answer_parked(parked: list[Publish]) -> None:
    """Duplicates of messages that were in flight: these are durable now."""
    for publish in parked:
        producer, send = publish.producer, publish.send
        producer.session.send(
            commands.send_receipt(
                producer.producer_id, send.sequence_id, send.highest_sequence_id, -1, -1
            )
        )
        producer.session.publish_done(1, publish.size)


def refuse_parked(parked: list[Publish], error: BrokerError) -> None:
    """Duplicates of messages that were in flight: these were not stored."""
    for publish in parked:
        producer = publish.producer
        producer.topic.refuse_message(producer, publish.send, error)
        producer.session.publish_done(1, publish.size)
