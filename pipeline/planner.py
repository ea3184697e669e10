"""The driver's part of a read: topics, bounds, tasks, and the subscription that holds the data.

The anchor is one durable subscription per topic (partition), made before a stream plans its first
micro-batch and moved by `commit`, so that retention keeps what the stream has not processed. Its
name is stored beside the offsets in Spark's checkpoint: a restarted query finds its anchor again,
and a query that has stopped keeps it, because only the user knows whether it will come back.
"""

from __future__ import annotations

import logging
import time
import uuid
from typing import TYPE_CHECKING, Any, Final, final

from pipeline.admin import Admin, NotFound, ledger_rows
from pipeline.data_loss import report_loss
from pipeline.filters import keeps_topic, publish_time_range_ms
from pipeline.offsets import (
    NOTHING_YET,
    Bound,
    Offset,
    Offsets,
    at,
    before,
    earlier,
    from_checkpoint,
    is_latest,
    later,
    to_checkpoint,
)
from pipeline.options import (
    InvalidOption,
    SourceOptions,
    check_not_ahead,
    pattern_namespace,
    topic_matches,
)
from pipeline.plan import (
    Budget,
    LedgerRow,
    Slice,
    Task,
    admitted,
    batch_tasks,
    cut,
    entries_per_task,
    stream_tasks,
)
from pipeline.registry import BYTES, TopicSchema, common_schema, from_registry
from protocol.position import EARLIEST, LATEST
from protocol.topic_name import TopicName

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pipeline.filters import Condition
    from protocol.message_id import MessageId

Json = Any
WAIT_SECONDS: Final = 1.0
"""Between two looks for a topic that does not exist yet."""
_log = logging.getLogger(__name__)


class UnknownTopic(Exception):
    """A topic that was asked for does not exist."""


def topics_of(admin: Admin, options: SourceOptions) -> list[str]:
    """All topics to read, partitions one by one.

    Raises: UnknownTopic.
    """
    if options.topics_pattern:
        domain, namespace = pattern_namespace(options.topics_pattern)
        try:
            found = admin.topics_of(domain, namespace)
        except NotFound as error:
            raise UnknownTopic(f"topicsPattern {options.topics_pattern}: {error}") from error
        return sorted(topic for topic in found if topic_matches(options.topics_pattern, topic))
    parts: list[str] = []
    for topic in options.topics:
        try:
            parts += admin.parts_of(topic)
        except NotFound as error:
            raise UnknownTopic(
                f"topic {topic} does not exist ({error}): create it, or correct option "
                "topic/topics, or set waitingForNonExistedTopic=true"
            ) from error
    return parts


def _existing_topics(admin: Admin, options: SourceOptions) -> list[str]:
    """As `topics_of`; with `waitingForNonExistedTopic` it returns when all exist.

    Raises: UnknownTopic.
    """
    told = False
    while True:
        try:
            return topics_of(admin, options)
        except UnknownTopic as unknown:
            if not options.wait_for_topic:
                raise
            if not told:
                _log.warning("%s; waiting for it", unknown)
                told = True
            time.sleep(WAIT_SECONDS)


def schema_of(admin: Admin, options: SourceOptions) -> TopicSchema:
    """The one schema of all topics, once they exist. Raises: UnknownTopic, SchemaError."""
    topics = _existing_topics(admin, options)
    if options.raw_values:
        return BYTES
    bases = {TopicName.parse(topic).partitioned_base.full for topic in topics}
    schemas = {base: from_registry(admin.schema(base), base) for base in sorted(bases)}
    return common_schema(schemas, allow_different=options.allow_different_topic_schemas)


def schema_of_version(admin: Admin, topic: str, version: int) -> TopicSchema:
    """For messages written with another version. Raises: SchemaError."""
    return from_registry(admin.schema(topic, version), topic)


