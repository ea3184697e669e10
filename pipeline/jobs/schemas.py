"""Schemas of the archived topics, kept in the archive: a replay needs no broker that has them.

`_schemas/<topic>.json` in the archive's directory holds the newest schema of a topic, as the admin
API answers it, or `null` for a topic without one. Names that begin with `_` are no data for readers
of Parquet and of Delta Lake.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from pipeline.jobs.files import names_in, read_text, write_text
from pipeline.planner import topics_of
from protocol.topic_name import TopicName

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pipeline.admin import Admin
    from pipeline.options import SourceOptions

SchemaAnswer = dict[str, Any]
"""`type`, `data`, `properties` and `version` of the admin API; `versions`: how many versions the
topic has had; `raw`: the archive has payloads, not columns."""
DIRECTORY: Final = "_schemas"


def keep_schemas(spark: SparkSession, output: str, admin: Admin, options: SourceOptions) -> None:
    """Write the newest schemas of the topics of an archive.

    Raises: UnknownTopic, AdminError.
    """
    bases = {TopicName.parse(each).partitioned_base.full for each in topics_of(admin, options)}
    for topic in sorted(bases):
        schema = admin.schema(topic)
        if schema is not None:
            versions = admin.schema_version_count(topic)
            schema = {**schema, "versions": versions, "raw": options.raw_values}
        text = json.dumps({"topic": topic, "schema": schema}, indent=1, sort_keys=True)
        write_text(spark, f"{output}/{DIRECTORY}/{quote(topic, safe='')}.json", text)


def schemas_of(spark: SparkSession, archive: str) -> dict[str, SchemaAnswer | None]:
    """By topic, partitions together; empty for an archive that does not tell."""
    directory = f"{archive}/{DIRECTORY}"
    found = {}
    for name in sorted(names_in(spark, directory)):
        if name.endswith(".json"):
            kept = json.loads(read_text(spark, f"{directory}/{name}"))
            found[str(kept["topic"])] = kept["schema"]
    return found


def same_definition(one: SchemaAnswer | None, other: SchemaAnswer | None) -> bool:
    """Whether messages of both are read alike."""
    if one is None or other is None:
        return one is other
    return (one["type"], one["data"]) == (other["type"], other["data"])
