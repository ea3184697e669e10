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
        keep_imports()

        assert kept > before
        assert gc.get_freeze_count() == kept
    finally:
        gc.unfreeze()
        keep_imports.cache_clear()