def start_offsets(admin: Admin, options: SourceOptions, topics: list[str], default: str) -> Offsets:
    """Where to begin, as concrete ids."""
    bound = options.starting or Bound(default)
    offsets: Offsets = {}
    for topic in topics:
        if options.starting_time_ms is not None:
            offsets[topic] = admin.offset_before_time(topic, options.starting_time_ms)
        elif bound.symbol == "earliest":
            offsets[topic] = NOTHING_YET
        elif bound.symbol == "latest":
            offsets[topic] = newest(admin, topic)
        else:
            message_id = _of_topic(bound, topic, "startingOffsets")
            latest = message_id is not None and is_latest(message_id)
            offsets[topic] = newest(admin, topic) if latest else NOTHING_YET
            if message_id is not None and not latest:
                offsets[topic] = before(message_id)
    return offsets


def end_offsets(admin: Admin, options: SourceOptions, topics: list[str]) -> Offsets:
    """Where a batch ends; never after the newest message."""
    offsets = {topic: newest(admin, topic) for topic in topics}
    for topic in topics:
        if options.ending_time_ms is not None:
            end = admin.offset_before_time(topic, options.ending_time_ms)
            offsets[topic] = earlier(end, offsets[topic])
        elif options.ending is not None and not options.ending.symbol:
            message_id = _of_topic(options.ending, topic, "endingOffsets")
            if message_id is not None and message_id.position != EARLIEST:
                offsets[topic] = earlier(at(message_id), offsets[topic])
    return offsets


def newest(admin: Admin, topic: str) -> Offset:
    """The newest entry, `NOTHING_YET` when there is none."""
    offset = admin.last_offset(topic)
    return offset if offset.entry_id >= 0 else NOTHING_YET


def _of_topic(bound: Bound, topic: str, option: str) -> MessageId | None:
    base = TopicName.parse(topic).partitioned_base.full
    if topic in bound.by_topic or base not in bound.by_topic:
        return bound.by_topic.get(topic)
    of_all = bound.by_topic[base]
    if of_all.position not in (EARLIEST, LATEST):
        raise InvalidOption(
            f"{option}: {base} has partitions: give an id for each, {base}-partition-0 and so on"
        )
    return of_all


def slices_of(
    admin: Admin, options: SourceOptions, start: Offsets, end: Offsets, anchor: str
) -> list[Slice]:
    """The slices between two offsets. Raises: DataLost."""
    slices: list[Slice] = []
    for topic in sorted(end):
        began = start.get(topic, NOTHING_YET)
        if began.sort_key >= end[topic].sort_key:
            continue
        try:
            stats = admin.internal_stats(topic)
        except NotFound:
            report_loss(options, f"{topic} was deleted")
            continue
        result = cut(topic, began, end[topic], ledger_rows(stats))
        if result.start_gone and not _held_by(stats, anchor, began):
            report_loss(options, _gone(topic, began))
        slices += result.slices
    return slices


def _gone(topic: str, began: Offset) -> str:
    return (
        f"{topic}: ledger {began.ledger_id}, where reading should go on after entry "
        f"{began.entry_id}, is no longer held"
    )


def _held_by(internal_stats: Json, anchor: str, began: Offset) -> bool:
    """Whether the anchor proves that nothing after `began` was deleted: expiry has not moved it
    past that place."""
    cursor = internal_stats["cursors"].get(anchor)
    if cursor is None:
        return False
    ledger_id, entry_id = (int(part) for part in cursor["markDeletePosition"].split(":"))
    return entry_id < 0 or (ledger_id, entry_id) <= began[:2]


