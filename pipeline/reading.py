"""The work of one Spark task, in any version of Spark: slices in, Arrow record batches out."""

from __future__ import annotations

from contextlib import contextmanager
from functools import cache, partial
from typing import TYPE_CHECKING

from pipeline.admin import Admin
from pipeline.columns import batches
from pipeline.engines import read_task
from pipeline.filters import kept
from pipeline.planner import schema_of_version
from protocol.topic_name import TopicName

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow

    from pipeline.columns import SetAside
    from pipeline.filters import Condition
    from pipeline.options import SourceOptions
    from pipeline.plan import Task
    from pipeline.registry import TopicSchema


def task_batches(
    options: SourceOptions,
    task: Task,
    arrow_schema: pyarrow.Schema,
    topic_schema: TopicSchema,
    conditions: Sequence[Condition] = (),
) -> Iterator[pyarrow.RecordBatch]:
    """The columns of `arrow_schema` of all messages that fulfil the conditions, in order.

    Raises: DataLost, Unreadable, Refused, UnknownColumn, Undecodable, WriteFailed.
    """
    admin = Admin(options.connection)
    base = TopicName.parse(task[0].topic).partitioned_base.full
    messages = read_task(options, task)
    with _set_aside(options) as set_aside:
        yield from batches(
            kept(conditions, messages) if conditions else messages,
            arrow_schema,
            topic_schema,
            cache(partial(schema_of_version, admin, base)),
            options.malformed,
            set_aside,
        )


@contextmanager
def _set_aside(options: SourceOptions) -> Iterator[SetAside | None]:
    """Takes messages for the dead letter topic, and sees at the end that they are stored."""
    if not options.malformed.dead_letter_topic:
        yield None
        return
    # The client library is needed for this only.
    from pipeline.dead_letters import DeadLetters

    letters = DeadLetters(options.connection, options.malformed.dead_letter_topic)
    try:
        yield letters.publish
    finally:
        letters.close()
