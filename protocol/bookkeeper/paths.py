"""Where BookKeeper keeps what in the metadata store: path of a record, and back.

The tree is that of BookKeeper's hierarchical ledger manager on ZooKeeper, which Pulsar uses on
every metadata backend. Ids below 2^31-1 are spread over two levels by their ten decimal digits,
larger ones over four levels by nineteen.
"""

from __future__ import annotations

from typing import Final

LEDGERS_ROOT: Final = "/ledgers"
LAYOUT_PATH: Final = "/ledgers/LAYOUT"
LAYOUT: Final = b"2\norg.apache.bookkeeper.meta.HierarchicalLedgerManagerFactory:1"
INSTANCE_ID_PATH: Final = "/ledgers/INSTANCEID"

AVAILABLE_ROOT: Final = "/ledgers/available"
READ_ONLY_ROOT: Final = "/ledgers/available/readonly"
COOKIES_ROOT: Final = "/ledgers/cookies"

ID_SEQUENCE_PATH: Final = "/ledgers/idgen"
"""The sequence that gives the ids of ledgers below 2^31."""
ID_GENERATOR_PREFIX: Final = f"{ID_SEQUENCE_PATH}/ID-"
"""Create it sequential and ephemeral: the number appended is the id; delete it afterwards."""
LONG_ID_GENERATOR_ROOT: Final = "/ledgers/idgen-long"

UNDERREPLICATION_ROOT: Final = "/ledgers/underreplication"
UNDERREPLICATION_LAYOUT: Final = b'type: "BASIC"\nversion: 1\n'

NOT_LEDGERS: Final = frozenset({"available", "cookies", "idgen", "idgen-long", "underreplication"})
"""Names below `LEDGERS_ROOT` under which there are no ledgers."""

SHORT_LEDGER_ID_END: Final = 2**31 - 1
"""Ids from here on have the long path form."""

_LEDGER_ID_MAX: Final = 2**63 - 1
_SHORT_SPLIT: Final = (2, 4, 4)
_LONG_SPLIT: Final = (3, 4, 4, 4, 4)


def ledger_path(ledger_id: int) -> str:
    """The record of one ledger.

    Raises: ValueError: not a ledger id.
    """
    if not 0 <= ledger_id <= _LEDGER_ID_MAX:
        raise ValueError(f"{ledger_id} is not a ledger id (0 to 2^63-1)")
    split = _SHORT_SPLIT if ledger_id < SHORT_LEDGER_ID_END else _LONG_SPLIT
    digits = f"{ledger_id:0{sum(split)}d}"
    parts: list[str] = []
    at = 0
    for width in split:
        parts.append(digits[at : at + width])
        at += width
    return f"{LEDGERS_ROOT}/{'/'.join(parts[:-1])}/L{parts[-1]}"


def ledger_id_of(path: str) -> int | None:
    """The ledger whose record is at `path`; None for every other path of the tree."""
    parts = path.removeprefix(LEDGERS_ROOT + "/").split("/")
    if not parts[-1].startswith("L"):
        return None
    parts[-1] = parts[-1][1:]
    digits = "".join(parts)
    if not (digits.isascii() and digits.isdigit()):
        return None
    ledger_id = int(digits)
    is_ledger = ledger_id <= _LEDGER_ID_MAX and ledger_path(ledger_id) == path
    return ledger_id if is_ledger else None


def generated_ledger_id(path: str) -> int | None:
    """The id that a created sequential generator node stands for; None for other paths."""
    digits = path.removeprefix(ID_GENERATOR_PREFIX)
    if digits == path or not (digits.isascii() and digits.isdigit()):
        return None
    return int(digits)


def available_path(bookie_id: str) -> str:
    """Ephemeral registration of a bookie that accepts adds."""
    return f"{AVAILABLE_ROOT}/{bookie_id}"


def read_only_path(bookie_id: str) -> str:
    """Ephemeral registration of a bookie that only serves reads."""
    return f"{READ_ONLY_ROOT}/{bookie_id}"


def cookie_path(bookie_id: str) -> str:
    """Identity of a bookie's disks; persistent."""
    return f"{COOKIES_ROOT}/{bookie_id}"


def underreplicated_path(ledger_id: int) -> str:
    """Mark of a ledger that lost copies: the id in hexadecimal digits, four levels."""
    digits = f"{ledger_id:016x}"
    levels = "/".join(digits[at : at + 4] for at in range(0, 16, 4))
    return f"{UNDERREPLICATION_ROOT}/ledgers/{levels}/urL{ledger_id:010d}"


def underreplicated_ledger_id_of(path: str) -> int | None:
    """The ledger that a mark at `path` is about; None for other paths."""
    digits = path.rpartition("/urL")[2]
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 19):
        return None
    ledger_id = int(digits)
    return ledger_id if underreplicated_path(ledger_id) == path else None


def underreplication_lock_path(ledger_id: int) -> str:
    """Ephemeral: who holds it repairs the ledger."""
    return f"{UNDERREPLICATION_ROOT}/locks/urL{ledger_id:010d}"
