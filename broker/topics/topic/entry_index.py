"""The optional broker entry metadata: time of arrival, message index, or both before an entry.

Switched on by `brokerEntryMetadataInterceptors`, as in Pulsar; off by default. Each interceptor
adds its own field only. The index of an entry is that of its last message, counted from 0 over the
life of the topic. After a restart the count continues from the newest entry, or from 0 if that
entry has no index.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

from protocol.metadata import add_broker_entry_metadata, broker_entry_metadata

if TYPE_CHECKING:
    from broker.ground.config import BrokerConfig
    from broker.ground.entry import Entry
    from runtime.clock import Clock


class Indexed(Protocol):
    """A topic whose entries have indexes."""

    message_index: int
    """Index of the newest message."""


EntryInterceptor = Callable[[Indexed, bytes, int], bytes]

MESSAGE_INDEX_MAX: Final = 2**62
"""No topic has as many messages: an index this large was written by a producer while the broker
wrote none."""
_INDEX = "AppendIndexMetadataInterceptor"
_TIMESTAMP = "AppendBrokerTimestampMetadataInterceptor"


def entry_interceptor(config: BrokerConfig, clock: Clock) -> EntryInterceptor | None:
    """Adds the metadata to every entry before it is stored; None when none is configured."""
    names = {name.rpartition(".")[2] for name in config.brokerEntryMetadataInterceptors}
    has_index, has_timestamp = _INDEX in names, _TIMESTAMP in names
    if not has_index and not has_timestamp:
        return None

    def intercept(topic: Indexed, payload: bytes, message_count: int) -> bytes:
        if has_index:
            topic.message_index += message_count
        return add_broker_entry_metadata(
            payload,
            clock.wall_ms() if has_timestamp else None,
            topic.message_index if has_index else None,
        )

    return intercept


def message_index_of(newest: Entry | None) -> int:
    """From which index a topic with this newest entry goes on; -1: it begins."""
    if newest is None:
        return -1
    metadata = broker_entry_metadata(newest.data)
    if metadata is None or not metadata.HasField("index") or metadata.index > MESSAGE_INDEX_MAX:
        return -1
    return metadata.index
