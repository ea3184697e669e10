"""OldLocations: what the locations that a rebuild replaces say about the entry logs.

A log that is shorter than before, or gone, looks intact or leaves nothing to look at. Its entries
would not be indexed, and the bookie would answer that it never had them. The old database shows
which entries there were, as far as it can be read.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, final

from bookie import entry_log_format as fmt
from bookie.index import END_KEY, unpack_location_key, unpack_u64
from bookie.index_rocksdb import open_index_database
from rocks.errors import DatabaseError, DatabaseInUse

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path


@final
@dataclass(slots=True)
class OldLocations:
    """See the module docstring."""

    end: int = 0
    """The location of the end of the logs; 0: not known."""
    without_log: dict[int, set[int]] = field(default_factory=dict)
    """The logs that are gone, by id: the ledgers that have entries in them."""
    is_whole: bool = False
    """All rows were read, and no change is known to be missing."""


def read_old_locations(
    path: Path, log_ids: Collection[int], deleted: Collection[int], synced: int | None
) -> OldLocations:
    """Read the database at `path`, if there is one. `log_ids`: of the logs that are there;
    `deleted`: ledgers whose entries nobody needs; `synced`: the change that was synced last, if
    known.

    Raises: DatabaseInUse.
    """
    old = OldLocations()
    if not path.exists():
        return old
    present = frozenset(log_ids)
    try:
        database = open_index_database(path, may_create=False)
        try:
            for key, value in database.items():
                ledger_id = unpack_location_key(key)[0]
                if key == END_KEY:
                    old.end = int(unpack_u64(value)[0])
                if ledger_id < 0 or ledger_id in deleted:
                    continue
                log_id = fmt.split_location(int(unpack_u64(value)[0]))[0]
                if log_id not in present:
                    old.without_log.setdefault(log_id, set()).add(ledger_id)
            old.is_whole = synced is not None and database.sequence() >= synced
        finally:
            database.close()
    except DatabaseInUse:
        raise
    except (DatabaseError, ValueError):
        return old  # such an index is the reason for most rebuilds: what was read counts
    return old
