"""What one Spark task does, whatever Spark it runs in: its slices in, Arrow record batches out."""

from __future__ import annotations

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

    Raises: DataLost, Unreadable, Refused, UnknownColumn, Undecodable.
    """
    admin = Admin(options.connection)
    base = TopicName.parse(task[0].topic).partitioned_base.full
    messages = read_task(options, task)
    return batches(
        kept(conditions, messages) if conditions else messages,
        arrow_schema,
        topic_schema,
        cache(partial(schema_of_version, admin, base)),
    )
