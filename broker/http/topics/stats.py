"""`.../{topic}/stats` and related endpoints."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar

from broker.ground.refusal import not_found
from broker.http.router import Route
from broker.http.streaming import Streamed, encoded, json_map
from broker.http.topics.earliest_times import earliest_times
from broker.http.topics.internal_json import LedgerRecord, internal_stats, managed_ledger_info
from broker.http.topics.topic_json import PartitionedStats, TopicStats
from broker.http.topics.topic_layouts import topic_layouts
from broker.http.topics.topics import (
    TOPIC,
    every_part,
    every_stored_part,
    existing,
    existing_persistent,
)
from broker.tenancy.namespaces.names import managed_ledger_path
from ledgers.errors import LedgerError, LedgerNotFound
from protocol.bookkeeper.ledger_metadata_text import ledger_metadata_text

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence

    from broker.http.context import AdminContext, AdminRequest
    from broker.topics.topic.persistent import PersistentTopic
    from broker.topics.topic.topic import Topic
    from protocol.bookkeeper.ledger_metadata import LedgerMetadata

Json = dict[str, Any]
T = TypeVar("T")


async def stats(request: AdminRequest) -> Streamed:
    """TopicStats."""
    return Streamed((await _stats(request, await existing(request))).pieces())


async def stats_of_partitions(request: AdminRequest) -> Streamed:
    """PartitionedTopicStats."""
    metadata = await _partitioned(request)
    parts = await every_part(request.context, request.topic)
    rows = [(part.name.full, await _stats(request, part)) for part in parts]
    per_part = request.flag("perPartition", default=True)
    return Streamed(PartitionedStats(rows, metadata, per_part).pieces())


async def _stats(request: AdminRequest, topic: Topic) -> TopicStats:
    asked = request.flag("getEarliestTimeInBacklog")
    return TopicStats(
        topic,
        request.context.broker_id,
        publishers=not request.flag("excludePublishers"),
        consumers=not request.flag("excludeConsumers"),
        earliest=await earliest_times(topic) if asked else None,
    )


async def internal(request: AdminRequest) -> Streamed:
    """PersistentTopicInternalStats."""
    return Streamed(await _internal(request, await existing_persistent(request)))


async def internal_of_partitions(request: AdminRequest) -> Streamed:
    """PartitionedTopicInternalStats."""
    metadata = await _partitioned(request)
    parts = await every_stored_part(request.context, request.topic)
    rows = [(part.name.full, await _internal(request, part)) for part in parts]
    return Streamed(_with_metadata(metadata, rows))


def _with_metadata(metadata: Json, rows: Sequence[tuple[str, Iterator[str]]]) -> Iterator[str]:
    yield '{"metadata":' + encoded(metadata) + ',"partitions":'
    yield from json_map(rows)
    yield "}"


async def _internal(request: AdminRequest, topic: PersistentTopic) -> Iterator[str]:
    context = request.context

    async def record_of(ledger_id: int) -> LedgerRecord:
        try:
            metadata = await context.ledgers.metadata_of(ledger_id)
        except LedgerError as error:
            return LedgerRecord(str(error), is_under_replicated=False)
        text = ledger_metadata_text(metadata, context.bookie_addresses)
        return LedgerRecord(text, _is_under_replicated(context, metadata))

    records = await _of_ledgers(topic, record_of) if request.flag("metadata") else {}
    return internal_stats(topic, records, await _schema_ledgers(context, topic))


def _is_under_replicated(context: AdminContext, metadata: LedgerMetadata) -> bool:
    """Whether a bookie that should have copies is not registered."""
    if context.ledgers.has_one_bookie:
        return False
    known = frozenset(context.ledgers.bookie_ids)
    return any(not known.issuperset(bookies) for bookies in metadata.ensembles.values())


async def _schema_ledgers(context: AdminContext, topic: PersistentTopic) -> list[Json]:
    """The ledgers of the topic's schemas. One that was not closed has no counts."""
    rows: list[Json] = []
    for ledger_id in await context.schemas.ledgers_of(topic.name):
        try:
            metadata = await context.ledgers.metadata_of(ledger_id)
        except LedgerError:
            continue  # deleted meanwhile, or lost: requests for the schema report that
        row = {"ledgerId": ledger_id, "entries": 0, "size": 0, "offloaded": False}
        if metadata.is_closed:
            row |= {"entries": metadata.last_entry_id + 1, "size": metadata.length}
        rows.append(row | {"underReplicated": _is_under_replicated(context, metadata)})
    return rows


async def ledger_layouts(request: AdminRequest) -> Json:
    """Vela's own: the locations of a topic's entries, for readers that bypass the broker."""
    context = request.context
    topic = await existing_persistent(request)

    async def metadata_of(ledger_id: int) -> LedgerMetadata | None:
        try:
            return await context.ledgers.metadata_of(ledger_id)
        except LedgerNotFound:
            return None  # trimmed meanwhile

    found = await _of_ledgers(topic, metadata_of)
    metadata = {ledger_id: each for ledger_id, each in found.items() if each is not None}
    return topic_layouts(topic.ledger.statistics(), metadata, context.bookie_addresses)


async def _of_ledgers(topic: PersistentTopic, ask: Callable[[int], Awaitable[T]]) -> dict[int, T]:
    """The answer for each ledger the topic has at the end, including ledgers made meanwhile."""
    found: dict[int, T] = {}
    while missing := sorted(topic.ledger.ledger_ids - found.keys()):
        for ledger_id in missing:
            found[ledger_id] = await ask(ledger_id)
    return found


async def internal_info(request: AdminRequest) -> Streamed:
    """ManagedLedgerInfo: the record in the metadata store."""
    context = request.context
    topic = await existing_persistent(request)
    stored = await context.store.get(managed_ledger_path(topic.name))
    version = stored[1] if stored is not None else -1
    return Streamed(managed_ledger_info(topic.ledger, version, context.clock.wall_ms()))


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
