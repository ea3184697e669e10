"""Which ledgers are orphans: they exist, and no record names them or will name them.

Pure. A ledger that a record names is not an orphan. Any other is judged by its own metadata.

- It is *unknown* if they do not say that it is one of a managed ledger, of a cursor or of a schema:
  the record that names it may be in a place that is not searched here. Ledgers of compacted topics
  and of indexes of delayed messages are unknown, too, because a cursor may name them in its own
  ledger.
- It is *kept* if it is young or its age is not known: it may be about to be recorded.
- It is *kept* if it is open, and the topic has no newer one yet: its writer may record it.
- Otherwise it is an orphan. A managed ledger and a cursor make one ledger at a time and their ids
  grow, so one that is older than what the record names is not recorded any more. The ledgers of a
  schema are given up when they are not listed in time.

An owner that did not hear of the outcome of a write may still have a ledger in memory that the
record does not name any more. The deletion takes care of that (`search`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final, final

from broker.managed_ledger.owner_of_ledger import cursors_of, managed_ledger_of
from broker.managed_ledger.paths import ledger_info_path
from broker.tenancy.namespaces.names import SCHEMAS_PATH
from broker.tenancy.schemas.schema_format import schema_id_of_ledger

if TYPE_CHECKING:
    from collections.abc import Mapping

    from protocol.bookkeeper.ledger_metadata import LedgerMetadata

AGE_MINUTES_MIN: Final = 15
"""No younger ledger is an orphan: a broker may list one of a schema so late
(`schema_ledgers.LISTED_SECONDS_MAX`), and clocks differ."""
_MINUTE_MS: Final = 60_000
_NONE: Final[frozenset[int]] = frozenset()


class Standing(Enum):
    """The standing of a ledger that no record names."""

    ORPHAN = "orphan"
    KEPT = "kept"
    UNKNOWN = "unknown"


@final
@dataclass(frozen=True, slots=True)
class Maker:
    """The owner of a ledger: the records that would name it."""

    record: str
    """Path of the managed ledger or of the list of schemas."""
    cursors: tuple[str, ...] = ()
    """Paths of the cursor, if it is one's: more than one, if it is not certain which."""
    lists_in_time: bool = False
    """Whether the maker gives up a ledger that it has not listed for some time."""


@final
@dataclass(slots=True)
class References:
    """The ledgers that the records of a metadata store name."""

    records: dict[str, tuple[frozenset[int], int]] = field(default_factory=dict)
    """Path -> (ledgers, version), of records that exist."""
    named: set[int] = field(default_factory=set)
    damaged: list[str] = field(default_factory=list)
    """The faults of records that may name any ledger."""

    def version(self, path: str) -> int | None:
        """None: there is no such record."""
        found = self.records.get(path)
        return None if found is None else found[1]

    def newest(self, path: str) -> int | None:
        """The newest ledger that a record names, -1 if it names none; None: there is no record."""
        found = self.records.get(path)
        return None if found is None else max(found[0], default=-1)


@final
@dataclass(frozen=True, slots=True)
class Verdict:
    """With the reason for people."""

    standing: Standing
    reason: str
    maker: Maker | None = None


def maker_of(custom: Mapping[str, bytes]) -> Maker | None:
    """None: it is not known."""
    name = managed_ledger_of(custom)
    if name is None:
        schema_id = schema_id_of_ledger(custom)
        return (
            None if schema_id is None else Maker(f"{SCHEMAS_PATH}/{schema_id}", lists_in_time=True)
        )
    path = ledger_info_path(name)
    try:
        return Maker(path, tuple(f"{path}/{cursor}" for cursor in cursors_of(custom)))
    except UnicodeDecodeError:
        return None


def judged(
    ledger_id: int,
    metadata: LedgerMetadata,
    references: References,
    age_minutes_min: int,
    now_ms: int,
) -> Verdict | None:
    """None: a record names it. The ledger existed before `references` were read."""
    if ledger_id in references.named:
        return None
    maker = maker_of(metadata.custom_metadata)
    if maker is None:
        return Verdict(
            Standing.UNKNOWN, "its metadata do not say which managed ledger or schema it is of"
        )
    if metadata.ctime_ms <= 0:
        return Verdict(Standing.KEPT, "it is not known when it was created", maker)
    age_minutes_min = max(age_minutes_min, AGE_MINUTES_MIN)
    if now_ms - metadata.ctime_ms < age_minutes_min * _MINUTE_MS:
        return Verdict(
            Standing.KEPT, f"it was created less than {age_minutes_min} minutes ago", maker
        )
    if not metadata.is_closed and _may_be_recorded(ledger_id, maker, references):
        return Verdict(
            Standing.KEPT,
            "it is open, and its writer may be about to record it: it is an orphan when the "
            "topic or subscription has a newer ledger",
            maker,
        )
    return Verdict(Standing.ORPHAN, _why_orphan(maker, references), maker)


def _may_be_recorded(ledger_id: int, maker: Maker, references: References) -> bool:
    """Whether a writer may be about to record an open ledger, however old it is."""
    if maker.lists_in_time or references.newest(maker.record) is None:
        return False
    newest = [references.newest(path) for path in maker.cursors or (maker.record,)]
    known = [each for each in newest if each is not None]
    return bool(known) and max(known) < ledger_id


def _why_orphan(maker: Maker, references: References) -> str:
    paths = [path for path in maker.cursors if path in references.records]
    if maker.record not in references.records or (maker.cursors and not paths):
        missing = maker.record if maker.record not in references.records else maker.cursors[0]
        return f"there is no {missing}"
    return f"{(paths or [maker.record])[0]} does not name it"
