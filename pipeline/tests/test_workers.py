"""What a worker has imported is not looked through after each task."""

from __future__ import annotations

import gc

from pipeline.workers import keep_imports


def test_what_is_there_at_the_first_call_is_left_out_of_collections() -> None:
    before = gc.get_freeze_count()
    keep_imports.cache_clear()
    try:
        keep_imports()
        kept = gc.get_freeze_count()
        made_later: list[list[int]] = [[] for _ in range(10_000)]
        keep_imports()

        assert kept > before
        # Other threads may free some of what was kept.
        assert gc.get_freeze_count() < kept + len(made_later)
    finally:
        gc.unfreeze()
        keep_imports.cache_clear()
