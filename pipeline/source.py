"""The Spark data source `vela`: a thin shell around the planner, the engines and the sink.

`register(spark)` makes `spark.read.format("vela")` and its three siblings work. Besides this module
only `spark3`, `session` and the jobs import pyspark. Everything that travels to executors is plain
data; connections are made there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    Filter,
    InputPartition,
    Not,
    WriterCommitMessage,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from pipeline.admin import Admin
from pipeline.columns import check_names
from pipeline.credentials import sink_options_with_token, source_options_with_token
from pipeline.filters import condition
from pipeline.options import InvalidOption
from pipeline.planner import StreamPlanner, batch_plan, schema_of
from pipeline.reading import task_batches
from pipeline.registry import ddl
from pipeline.resolving import resolved_source_options
from pipeline.sink import TaskIdentity, Written, added_up, check_columns, report, write_batches
from pipeline.workers import keep_imports

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    from pipeline.filters import Condition
    from pipeline.options import SinkOptions, SourceOptions
    from pipeline.plan import Task
    from pipeline.registry import TopicSchema

NAME = "vela"
FILTER_PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


def register(spark: SparkSession) -> None:
    """Make the format known to a session, and let Spark hand it filters: a reader that takes them
    is refused where that is off."""
    spark.dataSource.register(VelaDataSource)
    spark.conf.set(FILTER_PUSHDOWN, "true")


class TaskPartition(InputPartition):
    """The slices that one Spark task reads."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.task = task


@final
@dataclass
class Commit(WriterCommitMessage):
    """Tells the driver what one task wrote."""

    written: Written


class VelaDataSource(DataSource):
    """Topics of Pulsar and Vela. Options: `pipeline.options`, columns: `pipeline.registry`."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        keep_imports()
        options = source_options_with_token(dict(self.options), streaming=None)
        schema = schema_of(Admin(options.connection), options)
        return ddl(
            schema,
            include_metadata=options.include_metadata,
            corrupt_column=options.malformed.column,
        )

    def reader(self, schema: StructType) -> DataSourceReader:
        return BatchReader(resolved_source_options(dict(self.options), streaming=False), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return StreamReader(resolved_source_options(dict(self.options), streaming=True), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        return BatchWriter(self._sink(schema, overwrite=overwrite))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        return StreamWriter(self._sink(schema, overwrite=overwrite))

    def _sink(self, schema: StructType, *, overwrite: bool) -> SinkOptions:
        options = sink_options_with_token(dict(self.options))
        check_columns(to_arrow_schema(schema, timezone="UTC"), options, overwrite=overwrite)
        return options


class _Columns:
    """The reading half that batch and stream share: runs on executors."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        keep_imports()
        self._options = options
        self._spark_schema = schema
        self._topic_schema: TopicSchema = schema_of(Admin(options.connection), options)
        check_names(schema.names, self._topic_schema, options.malformed)

    def read_task(
        self, task: Task, conditions: Sequence[Condition] = ()
    ) -> Iterator[pyarrow.RecordBatch]:
        keep_imports()
        return task_batches(
            self._options,
            task,
            to_arrow_schema(self._spark_schema, timezone="UTC"),
            self._topic_schema,
            conditions,
        )


class BatchReader(DataSourceReader):
    """`spark.read.format("vela")`."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._columns = _Columns(options, schema)
        self._conditions: list[Condition] = []

    def pushFilters(self, filters: list[Filter]) -> Iterator[Filter]:
        for each in filters:
            made = _condition(each)
            if made is None:
                yield each
            else:
                self._conditions.append(made)

    def partitions(self) -> Sequence[InputPartition]:
        tasks = batch_plan(Admin(self._options.connection), self._options, self._conditions)
        return [TaskPartition(task) for task in tasks]

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        # Spark asks for one partition, without a value, when there is nothing to plan.
        if not isinstance(partition, TaskPartition):
            return iter(())
        return self._columns.read_task(partition.task, self._conditions)


def _condition(spark_filter: Filter) -> Condition | None:
    negated = isinstance(spark_filter, Not)
    inner: Any = spark_filter.child if isinstance(spark_filter, Not) else spark_filter
    path: tuple[str, ...] = getattr(inner, "attribute", ())
    if len(path) != 1:
        return None
    value = getattr(inner, "value", None)
    return condition(path[0], type(inner).__name__, value, negated=negated)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """`spark.readStream.format("vela")`."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._columns = _Columns(options, schema)
        self._planner = StreamPlanner(options)

    def initialOffset(self) -> dict[str, Any]:
        return self._planner.initial()

    def getDefaultReadLimit(self) -> ReadLimit:
        if self._options.bytes_per_trigger_max is not None:
            return ReadMaxBytes(self._options.bytes_per_trigger_max)
        if self._options.rows_per_trigger_max is not None:
            return ReadMaxRows(self._options.rows_per_trigger_max)
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        return self._planner.latest(start, limited=not isinstance(limit, ReadAllAvailable))

    def reportLatestOffset(self) -> dict[str, Any]:
        return self._planner.newest()

    def prepareForTriggerAvailableNow(self) -> None:
        self._planner.freeze()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        return [TaskPartition(task) for task in self._planner.tasks(start, end)]

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        assert isinstance(partition, TaskPartition)
        return self._columns.read_task(partition.task)

    def commit(self, end: dict[str, Any]) -> None:
        self._planner.commit(end)


class BatchWriter(DataSourceArrowWriter):
    """`df.write.format("vela").mode("append")`."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pyarrow.RecordBatch]) -> WriterCommitMessage:
        identity = _identity(self._options, streaming=False)
        return Commit(write_batches(iterator, self._options, identity))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        report(total(messages), self._options)


class StreamWriter(DataSourceStreamArrowWriter):
    """`df.writeStream.format("vela")`."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pyarrow.RecordBatch]) -> WriterCommitMessage:
        identity = _identity(self._options, streaming=True)
        return Commit(write_batches(iterator, self._options, identity))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        report(total(messages), self._options)


def total(messages: Sequence[WriterCommitMessage | None]) -> Written:
    """The sum over all tasks of a write."""
    return added_up([each.written for each in messages if isinstance(each, Commit)])


def _identity(options: SinkOptions, *, streaming: bool) -> TaskIdentity:
    """Query and micro-batch of this task, as Spark's micro-batch execution tells its tasks."""
    context = TaskContext.get()
    assert context is not None, "rows are written by Spark tasks only"
    query = context.getLocalProperty("sql.streaming.queryId") if streaming else ""
    batch = context.getLocalProperty("streaming.sql.batchId") if streaming else "0"
    if query is None or batch is None:
        raise InvalidOption("Spark does not tell the number of the micro-batch: use foreachBatch")
    name = options.producer_name or query
    if options.dedup and not name:
        raise InvalidOption("sinkMode=dedup of a batch needs producerName, the same at every try")
    number = int(batch) if options.dedup_batch is None else options.dedup_batch
    return TaskIdentity(name, context.partitionId(), number)
