"""`.../{topic}/stats` and its relatives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar

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
    from collections.abc import Awaitable, Callable

    from broker.admin.context import AdminRequest
    from broker.topic.topic import Topic
    from protocol.bookkeeper.ledger_metadata import LedgerMetadata

Json = dict[str, Any]
T = TypeVar("T")


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

    async def text_of(ledger_id: int) -> str:
        try:
            metadata = await context.ledgers.metadata_of(ledger_id)
            return ledger_metadata_text(metadata, context.bookie_addresses)
        except LedgerError as error:
            return str(error)

    texts = await _of_ledgers(topic, text_of) if request.flag("metadata") else {}
    return internal_stats(topic, texts)


async def ledger_layouts(request: AdminRequest) -> Json:
    """Vela's own: where the entries of a topic lie, for readers that go past the broker."""
    context = request.context
    topic = await existing_persistent(request)

    async def metadata_of(ledger_id: int) -> LedgerMetadata | None:
        try:
            return await context.ledgers.metadata_of(ledger_id)
        except LedgerNotFound:
            return None  # trimmed since

    found = await _of_ledgers(topic, metadata_of)
    metadata = {ledger_id: each for ledger_id, each in found.items() if each is not None}
    return topic_layouts(topic.ledger.statistics(), metadata, context.bookie_addresses)


async def _of_ledgers(topic: PersistentTopic, ask: Callable[[int], Awaitable[T]]) -> dict[int, T]:
    """The answer for each ledger the topic has in the end, those made meanwhile included."""
    found: dict[int, T] = {}
    while missing := sorted(topic.ledger.ledger_ids - found.keys()):
        for ledger_id in missing:
            found[ledger_id] = await ask(ledger_id)
    return found


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
