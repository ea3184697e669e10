"""Scenarios of the stock Spark connector; importing this package registers them all."""

from __future__ import annotations

from compat_tests.spark.scenarios import batch, failures, own_reader, schemas, streams, topics
from compat_tests.spark.stage import SCENARIOS

__all__ = ["SCENARIOS", "batch", "failures", "own_reader", "schemas", "streams", "topics"]
