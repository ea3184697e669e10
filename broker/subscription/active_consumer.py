"""Chooses the one consumer of an Exclusive or Failover subscription that is served.

Consumers are ordered by priority level (0 first), then by name. Among those of the best level the
one at `partition % their number` is active, which spreads the partitions of a topic over them. On a
topic without partitions, the name of the topic is looked up in a hash ring of consumer names, which
spreads topics in the same way (Pulsar 4.0's rule, 100 points per consumer).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from protocol.hashing import key_hash

if TYPE_CHECKING:
    from collections.abc import Sequence

    from broker.subscription.consumer import Consumer

RING_POINTS: Final = 100


def choose_active(
    consumers: Sequence[Consumer], partition: int, topic_name: str
) -> Consumer | None:
    """The active consumer; None without consumers. Equal names keep their order of arrival."""
    if not consumers:
        return None
    best = min(consumer.priority_level for consumer in consumers)
    candidates = sorted(
        (consumer for consumer in consumers if consumer.priority_level == best),
        key=lambda consumer: consumer.name,
    )
    if len(candidates) == 1:
        return candidates[0]
    if partition >= 0:
        return candidates[partition % len(candidates)]
    ring: dict[int, Consumer] = {}
    for consumer in candidates:
        for point in range(RING_POINTS):
            ring[key_hash(f"{consumer.name}{point}".encode())] = consumer
    wanted = key_hash(topic_name.encode())
    after = [point for point in ring if point >= wanted]
    return ring[min(after) if after else min(ring)]