def batch_plan(
    admin: Admin, options: SourceOptions, conditions: Sequence[Condition] = ()
) -> list[Task]:
    """The tasks of a batch read, without what no row that fulfils the conditions can be in.

    Raises: UnknownTopic, DataLost, InvalidOption.
    """
    check_not_ahead(options, time.time_ns() // 1_000_000)
    topics = [topic for topic in topics_of(admin, options) if keeps_topic(conditions, topic)]
    start = start_offsets(admin, options, topics, "earliest")
    end = end_offsets(admin, options, topics)
    from_ms, until_ms = publish_time_range_ms(conditions)
    skew_ms = options.publish_time_skew_ms
    for topic in topics:
        if from_ms is not None:
            first = admin.offset_before_time(topic, max(from_ms - skew_ms, 0))
            start[topic] = later(start[topic], first)
        if until_ms is not None:
            last = admin.offset_before_time(topic, max(until_ms + skew_ms, 0))
            end[topic] = earlier(end[topic], last)
    return batch_tasks(
        slices_of(admin, options, start, end, ""),
        bytes_per_partition_max=options.bytes_per_partition_max,
        partitions_min=options.partitions_min,
    )


@final
class StreamPlanner:
    """One stream: offsets in and out are the dicts of Spark's checkpoint."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._admin = Admin(options.connection)
        self._target: Offsets | None = None
        self._committed: Offsets = {}
        self._anchored: set[str] = set()
        self._began: Offsets = {}

    def initial(self) -> dict[str, Any]:
        """Concrete ids, so that a restart begins at the same place.

        Spark may ask several times and keep one answer, so the anchor is only named here.
        """
        check_not_ahead(self._options, time.time_ns() // 1_000_000)
        topics = topics_of(self._admin, self._options)
        offsets = start_offsets(self._admin, self._options, topics, "latest")
        self._began = offsets
        anchor = ""
        if self._options.retention_anchor:
            anchor = self._options.predefined_subscription
            anchor = anchor or f"{self._options.subscription_prefix}-{uuid.uuid4()}"
        return _stored(offsets, anchor)

    def _anchor(self, topic: str, anchor: str, offset: Offset) -> None:
        """Make sure that it is there; one that was there already stays where it is.

        Raises: DataLost: it is not, and what it had to hold may be gone.
        """
        if offset not in (NOTHING_YET, self._began.get(topic)):
            try:
                stats = self._admin.internal_stats(topic)
            except NotFound:
                report_loss(self._options, f"{topic} was deleted")
                return
            held = {row.ledger_id for row in ledger_rows(stats)}
            if anchor not in stats["cursors"] and offset.ledger_id not in held:
                # Nothing is made yet: the anchor would look as if it had been there all the time.
                report_loss(self._options, _gone(topic, offset))
        if self._admin.create_subscription(topic, anchor) and offset != NOTHING_YET:
            self._admin.move_subscription(topic, anchor, offset)
        self._anchored.add(topic)

    def freeze(self) -> None:
        """Let the newest messages of now be the end (Trigger.AvailableNow)."""
        self._target = self._newest()

    def newest(self) -> dict[str, Any]:
        """For the progress report."""
        return to_checkpoint(self._newest())

    def _newest(self) -> Offsets:
        found: Offsets = {}
        for topic in topics_of(self._admin, self._options):
            try:
                found[topic] = newest(self._admin, topic)
            except NotFound:
                continue  # It was deleted in between; `latest` tells whether that is data loss.
        return found

    def latest(self, stored_start: Mapping[str, Any], *, limited: bool) -> dict[str, Any]:
        """The end of the next micro-batch.

        A topic that was made after `freeze` ends where it starts. Raises: DataLost.
        """
        start, anchor = from_checkpoint(stored_start), str(stored_start.get("a", ""))
        latest = dict(self._target) if self._target is not None else self._newest()
        made_since: Offsets = {}
        if self._target is not None and start.keys() - latest.keys():
            made_since = self._newest()
        for topic, offset in start.items():
            if topic not in latest and topic not in made_since:
                gone = f"{topic} was deleted, or is not among the topics asked for any more"
                report_loss(self._options, gone)
            elif topic not in latest or latest[topic].sort_key < offset.sort_key:
                latest[topic] = offset
        if anchor:
            for topic in latest.keys() - self._anchored:
                self._anchor(topic, anchor, start.get(topic, NOTHING_YET))
        moved = {
            topic: end
            for topic, end in latest.items()
            if start.get(topic, NOTHING_YET).sort_key < end.sort_key
        }
        ledgers = {}
        for topic in moved:
            try:
                ledgers[topic] = self._admin.ledgers(topic)
            except NotFound:
                ledgers[topic] = []  # `tasks` tells that it was deleted.
        if limited:
            latest = self._limited(start, moved, latest, ledgers)
        return _stored(latest, anchor, self._entries_max(stored_start, latest, ledgers))

    def _entries_max(
        self,
        stored_start: Mapping[str, Any],
        latest: Offsets,
        ledgers: Mapping[str, Sequence[LedgerRow]],
    ) -> dict[str, int]:
        """Of a topic that has not moved the number stays, so that equal offsets are equal texts."""
        start, entries_max = from_checkpoint(stored_start), dict(stored_start.get("n", {}))
        for topic, rows in ledgers.items():
            slices = cut(topic, start.get(topic, NOTHING_YET), latest[topic], rows).slices
            if slices:
                bytes_max = self._options.bytes_per_partition_max
                entries_max[topic] = entries_per_task(slices, bytes_max)
        return {topic: entries_max[topic] for topic in sorted(entries_max) if topic in latest}

    def _limited(
        self,
        start: Offsets,
        moved: Offsets,
        latest: Offsets,
        ledgers: Mapping[str, Sequence[LedgerRow]],
    ) -> Offsets:
        options = self._options
        rows_per_entry = {}
        if options.rows_per_trigger_max is not None:
            rows_per_entry = {topic: self._rows_per_entry(topic) for topic in moved}
        budget = Budget(options.bytes_per_trigger_max, options.rows_per_trigger_max)
        return latest | admitted(start, moved, ledgers, budget, rows_per_entry)

    def _rows_per_entry(self, topic: str) -> float:
        """From the counters since the topic was loaded; 1 when nothing was published since."""
        entries = int(self._admin.internal_stats(topic)["entriesAddedCounter"])
        messages = int(self._admin.stats(topic)["msgInCounter"])
        return max(messages / entries, 1.0) if entries and messages else 1.0

    def tasks(self, stored_start: Mapping[str, Any], stored_end: Mapping[str, Any]) -> list[Task]:
        """The tasks of one micro-batch, the same ones whenever it is asked. Raises: DataLost."""
        start, end = from_checkpoint(stored_start), from_checkpoint(stored_end)
        anchor = str(stored_start.get("a", ""))
        slices = slices_of(self._admin, self._options, start, end, anchor)
        return stream_tasks(slices, stored_end.get("n", {}))

    def commit(self, stored_end: Mapping[str, Any]) -> None:
        """Let retention have what was processed."""
        anchor = str(stored_end.get("a", ""))
        if not anchor:
            return
        for topic, offset in from_checkpoint(stored_end).items():
            if offset == NOTHING_YET or self._committed.get(topic) == offset:
                continue
            try:
                self._admin.move_subscription(topic, anchor, offset)
            except NotFound:
                if not self._recreated(topic, anchor, offset):
                    continue
            self._committed[topic] = offset

    def _recreated(self, topic: str, anchor: str, offset: Offset) -> bool:
        """The anchor was removed: create it again. False when the topic is gone."""
        try:
            self._admin.last_offset(topic)
        except NotFound:
            return False
        self._anchor(topic, anchor, offset)
        return True


def _stored(
    offsets: Offsets, anchor: str, entries_max: Mapping[str, int] | None = None
) -> dict[str, Any]:
    """`n` keeps how many entries a task has, see `pipeline.plan`; checkpoints of old lack it."""
    stored = to_checkpoint(offsets)
    if entries_max:
        stored = {**stored, "n": dict(entries_max)}
    return {"a": anchor, **stored} if anchor else stored
