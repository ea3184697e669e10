"""`.../{topic}/stats` and its relatives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from broker.admin.router import Route
from broker.admin.topic_json import (
    internal_stats,
    managed_ledger_info,
    partitioned_stats,
    topic_stats,
)
from broker.admin.topic_layouts import topic_layouts
from broker.admin.topics import TOPIC, every_part, existing, existing_persistent
from broker.bookie_client.errors import LedgerError, LedgerNotFound
from broker.namespaces.names import managed_ledger_path
from broker.namespaces.refusal import not_found
from broker.topic.persistent import PersistentTopic
from protocol.bookkeeper.ledger_metadata_text import ledger_metadata_text

if TYPE_CHECKING:
    from broker.admin.context import AdminRequest
    from broker.topic.topic import Topic
    from protocol.bookkeeper.ledger_metadata import LedgerMetadata

Json = dict[str, Any]


async def stats(request: AdminRequest) -> Json:
    """TopicStats."""
    return _stats(request, await existing(request))


async def stats_of_partitions(request: AdminRequest) -> Json:
    """PartitionedTopicStats."""
    metadata = await _partitioned(request)
    parts = await every_part(request.context, request.topic)
    rows = [(part.name.full, _stats(request, part)) for part in parts]
    return partitioned_stats(rows, metadata, request.flag("perPartition", default=True))


def _stats(request: AdminRequest, topic: Topic) -> Json:
    return topic_stats(
        topic,
        request.context.broker_id,
        publishers=not request.flag("excludePublishers"),
        consumers=not request.flag("excludeConsumers"),
    )


async def internal(request: AdminRequest) -> Json:
    """PersistentTopicInternalStats."""
    return await _internal(request, await existing_persistent(request))


async def internal_of_partitions(request: AdminRequest) -> Json:
    """PartitionedTopicInternalStats."""
    metadata = await _partitioned(request)
    parts = await every_part(request.context, request.topic)
    return {
        "metadata": metadata,
        "partitions": {
            part.name.full: await _internal(request, part)
            for part in parts
            if isinstance(part, PersistentTopic)
        },
    }


async def _internal(request: AdminRequest, topic: PersistentTopic) -> Json:
    context = request.context
    texts: dict[int, str] = {}
    if request.flag("metadata"):
        for row in topic.ledger.statistics().ledgers:
            try:
                metadata = await context.ledgers.metadata_of(row.ledger_id)
                texts[row.ledger_id] = ledger_metadata_text(metadata, context.bookie_addresses)
            except LedgerError as error:
                texts[row.ledger_id] = str(error)
    return internal_stats(topic, texts)


async def ledger_layouts(request: AdminRequest) -> Json:
    """Vela's own: where the entries of a topic lie, for readers that go past the broker."""
    context = request.context
    topic = await existing_persistent(request)
    metadata: dict[int, LedgerMetadata] = {}
    for row in topic.ledger.statistics().ledgers:
        try:
            metadata[row.ledger_id] = await context.ledgers.metadata_of(row.ledger_id)
        except LedgerNotFound:
            continue  # trimmed since
    return topic_layouts(topic.ledger.statistics(), metadata, context.bookie_addresses)


async def internal_info(request: AdminRequest) -> Json:
    """ManagedLedgerInfo: what is kept in the metadata store."""
    context = request.context
    topic = await existing_persistent(request)
    stored = await context.store.get(managed_ledger_path(topic.name))
    version = stored[1] if stored is not None else -1
    return managed_ledger_info(topic.ledger, version, context.clock.wall_ms())


async def _partitioned(request: AdminRequest) -> Json:
    namespace = await request.context.namespaces.get(request.namespace_name)
    metadata = namespace.partitioned.metadata(request.topic)
    if metadata is None:
        raise not_found(f"Partitioned Topic {request.topic.full} not found")
    return metadata


ROUTES: Final = (
    Route("GET", f"{TOPIC}/stats", stats),
    Route("GET", f"{TOPIC}/partitioned-stats", stats_of_partitions),
    Route("GET", f"{TOPIC}/internalStats", internal),
    Route("GET", f"{TOPIC}/partitioned-internalStats", internal_of_partitions),
    Route("GET", f"{TOPIC}/internal-info", internal_info),
    Route("GET", f"{TOPIC}/ledgerLayouts", ledger_layouts),
)
