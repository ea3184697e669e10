"""The place of a message in its topic, as a column that sorts like the topic."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from protocol.message_id import from_bytes

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PLACE: Final = "__place"


def with_place(frame: DataFrame) -> DataFrame:
    """Add the column `PLACE`, from `__messageId`."""
    from pyspark.sql import functions as f

    # Without Arrow: Spark's Arrow functions would need pandas for nothing.
    place = f.udf(_place, "ledger BIGINT, entry BIGINT, batch BIGINT", useArrow=False)
    return frame.withColumn(PLACE, place("__messageId"))


def _place(message_id: bytes) -> tuple[int, int, int]:
    found = from_bytes(bytes(message_id))
    return found.ledger_id, found.entry_id, found.batch_index
