"""Publishes the results of a streaming query, micro-batch by micro-batch, each result once."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame


@final
class Publisher:
    """For `foreachBatch`. The rows of a micro-batch leave in one order, so that one which is
    repeated after a crash carries the same numbers and is dropped by deduplication."""

    def __init__(self, sink: Mapping[str, str], *order: str) -> None:
        self._sink = dict(sink)
        self._order = order
        self.rows = 0

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        rows = batch.coalesce(1).sortWithinPartitions(*self._order).persist()
        self.rows += rows.count()
        options = self._sink | {"dedupBatch": str(batch_id)}
        rows.write.format("vela").options(**options).mode("append").save()
        rows.unpersist()
