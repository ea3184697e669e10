"""Reads entries of one ledger, from any bookie that has them, and checks every digest.

Members of an entry's write set are asked in order. After an error, a refusal or a wrong digest the
next one is asked. The result is "it does not exist" only when every member proved it; any weaker
evidence is `EntryUnknown`. Reads request runs of entries. With one bookie a run is one request;
with striping a run is as long as the bookie's run of consecutive entries.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

import structlog

from bookie.api import BookieError, Status
from ledgers.errors import EntryAbsent, EntryUnknown
from protocol.bookkeeper.digests import Digest, DigestMismatch
from protocol.bookkeeper.ledger_layout import write_set

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bookie.api import BookieApi
    from protocol.bookkeeper.ledger_metadata import LedgerMetadata

_log = structlog.get_logger()
_ABSENT = frozenset({Status.NO_ENTRY, Status.NO_LEDGER})


@final
class LedgerReader:
    """See the module docstring. For an open ledger the caller knows how far it may read."""

    __slots__ = ("_bookies", "_digest", "ledger_id", "metadata")

    def __init__(
        self, bookies: Mapping[str, BookieApi], ledger_id: int, metadata: LedgerMetadata
    ) -> None:
        self.ledger_id = ledger_id
        self.metadata = metadata
        self._bookies = bookies
        self._digest = Digest(metadata.digest_type, metadata.password)

    async def read(self, first: int, last: int, size_bytes_max: int = 1 << 20) -> list[bytes]:
        """Payloads of the entries from `first` on, at most up to `last`: at least one, and no more
        than one bookie returns at once within the size.

        Raises: EntryAbsent, EntryUnknown: about `first`.
        """
        metadata = self.metadata
        ensemble = metadata.ensemble_of(first)
        size = len(ensemble)
        # Where every bookie has every entry, a ledger is read from the same one as long as that
        # answers, which then reads ahead.
        start = self.ledger_id if size == metadata.write_quorum_size else first
        indices = write_set(start, size, metadata.write_quorum_size)
        problems: list[str] = []
        absent = 0
        for index in indices:
            bookie_id = ensemble[index]
            bookie = self._bookies.get(bookie_id)
            if bookie is None:
                problems.append(f"{bookie_id}: not available")
                continue
            try:
                bodies = await bookie.read_batch(
                    self.ledger_id, first, last - first + 1, size_bytes_max
                )
            except BookieError as error:
                absent += error.status in _ABSENT
                problems.append(f"{bookie_id}: {error}")
                continue
            payloads, problem = self._verified(first, last, bodies)
            if payloads:
                return payloads
            problems.append(f"{bookie_id}: {problem}")
            _log.error("entry_damaged", ledger_id=self.ledger_id, bookie=bookie_id, detail=problem)
        detail = f"entry {self.ledger_id}:{first}: " + "; ".join(problems)
        raise EntryAbsent(detail) if absent == len(indices) else EntryUnknown(detail)

    def _verified(self, first: int, last: int, bodies: list[bytes]) -> tuple[list[bytes], str]:
        """The payloads up to the first damaged one, and a description of the damage."""
        verified = self._digest.verified_payload
        ledger_id = self.ledger_id
        payloads: list[bytes] = []
        entry_id = first
        try:
            for body in bodies:
                if entry_id > last:
                    break
                payloads.append(verified(body, ledger_id, entry_id))
                entry_id += 1
        except DigestMismatch as error:
            return payloads, str(error)
        return payloads, "nothing was returned"
