"""Reads entries of one ledger, from any bookie that has them, and checks every digest.

Members of an entry's write set are asked in order. After an error, a refusal or a wrong digest the
next one is asked, and after a silence too, if the client speculates (`speculation`). The first good
answer counts. The result is "it does not exist" only when every member proved it; any weaker
evidence is `EntryUnknown`. Both are concluded only from the record of the ledger as it is now: a
writer that replaces a bookie, and autorecovery, change which bookies have the entries, while a
reader is kept. Reads request runs of entries. Where every bookie has every entry, a run
is one request. With striping no bookie has many consecutive entries, so the entries of a run are
requested at the same time, each from its own write set. Their bytes are measured first
(`read_window`), so a read holds no more than its size, and a few entries of unknown size.

A bookie that gives a damaged entry of a closed ledger, or fails to read it, is reported when
another one has served the entry: its copy can be repaired.
"""

from __future__ import annotations

import math
from functools import partial
from itertools import takewhile
from typing import TYPE_CHECKING, Final, final

import structlog
import trio

from bookie.api import BookieError, Status
from ledgers.errors import EntryAbsent, EntryUnknown
from ledgers.read_window import ReadRun, ReadWindow
from ledgers.speculation import Speculation
from metadata.store import MetadataUnavailable
from protocol.bookkeeper.digests import Digest, DigestType, entry_metadata
from protocol.bookkeeper.ledger_layout import write_set

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from bookie.api import BookieApi
    from ledgers.speculation import ReplicaTurns
    from protocol.bookkeeper.ledger_metadata import LedgerMetadata

_log = structlog.get_logger()
_ABSENT = frozenset({Status.NO_ENTRY, Status.NO_LEDGER})
CHECKED_BYTES_MAX: Final = 1 << 20
"""Checked in the event loop, by the digest of most ledgers, CRC-32C: 0.1 ms, which is what the hop
to a thread and back takes of the interpreter."""
CHECKED_AT_ONCE_MAX: Final = 1_000
"""The same for entries: a quarter of a millisecond."""
_SLOW_DIGEST: Final = 16
"""By another digest as much takes so many times longer."""
CHECKING_THREADS: Final = 2
_CHECKS: trio.lowlevel.RunVar[trio.CapacityLimiter] = trio.lowlevel.RunVar("digest checks")


