"""Names the entry logs that are gone when a bookie starts, and the ledgers with entries in them.

The record of the logs (`recorded_logs`) shows at no cost whether one is missing. Only then, or if
the record cannot be relied on, are the locations of all entries read: they name the ledgers.

The start goes on. The index still knows which entries there were, so a read of one that was in such
a log is an error, and all other answers are as good as before, including "no such entry". The log
is missed at each start until it is back, or until no location refers to it any more: the ledgers
were deleted, or their entries were written again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import structlog

if TYPE_CHECKING:
    from collections.abc import Callable

    from bookie.recorded_logs import Comparison

logger = structlog.get_logger()

_LEDGERS_NAMED_MAX: Final = 20


def find_lost_logs(
    directory: str,
    found: Comparison,
    ledgers_without_log: Callable[[], dict[int, set[int]]],
    *,
    is_index_whole: bool,
) -> dict[int, set[int]]:
    """The logs that are gone: the ledgers with entries in them. `ledgers_without_log`: see
    EntryIndex, for the logs that are there. `is_index_whole`: it is known to have all changes, so a
    log that it does not refer to is not needed.

    Raises: IndexUnreadable.
    """
    if found.doubt:
        logger.error(
            "the record of the entry logs cannot be relied on: looking for missing logs in the "
            "index, and recording those that are there",
            reason=found.doubt,
        )
    if found.is_first or not (found.missing or found.doubt):
        return {}
    logger.info("reading all locations", directory=directory)
    lost = ledgers_without_log()
    for log_id in found.missing - lost.keys():
        if is_index_whole:
            logger.warning(
                "entry log is missing; no entry of an existing ledger was in it",
                file=f"{directory}/{log_id:x}.log",
            )
        else:
            lost[log_id] = set()
    for log_id, ledger_ids in sorted(lost.items()):
        logger.error(
            "entry log is missing, and entries in it cannot be read from this bookie: stop the "
            "bookie and restore the file from a backup, or without one run `vela bookie "
            "rebuild-index --skip-damaged`",
            file=f"{directory}/{log_id:x}.log",
            ledgers=len(ledger_ids),
            first_ledgers=sorted(ledger_ids)[:_LEDGERS_NAMED_MAX],
        )
    return lost
