"""LedgerState: what a bookie knows of one ledger, and the rules for adding to it. Pure.

The event loop is the only writer of it; flush threads read `flushing` and `deleted`.

LedgerData, the row of the ledgers index, is BookKeeper's protobuf message
{exists 1, fenced 2, masterKey 3, explicitLac 4, limbo 5}, packed by hand here: five fields.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from bookie.api import FLAG_RECOVERY_ADD, Status

if TYPE_CHECKING:
    from bookie.entry_runs import EntryRuns


class LedgerState:
    """One ledger, wherever it is stored."""

    __slots__ = (
        "deleted",
        "entries",
        "entry_id_max",
        "exists",
        "explicit_lac",
        "fenced",
        "flushing",
        "guarded",
        "key_journaled",
        "ledger_id",
        "limbo",
        "master_key",
    )

    def __init__(self, ledger_id: int) -> None:
        self.ledger_id = ledger_id
        self.master_key = b""
        self.exists = True
        self.fenced = False
        self.limbo = False
        self.explicit_lac = b""
        self.key_journaled = False
        self.deleted = False
        self.guarded = True
        """True sends adds down the slow path: fenced, or the key is not yet in this run's
        journal."""
        self.entry_id_max = -1
        """Highest entry id added in this run; older ones are known to the index."""
        self.entries: EntryRuns | None = None
        """This ledger's part of the active half of the write cache."""
        self.flushing: EntryRuns | None = None

    def refusal_of_key(self, master_key: bytes) -> Status | None:
        """The first key is kept; an empty or zero one may be replaced once."""
        if self.master_key == master_key:
            return None
        if any(self.master_key):
            return Status.UNAUTHORIZED
        return None

    def adopt_key(self, master_key: bytes) -> bool:
        """Store the key if none was known. True if it is new and has to be made durable."""
        if self.master_key == master_key or any(self.master_key):
            return False
        self.master_key = master_key
        return True

    def refusal_of_add(self, flags: int) -> Status | None:
        """A fenced ledger accepts only recovery adds. A tombstone accepts none."""
        if self.fenced and (not self.exists or not flags & FLAG_RECOVERY_ADD):
            return Status.FENCED
        return None

    def update_guard(self) -> None:
        """Call after a change of fenced or key_journaled."""
        self.guarded = self.fenced or not self.key_journaled or not self.exists


class LedgerData(Protocol):
    """The content of a row of the ledgers index."""

    exists: bool
    fenced: bool
    limbo: bool
    master_key: bytes
    explicit_lac: bytes


def encode_ledger_data(handle: LedgerData) -> bytes:
    """The ledger's row in the ledgers index."""
    parts = [b"\x08", b"\1" if handle.exists else b"\0", b"\x10", b"\1" if handle.fenced else b"\0"]
    parts += (b"\x1a", _varint(len(handle.master_key)), handle.master_key)
    if handle.explicit_lac:
        parts += (b"\x22", _varint(len(handle.explicit_lac)), handle.explicit_lac)
    if handle.limbo:
        parts.append(b"\x28\1")
    return b"".join(parts)


def decode_ledger_data(data: bytes, handle: LedgerData) -> None:
    """Apply the row to the handle.

    Raises: ValueError: this is no LedgerData.
    """
    offset = 0
    while offset < len(data):
        tag, offset = _read_varint(data, offset)
        value, offset = _read_varint(data, offset)
        if tag & 7 == 2:
            blob = data[offset : offset + value]
            if len(blob) != value:
                raise ValueError("LedgerData is cut short")
            offset += value
            if tag == 0x1A:
                handle.master_key = blob
            elif tag == 0x22:
                handle.explicit_lac = blob
        elif tag == 0x08:
            handle.exists = bool(value)
        elif tag == 0x10:
            handle.fenced = bool(value)
        elif tag == 0x28:
            handle.limbo = bool(value)
        elif tag & 7 != 0:
            raise ValueError(f"LedgerData has an unknown field tag {tag}")


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _read_varint(data: bytes, offset: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if offset >= len(data) or shift > 63:
            raise ValueError("LedgerData is cut short")
        byte = data[offset]
        offset += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, offset
        shift += 7
