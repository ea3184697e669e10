"""Reads entries of one ledger, from any bookie that has them, and checks every digest.

Members of an entry's write set are asked in order. After an error, a refusal or a wrong digest the
next one is asked, and after a silence too, if the client speculates (`speculation`). The first good
answer counts. The result is "it does not exist" only when every member proved it; any weaker
evidence is `EntryUnknown`. Reads request runs of entries. Where every bookie has every entry, a run
is one request. With striping no bookie has many consecutive entries, so the entries of a run are
requested at the same time, each from its own write set.
"""

from __future__ import annotations

import math
from itertools import takewhile
from typing import TYPE_CHECKING, Final, final

import structlog
import trio

from bookie.api import BookieError, Status
from ledgers.errors import EntryAbsent, EntryUnknown
from ledgers.speculation import Speculation
from protocol.bookkeeper.digests import Digest, DigestMismatch
from protocol.bookkeeper.ledger_layout import write_set

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bookie.api import BookieApi
    from ledgers.speculation import ReplicaTurns
    from protocol.bookkeeper.ledger_metadata import LedgerMetadata

STRIPED_ENTRIES_MAX: Final = 64
"""Entries of a striped ledger that are requested at the same time, by one read."""

_log = structlog.get_logger()
_ABSENT = frozenset({Status.NO_ENTRY, Status.NO_LEDGER})


@final
class LedgerReader:
    """See the module docstring. For an open ledger the caller knows how far it may read."""

    __slots__ = ("_bookies", "_digest", "_speculation", "ledger_id", "metadata")

    def __init__(
        self,
        bookies: Mapping[str, BookieApi],
        ledger_id: int,
        metadata: LedgerMetadata,
        speculation: Speculation | None = None,
    ) -> None:
        """`speculation`: that of the client; without it a silent bookie is waited for."""
        self.ledger_id = ledger_id
        self.metadata = metadata
        self._bookies = bookies
        self._speculation = speculation if speculation is not None else Speculation()
        self._digest = Digest(metadata.digest_type, metadata.password)

    async def read(self, first: int, last: int, size_bytes_max: int = 1 << 20) -> list[bytes]:
        """Payloads of the entries from `first` on, at most up to `last`: at least one, and no more
        than one bookie returns at once within the size. Of a striped ledger, whose entries are read
        one by one, the size is kept as far as the largest of the first ones tells.

        Raises: EntryAbsent, EntryUnknown: about `first`.
        """
        payloads = await self._read_run(first, last, size_bytes_max)
        metadata = self.metadata
        following = first + len(payloads)
        if metadata.ensemble_size == metadata.write_quorum_size or following > last:
            return payloads
        room_bytes = size_bytes_max - sum([len(each) for each in payloads])
        count = room_bytes // max(1, *[len(each) for each in payloads])
        count = min(count, last - following + 1, STRIPED_ENTRIES_MAX)
        if count > 0:
            payloads += await self._read_single(range(following, following + count), size_bytes_max)
        return payloads

    async def _read_single(self, entries: range, size_bytes_max: int) -> list[bytes]:
        """Payloads of these entries, up to the first that cannot be read: whoever asks for that one
        first gets the error."""
        found: dict[int, bytes] = {}

        async def read_one(entry_id: int) -> None:
            try:
                (found[entry_id],) = await self._read_run(entry_id, entry_id, size_bytes_max)
            except (EntryAbsent, EntryUnknown):
                return

        async with trio.open_nursery() as nursery:
            for entry_id in entries:
                nursery.start_soon(read_one, entry_id)
        return list(map(found.__getitem__, takewhile(found.__contains__, entries)))

    async def _read_run(self, first: int, last: int, size_bytes_max: int) -> list[bytes]:
        """What one bookie returns at once. Raises: EntryAbsent, EntryUnknown: about `first`."""
        metadata = self.metadata
        ensemble = metadata.ensemble_of(first)
        size = len(ensemble)
        # Where every bookie has every entry, a ledger is read from the same one as long as that
        # answers, which then reads ahead.
        start = self.ledger_id if size == metadata.write_quorum_size else first
        members = [ensemble[at] for at in write_set(start, size, metadata.write_quorum_size)]
        read = _Read(self._bookies, self.ledger_id, self._digest, first, last, size_bytes_max)
        turns = self._speculation.turns(len(members), trio.current_time())
        if turns.due_at == math.inf:
            await _ask_in_turn(read, members, turns)
        else:
            await _ask_past_silent_ones(read, members, turns)
        if read.payloads:
            return read.payloads
        detail = f"entry {self.ledger_id}:{first}: " + "; ".join(read.problems)
        raise EntryAbsent(detail) if read.absent == len(members) else EntryUnknown(detail)


async def _ask_in_turn(read: _Read, members: list[str], turns: ReplicaTurns) -> None:
    """One after the other, until one has a good answer."""
    replica: int | None = 0
    while replica is not None and not await read.ask(members[replica]):
        replica = turns.on_failure()


async def _ask_past_silent_ones(read: _Read, members: list[str], turns: ReplicaTurns) -> None:
    """The same, but while one is silent others are asked as well."""

    async def ask(replica: int | None) -> None:
        while replica is not None and not await read.ask(members[replica]):
            replica = turns.on_failure()
        if replica is not None or turns.is_over:
            nursery.cancel_scope.cancel()

    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask, 0)
            while True:
                await trio.sleep_until(turns.due_at)
                nursery.start_soon(ask, turns.on_silence(trio.current_time()))
    finally:
        turns.end()


@final
class _Read:
    """One read, and what the replicas that were asked have answered."""

    def __init__(
        self,
        bookies: Mapping[str, BookieApi],
        ledger_id: int,
        digest: Digest,
        first: int,
        last: int,
        size_bytes_max: int,
    ) -> None:
        self._bookies = bookies
        self._ledger_id = ledger_id
        self._digest = digest
        self._first = first
        self._last = last
        self._size_bytes_max = size_bytes_max
        self.payloads: list[bytes] = []
        """The first good answer."""
        self.problems: list[str] = []
        self.absent = 0
        """How many proved that the first entry does not exist."""

    async def ask(self, bookie_id: str) -> bool:
        """Whether this bookie has a good answer."""
        bookie = self._bookies.get(bookie_id)
        if bookie is None:
            self.problems.append(f"{bookie_id}: not available")
            return False
        count = self._last - self._first + 1
        try:
            bodies = await bookie.read_batch(
                self._ledger_id, self._first, count, self._size_bytes_max
            )
        except BookieError as error:
            self.absent += error.status in _ABSENT
            self.problems.append(f"{bookie_id}: {error}")
            return False
        payloads, problem = self._verified(bodies)
        if payloads:
            self.payloads = payloads
            return True
        self.problems.append(f"{bookie_id}: {problem}")
        _log.error("entry_damaged", ledger_id=self._ledger_id, bookie=bookie_id, detail=problem)
        return False

    def _verified(self, bodies: list[bytes]) -> tuple[list[bytes], str]:
        """The payloads up to the first damaged one, and a description of the damage."""
        verified = self._digest.verified_payload
        ledger_id, last = self._ledger_id, self._last
        payloads: list[bytes] = []
        entry_id = self._first
        try:
            for body in bodies:
                if entry_id > last:
                    break
                payloads.append(verified(body, ledger_id, entry_id))
                entry_id += 1
        except DigestMismatch as error:
            return payloads, str(error)
        return payloads, "nothing was returned"
