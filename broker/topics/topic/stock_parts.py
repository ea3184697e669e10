"""The parts that every broker gives its topics, where they are wanted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker.topics.topic.dedup_part import DeduplicationKind
from broker.topics.topic.log_compaction import LogCompactionKind

if TYPE_CHECKING:
    from broker.ground.config import BrokerConfig
    from broker.topics.topic.parts import PartKind
    from runtime.clock import Clock


def stock_parts(config: BrokerConfig, clock: Clock) -> tuple[PartKind[Any], ...]:
    """One kind each, for one broker. Kinds that refuse messages belong before deduplication, which
    remembers what it has admitted."""
    return (LogCompactionKind(config), DeduplicationKind(config, clock))
