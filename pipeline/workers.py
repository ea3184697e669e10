"""Spark's Python workers, which are used for one task after the other."""

from __future__ import annotations

import gc
from functools import cache


@cache
def keep_imports() -> None:
    """Leave what is there now out of later collections of garbage: the modules, mostly.

    A worker collects garbage after each task, and goes through all objects for that: 35 ms with
    what pyspark and Arrow have imported, which is more than a task of a small read takes otherwise.
    Call it in workers alone, once all is imported; only the first call does something.
    """
    gc.collect()
    gc.freeze()
