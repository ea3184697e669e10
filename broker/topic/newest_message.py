"""Looks back from the end of a topic for the newest entry that is for clients.

Asked only when the last entry is a marker, or cannot be read by any client. A few of them at most
follow each other in practice, so the entries before it are read in small groups.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from broker.entry import Entry
    from broker.managed_ledger.ledger import ManagedLedger
    from protocol.position import Position

GROUP_ENTRIES: Final = 100
READ_BYTES_MAX: Final = 1024 * 1024


async def newest_message_before(ledger: ManagedLedger, position: Position) -> Entry | None:
    """The newest entry before the position that is for clients; None if there is none.

    Raises: BrokerError PersistenceError: storage cannot give it now.
    """
    message = None
    ledger_id, last = ledger.previous_position(position)
    while message is None and last >= 0:
        first = max(0, last + 1 - GROUP_ENTRIES)
        message = await _last_of(ledger, ledger_id, first, last)
        ledger_id, last = ledger.previous_position((ledger_id, first))
    return message


async def _last_of(ledger: ManagedLedger, ledger_id: int, first: int, last: int) -> Entry | None:
    """The last of these entries that is for clients."""
    message = None
    while first <= last:
        entries = await ledger.read((ledger_id, first), last + 1 - first, READ_BYTES_MAX)
        if not entries or entries[-1].position > (ledger_id, last):
            break  # they have been trimmed meanwhile
        for entry in entries:
            if not entry.is_withheld:
                message = entry
        first = entries[-1].position[1] + 1
    return message
