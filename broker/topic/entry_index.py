"""The optional broker entry metadata: time of arrival and message index in front of an entry.

Switched on by `brokerEntryMetadataInterceptors`, as in Pulsar; off by default. The index of an
entry is that of its last message, counted from 0 over the life of the topic; it is continued after
a restart from the newest entry.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from protocol.metadata import add_broker_entry_metadata

if TYPE_CHECKING:
    from broker.config import BrokerConfig
    from broker.seams import Clock
    from broker.topic.persistent import PersistentTopic

EntryInterceptor = Callable[["PersistentTopic", bytes, int], bytes]

_INDEX = "AppendIndexMetadataInterceptor"
_TIMESTAMP = "AppendBrokerTimestampMetadataInterceptor"


def entry_interceptor(config: BrokerConfig, clock: Clock) -> EntryInterceptor | None:
    """What is done to every entry before it is stored; None when nothing is configured."""
    names = {name.rpartition(".")[2] for name in config.brokerEntryMetadataInterceptors}
    if not names & {_INDEX, _TIMESTAMP}:
        return None

    def intercept(topic: PersistentTopic, payload: bytes, message_count: int) -> bytes:
        topic.message_index += message_count
        return add_broker_entry_metadata(payload, clock.wall_ms(), topic.message_index)

    return intercept