@final
class LedgerReader:
    """See the module docstring. For an open ledger the caller knows how far it may read."""

    __slots__ = (
        "_bookies",
        "_digest",
        "_metadata_now",
        "_on_damage",
        "_speculation",
        "_window",
        "ledger_id",
        "metadata",
    )

    def __init__(
        self,
        bookies: Mapping[str, BookieApi],
        ledger_id: int,
        metadata: LedgerMetadata,
        metadata_now: Callable[[], Awaitable[LedgerMetadata]],
        speculation: Speculation | None = None,
        on_damage: Callable[[int, str, int], None] | None = None,
    ) -> None:
        """`metadata_now` reads the record again (raises LedgerError, MetadataUnavailable).
        `speculation`: that of the client; without it a silent bookie is waited for. `on_damage`
        is called with ledger, bookie and the entry that it did not give, once a read: it returns at
        once."""
        self.ledger_id = ledger_id
        self.metadata = metadata
        self._bookies = bookies
        self._metadata_now = metadata_now
        self._speculation = speculation if speculation is not None else Speculation()
        self._on_damage = on_damage
        self._digest = Digest(metadata.digest_type, metadata.password)
        # The length of an open ledger is 0: not known.
        self._window = ReadWindow(metadata.length // max(1, metadata.last_entry_id + 1))

    async def read(self, first: int, last: int, size_bytes_max: int = 1 << 20) -> list[bytes]:
        """Payloads of the entries from `first` on, at most up to `last`: at least one, and no more
        than one bookie returns at once within the size, or a window of a striped ledger.

        Raises: EntryAbsent, EntryUnknown: about `first`. LedgerNotFound, LedgerDamaged: so it is
            now, and the entry was not found where it had been.
        """
        metadata = self.metadata
        if metadata.ensemble_size == metadata.write_quorum_size:
            return (await self._ask(first, last, size_bytes_max)).result()
        edges = self._window.edges(size_bytes_max, last - first)
        wanted = [(first, last), *((first + each, first + each) for each in edges)]
        begin, *ahead = await self._ask_all(wanted, size_bytes_max)
        payloads = begin.result()
        following = first + len(payloads)
        found: dict[int, bytes] = {}
        measured: list[ReadRun] = []
        for read in ahead:
            if read.first >= following and read.payloads:
                found[read.first] = read.payloads[0]
                measured.append(read.run())
        end = self._window.end(begin.run(), measured, size_bytes_max)
        missing = [each for each in range(following, end) if each not in found]
        for read in await self._ask_all([(each, each) for each in missing], size_bytes_max):
            if read.payloads:
                found[read.first] = read.payloads[0]
        # The read that begins with an entry that cannot be read gets the error.
        entries = takewhile(found.__contains__, range(following, end + 1))
        return payloads + [found[each] for each in entries]

    async def _ask_all(self, runs: list[tuple[int, int]], size_bytes_max: int) -> list[_Read]:
        """`_ask` for each run (first and last entry), at the same time."""
        reads: dict[int, _Read] = {}

        async def ask(first: int, last: int) -> None:
            reads[first] = await self._ask(first, last, size_bytes_max)

        async with trio.open_nursery() as nursery:
            for run in runs:
                nursery.start_soon(ask, *run)
        return [reads[first] for first, _ in runs]

    async def _ask(self, first: int, last: int, size_bytes_max: int) -> _Read:
        """The entries that one bookie returns at once, or why none does."""
        while True:
            metadata = self.metadata
            read = await self._ask_by(metadata, first, last, size_bytes_max)
            if read.payloads:
                return read
            try:
                if self.metadata is metadata:
                    self.metadata = await self._metadata_now()
            except MetadataUnavailable as error:
                read.is_absent = False  # by an old record only
                read.problems.append(str(error))
                return read
            if self.metadata.ensemble_of(first) == metadata.ensemble_of(first):
                return read

    async def _ask_by(
        self, metadata: LedgerMetadata, first: int, last: int, size_bytes_max: int
    ) -> _Read:
        """The same, of the bookies that had `first` by this record."""
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
        if read.damaged and read.payloads and metadata.is_closed and self._on_damage is not None:
            for bookie_id in read.damaged:
                self._on_damage(self.ledger_id, bookie_id, first)
        read.is_absent = read.absent == len(members)
        return read


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
        self.first = first
        self._last = last
        self._size_bytes_max = size_bytes_max
        self.payloads: list[bytes] = []
        """The first good answer."""
        self.ledger_bytes = 0
        """Payload bytes of the ledger up to the end of `payloads`, as their last entry states."""
        self.problems: list[str] = []
        self.damaged: list[str] = []
        """Bookies that could not give the first entry, or gave a damaged one."""
        self.absent = 0
        """How many proved that the first entry does not exist."""
        self.is_absent = False
        """All members of its write set did."""

    def result(self) -> list[bytes]:
        """The payloads. Raises: EntryAbsent, EntryUnknown."""
        if self.payloads:
            return self.payloads
        detail = f"entry {self._ledger_id}:{self.first}: " + "; ".join(self.problems)
        raise EntryAbsent(detail) if self.is_absent else EntryUnknown(detail)

    def run(self) -> ReadRun:
        """`payloads`, of which there is at least one."""
        entries = len(self.payloads)
        size_bytes = sum([len(each) for each in self.payloads])
        return ReadRun(self.first + entries - 1, entries, size_bytes, self.ledger_bytes)

    async def ask(self, bookie_id: str) -> bool:
        """Whether this bookie has a good answer."""
        bookie = self._bookies.get(bookie_id)
        if bookie is None:
            self.problems.append(f"{bookie_id}: not available")
            return False
        count = self._last - self.first + 1
        try:
            bodies = await bookie.read_batch(
                self._ledger_id, self.first, count, self._size_bytes_max
            )
        except BookieError as error:
            self.absent += error.status in _ABSENT
            if error.status is Status.IO_ERROR:
                self.damaged.append(bookie_id)
            self.problems.append(f"{bookie_id}: {error}")
            return False
        payloads, problem = await self._verified(bodies)
        if payloads:
            self.payloads = payloads
            self.ledger_bytes = entry_metadata(bodies[len(payloads) - 1])[3]
            return True
        self.problems.append(f"{bookie_id}: {problem}")
        self.damaged.append(bookie_id)
        _log.error("entry_damaged", ledger_id=self._ledger_id, bookie=bookie_id, detail=problem)
        return False

    async def _verified(self, bodies: list[bytes]) -> tuple[list[bytes], str]:
        """The payloads up to the first damaged one, and a description of the damage."""
        bodies = bodies[: self._last - self.first + 1]
        check = partial(self._digest.verified_payloads, bodies, self._ledger_id, self.first)
        cost = 1 if self._digest.digest_type is DigestType.CRC32C else _SLOW_DIGEST
        if (
            cost * len(bodies) <= CHECKED_AT_ONCE_MAX
            and cost * sum(map(len, bodies)) <= CHECKED_BYTES_MAX
        ):
            payloads, problem = check()
        else:
            payloads, problem = await trio.to_thread.run_sync(check, limiter=_checks())
        return payloads, problem or "nothing was returned"


def _checks() -> trio.CapacityLimiter:
    """The two threads that help the running loop to check what was read."""
    try:
        return _CHECKS.get()
    except LookupError:
        limiter = trio.CapacityLimiter(CHECKING_THREADS)
        _CHECKS.set(limiter)
        return limiter
