"""What deduplication knows of a topic."""

from __future__ import annotations

from broker.topics.topic.dedup_part import DEDUPLICATION


def dedup_of(topic):
    """None: it is off, or not loaded."""
    part = topic.part(DEDUPLICATION)
    return None if part is None else part.store
