"""Batch reads on Spark 3.4 and 3.5, which cannot be given a data source written in Python.

    frame = spark3.read(spark, **{"service.url": ..., "admin.url": ..., "topic": ...})

has the rows and columns of `spark.read.format("vela")` on Spark 4.2: options, planner and engines
are the same. Tasks are planned when `read` is called, one row of a range stands for each, and
`mapInArrow` turns it into the task's messages. Filters do not reach the source by this way.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, final

import pyarrow
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from pipeline.admin import Admin
from pipeline.columns import check_names
from pipeline.planner import batch_plan, schema_of
from pipeline.reading import task_batches
from pipeline.registry import ddl
from pipeline.resolving import resolved_source_options
from pipeline.workers import keep_imports

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from pyspark.sql import DataFrame, SparkSession

    from pipeline.options import SourceOptions
    from pipeline.plan import Task
    from pipeline.registry import TopicSchema

# Arrow's timestamps are instants: the session's time zone has no part in them.
_ARROW: Final = {
    BinaryType: pyarrow.binary(),
    BooleanType: pyarrow.bool_(),
    ByteType: pyarrow.int8(),
    DateType: pyarrow.date32(),
    DoubleType: pyarrow.float64(),
    FloatType: pyarrow.float32(),
    IntegerType: pyarrow.int32(),
    LongType: pyarrow.int64(),
    NullType: pyarrow.null(),
    ShortType: pyarrow.int16(),
    StringType: pyarrow.string(),
    TimestampType: pyarrow.timestamp("us", tz="UTC"),
}


class UnsupportedType(TypeError):
    """The schema that was asked for has a type no column of a topic can have."""


def read(
    spark: SparkSession, schema: str | StructType | None = None, **options: object
) -> DataFrame:
    """The messages that the topics hold now, or between the bounds that the options give.

    `options`: those of `pipeline.options`, names in any case. `schema`: the columns to build, as
    DDL or a Spark type; None: all of them.

    Raises: InvalidOption, UnknownTopic, SchemaError, UnsupportedType, DataLost.
    """
    chosen = resolved_source_options(_texts(options), streaming=False)
    admin = Admin(chosen.connection)
    topic_schema = schema_of(admin, chosen)
    wanted = schema or ddl(
        topic_schema,
        include_metadata=chosen.include_metadata,
        corrupt_column=chosen.malformed.column,
    )
    if isinstance(wanted, str):
        wanted = spark.createDataFrame([], wanted).schema
    check_names(wanted.names, topic_schema, chosen.malformed)
    tasks = batch_plan(admin, chosen)
    reader = _Reader(chosen, topic_schema, tasks, arrow_schema(wanted))
    numbers = spark.range(0, len(tasks), 1, numPartitions=max(len(tasks), 1))
    declared = _unchecked(wanted) if spark.version.startswith("3.4.") else wanted
    return numbers.mapInArrow(reader.read, declared)


def _texts(options: Mapping[str, object]) -> dict[str, str]:
    """As `DataFrameReader.options` writes them: booleans in lower case, None for not given."""
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in options.items()
        if value is not None
    }


@final
@dataclass(frozen=True)
class _Reader:
    """Travels to the executors."""

    options: SourceOptions
    topic_schema: TopicSchema
    tasks: list[Task]
    arrow_schema: pyarrow.Schema

    def read(self, numbers: Iterable[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        """The messages of the tasks whose numbers come."""
        keep_imports()
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                task = self.tasks[number]
                yield from task_batches(self.options, task, self.arrow_schema, self.topic_schema)


def arrow_schema(schema: StructType) -> pyarrow.Schema:
    """Spark's columns as Arrow's. Spark 3.4's own function has no structs inside of anything.

    Raises: UnsupportedType.
    """
    return pyarrow.schema([_arrow_field(field) for field in schema.fields])


def _arrow_field(field: StructField) -> pyarrow.Field:
    return pyarrow.field(field.name, _arrow_type(field.dataType), nullable=field.nullable)


def _arrow_type(spark_type: DataType) -> pyarrow.DataType:
    if isinstance(spark_type, StructType):
        return pyarrow.struct([_arrow_field(field) for field in spark_type.fields])
    if isinstance(spark_type, ArrayType):
        return pyarrow.list_(_arrow_type(spark_type.elementType))
    if isinstance(spark_type, MapType):
        return pyarrow.map_(_arrow_type(spark_type.keyType), _arrow_type(spark_type.valueType))
    if isinstance(spark_type, DecimalType):
        return pyarrow.decimal128(spark_type.precision, spark_type.scale)
    if type(spark_type) not in _ARROW:
        raise UnsupportedType(f"no column of a topic has the type {spark_type.simpleString()}")
    return _ARROW[type(spark_type)]


@final
class _Unchecked(StructField):
    """A column of structs, arrays or maps for Spark 3.4.

    Its Python refuses structs, arrays of timestamps and maps of either as results of `mapInArrow`,
    by the type of the field; its JVM, which is given the JSON of the field, reads them all.
    """

    def __init__(self, field: StructField) -> None:
        super().__init__(field.name, BinaryType(), field.nullable)
        self.true = field

    def jsonValue(self) -> dict[str, Any]:
        value: dict[str, Any] = self.true.jsonValue()
        return value


def _unchecked(schema: StructType) -> StructType:
    nested = (ArrayType, MapType, StructType)
    return StructType(
        [_Unchecked(each) if isinstance(each.dataType, nested) else each for each in schema.fields]
    )
