"""The records below `/ledgers/underreplication`, as protobuf text. Pure.

Paths, names and numbers are BookKeeper's (ZkLedgerUnderreplicationManager, ZkLedgerAuditorManager
4.17), so that auditors and workers of BookKeeper and of Vela can take each other's place. Another
process wrote the records that are read: one that cannot be parsed counts as empty, because the
mark, the lock or the vote is the node itself.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final, TypeVar

from google.protobuf import text_format

from protocol.bookkeeper import data_formats_pb2 as formats
from protocol.bookkeeper import replication_formats_pb2 as replication
from protocol.bookkeeper.paths import UNDERREPLICATION_ROOT

if TYPE_CHECKING:
    from collections.abc import Iterable

    from google.protobuf.message import Message

LAYOUT_PATH: Final = f"{UNDERREPLICATION_ROOT}/LAYOUT"
MARKS_ROOT: Final = f"{UNDERREPLICATION_ROOT}/ledgers"
LOCKS_ROOT: Final = f"{UNDERREPLICATION_ROOT}/locks"
DISABLE_PATH: Final = f"{UNDERREPLICATION_ROOT}/disable"
DELAY_PATH: Final = f"{UNDERREPLICATION_ROOT}/lostBookieRecoveryDelay"
"""Seconds, as decimal digits. Writing it, the same number too, asks for an audit at once."""
LEDGERS_CHECKED_PATH: Final = f"{UNDERREPLICATION_ROOT}/checkallledgersctime"
DAMAGE_ROOT: Final = f"{UNDERREPLICATION_ROOT}/damaged"
"""Vela's own: beside the mark of a ledger, the bookies whose copies are said to be damaged."""
VOTES_ROOT: Final = f"{UNDERREPLICATION_ROOT}/auditorelection"
LEADER_PATH: Final = f"{UNDERREPLICATION_ROOT}/leader"
"""The node of Pulsar's driver (`metadata-store:`), instead of votes: the auditor's id as JSON
text."""

LAYOUT_TYPE: Final = "BASIC"
LAYOUT_VERSION: Final = 1
_VOTE: Final = "V_"
_VOTE_NUMBER_MAX: Final = 2**31 - 1

_Record = TypeVar("_Record", bound="Message")


def _parsed(data: bytes, record: _Record) -> _Record:
    """`record` with what the text says; empty if it is no such text."""
    try:
        text_format.Parse(data.decode(), record, allow_unknown_field=True)
    except (text_format.ParseError, UnicodeDecodeError):
        record.Clear()
    return record


def _text(record: Message) -> bytes:
    return text_format.MessageToString(record).encode()


# --- marks ------------------------------------------------------------------------------------


MARK_NAMES_MAX: Final = 1_000
"""More are left out: a mark is a hint."""


def encode_mark(replicas: Iterable[str], ctime_ms: int) -> bytes:
    """The mark of a ledger that lacks the copies of these bookies."""
    return _text(formats.UnderreplicatedLedgerFormat(replica=replicas, ctime=ctime_ms))


def replicas_of_mark(data: bytes) -> tuple[str, ...]:
    """The bookies that a mark names, in its order."""
    return tuple(_parsed(data, formats.UnderreplicatedLedgerFormat()).replica)


def merged_mark(data: bytes, replicas: Iterable[str], now_ms: int) -> bytes | None:
    """The mark with these bookies, too; None: it names all of them already."""
    record = _parsed(data, formats.UnderreplicatedLedgerFormat())
    known = list(record.replica)
    new = [each for each in dict.fromkeys(replicas) if each not in known]
    if not new and known:
        return None
    return encode_mark((known + new)[:MARK_NAMES_MAX], record.ctime or now_ms)


def damage_path(ledger_id: int) -> str:
    """The node that names copies of a ledger reported as damaged; the content is that of a mark,
    with names as of `damaged_copy`."""
    return f"{DAMAGE_ROOT}/{ledger_id}"


def damaged_copy(bookie_id: str, entry_id: int | None) -> str:
    """The name of a damaged copy: its bookie, and the entry that a reader met, if one did."""
    return bookie_id if entry_id is None else f"{bookie_id} {entry_id}"


def bookie_and_entry_of(name: str) -> tuple[str, int | None]:
    """The same read back."""
    bookie_id, _, entry = name.partition(" ")
    return bookie_id, int(entry) if entry.isascii() and entry.isdigit() else None


def encode_lock(holder: str) -> bytes:
    """The lock, which names the process that repairs the ledger."""
    return _text(replication.LockDataFormat(bookieId=holder))


# --- the layout -------------------------------------------------------------------------------


def encode_layout() -> bytes:
    """The layout of the marks."""
    record = replication.LedgerRereplicationLayoutFormat(type=LAYOUT_TYPE, version=LAYOUT_VERSION)
    return _text(record)


def is_known_layout(data: bytes) -> bool:
    """Whether the marks are laid out as here."""
    record = _parsed(data, replication.LedgerRereplicationLayoutFormat())
    return (record.type, record.version) == (LAYOUT_TYPE, LAYOUT_VERSION)


# --- votes ------------------------------------------------------------------------------------


def encode_vote(candidate: str) -> bytes:
    """A candidate's vote, and the auditor's name at VOTES_ROOT."""
    return _text(replication.AuditorVoteFormat(bookieId=candidate))


def candidate_of_vote(data: bytes) -> str:
    """The candidate of a vote; empty: it names none."""
    return _parsed(data, replication.AuditorVoteFormat()).bookieId


def vote_path(number: int) -> str:
    """The vote with this number."""
    return f"{VOTES_ROOT}/{_VOTE}{number:010d}"


def vote_numbers(names: Iterable[str]) -> list[int]:
    """The numbers of the votes among the names below VOTES_ROOT, ascending: the lowest one is the
    auditor's."""
    digits = (name.removeprefix(_VOTE) for name in names if name.startswith(_VOTE))
    return sorted(int(each) for each in digits if each.isascii() and each.isdigit())


def next_vote_number(numbers: list[int]) -> int:
    """For a new vote after all others.

    ZooKeeper numbers the votes of BookKeeper's auditors by the changes that VOTES_ROOT has had,
    which are at least as many as this number, and one more after this vote: so neither meets the
    other's.
    """
    return min(numbers[-1] + 1, _VOTE_NUMBER_MAX) if numbers else 0


def encode_leader(candidate: str) -> bytes:
    """As Pulsar's leader election stores a text."""
    return json.dumps(candidate).encode()


def leader_of(data: bytes) -> str:
    """The auditor; empty: it does not say."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return ""
    return found if isinstance(found, str) else ""


# --- times ------------------------------------------------------------------------------------


def encode_ledgers_checked(now_ms: int) -> bytes:
    """When the copies of all ledgers were last checked."""
    return _text(replication.CheckAllLedgersFormat(checkAllLedgersCTime=now_ms))


def ledgers_checked_ms(data: bytes) -> int:
    """The same read back; 0: never, as far as is known."""
    return _parsed(data, replication.CheckAllLedgersFormat()).checkAllLedgersCTime


def delay_seconds(data: bytes) -> int:
    """lostBookieRecoveryDelay; 0 where it is not a number."""
    text = data.strip()
    return int(text) if text.isdigit() and len(text) < 10 else 0
