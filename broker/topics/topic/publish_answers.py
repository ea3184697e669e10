"""The answers to the messages that a persistent topic has handed to its ledger. Hot path.

A journal group is answered by the run of messages of one producer, and the runs of one session are
counted together. Duplicates of messages in flight are parked until these are stored or fail, and
answered with them (`TopicPart.stored`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker.topics.topic.producer import STORED_BEFORE

if TYPE_CHECKING:
    from broker.ground.entry import Entry
    from broker.ground.histograms import EntrySizes
    from broker.topics.topic.producer import ProducerSession, Publish
    from protocol.errors import BrokerError


def answer_stored(entries: list[Entry], contexts: list[Any], sizes: EntrySizes) -> None:
    """Let the sessions know. `sizes` counts the entries."""
    session: ProducerSession | None = None
    count = answered_bytes = 0
    index, end = 0, len(entries)
    while index < end:
        publish: Publish = contexts[index]
        if publish.producer.session is not session:
            if session is not None:
                session.answered(count, answered_bytes)
            session = publish.producer.session
            count = answered_bytes = 0
        ledger_id, entry_id = entries[index].position
        taken, taken_bytes = publish.stored(ledger_id, entry_id, end - index, sizes)
        index += taken
        count += taken
        answered_bytes += taken_bytes
    if session is not None:
        session.answered(count, answered_bytes)


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
        answer_stored(entries[start:end], publishes[start:end], sizes)
        _answer_parked(copies)
        start = end
    if start < len(entries):
        answer_stored(entries[start:], publishes[start:], sizes)


def answer_duplicate(publish: Publish, count: int, size_bytes: int) -> None:
    """The message was stored before. `count` and `size_bytes` as for `ProducerSession.answered`: a
    message that was not taken counts nothing."""
    session = publish.producer.session
    session.stored(publish.producer, publish.send, *STORED_BEFORE)
    session.answered(count, size_bytes)


def _answer_parked(parked: list[Publish]) -> None:
    """Duplicates of messages that were in flight: these are durable now."""
    for publish in parked:
        answer_duplicate(publish, 1, publish.size)


def refuse_parked(parked: list[Publish], error: BrokerError) -> None:
    """Duplicates of messages that were in flight: these were not stored."""
    for publish in parked:
        producer = publish.producer
        producer.topic.refuse_message(producer, publish.send, error)
        producer.session.answered(1, publish.size)
