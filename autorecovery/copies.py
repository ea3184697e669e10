"""Copies of a ledger's entries on bookies: checks them, and replaces lost ones.

A bookie is lost when it is not registered. A registered bookie is asked for the first and the last
entry of each copy, and for a share of those in between, or for all of them, at a rate. An entry
counts as absent only if the bookie itself says that it lacks it.

An entry is copied as it is stored: the body with its head, which the digest covers. It goes to its
new bookie as a recovery add, which a fence does not stop. Memory is bounded by the batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import structlog
import trio

from autorecovery.fragments import Copies, CopyState, Fragment, fragments_of
from bookie.api import FLAG_RECOVERY_ADD, BookieError, Status
from protocol.bookkeeper.digests import Digest, DigestMismatch, master_key
from runtime.token_bucket import TokenBucket

if TYPE_CHECKING:
    import random
    from collections.abc import Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from bookie.api import BookieApi
    from protocol.bookkeeper.ledger_metadata import LedgerMetadata

log = structlog.get_logger()

BATCH_BYTES_MAX: Final = 2 * 1024 * 1024
RUN_ENTRIES_MAX: Final = 1_000
"""Entries of a copy that are read at once when it is read whole."""
SAMPLE_MAX: Final = 100
"""Entries of one copy that are looked at besides its first and last."""
INDEX_SAMPLE_MAX: Final = 10
"""Entries of one copy that is read whole that are also read alone, as readers read."""
WITHOUT_SOURCE_MAX: Final = 100
"""Entries of one copy that no bookie gives, after which no more of it is copied."""
_ABSENT: Final = frozenset({Status.NO_ENTRY, Status.NO_LEDGER})
_SILENT: Final = frozenset(
    {Status.UNREACHABLE, Status.TIMED_OUT, Status.TOO_MANY_REQUESTS, Status.NOT_ENOUGH_BOOKIES}
)


class NoSource(Exception):
    """No bookie gave an entry that has to be copied."""


class NotStored(Exception):
    """The bookie that should get the entries did not take them."""

    def __init__(self, bookie_id: str, detail: str) -> None:
        super().__init__(f"{bookie_id}: {detail}")
        self.bookie_id = bookie_id


@final
class ReadPace:
    """Keeps what is read below a rate. Readers pay after they have read, so that above the rate and
    a second of it no more is read than one run by each of them."""

    def __init__(self, bytes_per_second: int) -> None:
        """0: no limit."""
        self._bucket: TokenBucket | None = None
        if bytes_per_second > 0:
            now = trio.current_time()
            self._bucket = TokenBucket(bytes_per_second, bytes_per_second, now)

    async def pay(self, size_bytes: int) -> None:
        """Return when the rate allows what was read, and what others have read before."""
        bucket = self._bucket
        if bucket is None:
            return
        now = trio.current_time()
        bucket.take(size_bytes, now)
        debt = -bucket.tokens(now)
        if debt > 0:
            await trio.sleep(debt / bucket.rate)


@final
class Walk:
    """An iterator over the entries of a copy, in batches: each begins after what was `done` of the
    one before, and ends with its run. Whoever iterates says so before the next one."""

    __slots__ = ("_entries_max", "_entry_id", "_last", "_runs")

    def __init__(self, fragment: Fragment, place: int, entries_max: int) -> None:
        self._runs = fragment.runs_at(place)
        self._entries_max = entries_max
        self._entry_id, self._last = 0, -1

    def __iter__(self) -> Walk:
        return self

    def __next__(self) -> tuple[int, int]:
        """(first, last) of at least one entry."""
        if self._entry_id > self._last:
            self._entry_id, self._last = next(self._runs)
        return self._entry_id, min(self._last, self._entry_id + self._entries_max - 1)

    def done(self, count: int) -> None:
        """So many entries of the batch, from its first on; not more than it has."""
        self._entry_id += count


@final
class CopyReader:
    """Looks at the copies of one ledger."""

    def __init__(
        self,
        bookies: Mapping[str, BookieApi],
        ledger_id: int,
        metadata: LedgerMetadata,
        timeout_s: float,
        pace: ReadPace | None = None,
    ) -> None:
        """`pace`: of copies that are read whole; None: as fast as bookies answer."""
        self._bookies = bookies
        self._ledger_id = ledger_id
        self._metadata = metadata
        self._pace = pace
        self._digest = Digest(metadata.digest_type, metadata.password)
        self._timeout_s = timeout_s
        self.met: dict[str, int] = {}
        """The last entry that was looked for and not there, by bookie."""

    async def states(
        self,
        registered: AbstractSet[str],
        percent: float,
        chance: random.Random,
        suspected: AbstractSet[str] = frozenset(),
        met: AbstractSet[tuple[str, int]] = frozenset(),
    ) -> Copies:
        """The state of every copy. `percent`: the part of the entries between the first and the
        last of a copy that is looked at, too (auditorLedgerVerificationPercentage). The copies of
        `suspected` bookies are read whole, after the entries that were `met` there."""
        copies: Copies = {}
        for fragment in fragments_of(self._metadata):
            for place, bookie_id in enumerate(fragment.ensemble):
                key = fragment.first, place
                if bookie_id not in registered:
                    copies[key] = CopyState.LOST
                elif fragment.last is None:
                    copies[key] = CopyState.PRESENT  # its writer takes care
                elif percent >= 100 or bookie_id in suspected:
                    entries = [entry_id for each, entry_id in met if each == bookie_id]
                    copies[key] = await self._state_of_whole(fragment, place, entries, chance)
                else:
                    copies[key] = await self._state(fragment, place, percent, chance)
        return copies

    async def _state(
        self, fragment: Fragment, place: int, percent: float, chance: random.Random
    ) -> CopyState:
        entries = list(fragment.boundary_at(place))
        if percent > 0 and fragment.last is not None:
            count = fragment.last - fragment.first + 1
            sample = min(SAMPLE_MAX, int(count * percent / 100))
            chosen = {chance.randrange(fragment.first, fragment.last + 1) for _ in range(sample)}
            entries += [each for each in sorted(chosen) if fragment.stores(place, each)]
        for entry_id in entries:
            _body, state = await self._read_or_tell(fragment.ensemble[place], entry_id)
            if state is not CopyState.PRESENT:
                return state
        return CopyState.PRESENT

    async def _state_of_whole(
        self, fragment: Fragment, place: int, met: Sequence[int], chance: random.Random
    ) -> CopyState:
        """The same by all entries, up to the first that is not there. Before, those of `met` that
        the copy has and a sample are read alone: the read that begins at an entry is the one that
        asks the index for it."""
        bookie_id = fragment.ensemble[place]
        for entry_id in [*met, *_sample(fragment, chance)]:
            if fragment.has(place, entry_id):
                body, state = await self._read_or_tell(bookie_id, entry_id)
                if state is not CopyState.PRESENT:
                    return state
                await self._pay(len(body))
        walk = Walk(fragment, place, RUN_ENTRIES_MAX)
        for first, last in walk:
            bodies = await self.read_run(bookie_id, first, last)
            if not bodies:
                body, state = await self._read_or_tell(bookie_id, first)
                if state is not CopyState.PRESENT:
                    return state
                bodies = [body]
            walk.done(len(bodies))
            await self._pay(sum(map(len, bodies)))
        return CopyState.PRESENT

    async def _pay(self, size_bytes: int) -> None:
        if self._pace is not None:
            await self._pace.pay(size_bytes)

    async def _read_or_tell(self, bookie_id: str, entry_id: int) -> tuple[bytes, CopyState]:
        """`read`, with a line in the log about an entry that is not there."""
        body, state, detail = await self.read(bookie_id, entry_id)
        if state is not CopyState.PRESENT:
            self.met[bookie_id] = entry_id
            log.info(
                "copy not there",
                ledger_id=self._ledger_id,
                entry_id=entry_id,
                bookie=bookie_id,
                detail=detail,
            )
        return body, state

    async def read(self, bookie_id: str, entry_id: int) -> tuple[bytes, CopyState, str]:
        """(the body as stored, or nothing; what became of it; why)."""
        bookie = self._bookies.get(bookie_id)
        if bookie is None:
            return b"", CopyState.UNKNOWN, "its address is not known"
        try:
            with trio.fail_after(self._timeout_s):
                body = await bookie.read_entry(self._ledger_id, entry_id)
            self._digest.verify(body, self._ledger_id, entry_id)
        except BookieError as error:
            if error.status in _ABSENT:
                return b"", CopyState.ABSENT, str(error)
            state = CopyState.UNKNOWN if error.status in _SILENT else CopyState.DAMAGED
            return b"", state, str(error)
        except DigestMismatch as error:
            return b"", CopyState.DAMAGED, str(error)
        except trio.TooSlowError:
            return b"", CopyState.UNKNOWN, f"no answer in {self._timeout_s:g} s"
        return body, CopyState.PRESENT, ""

    async def read_run(self, bookie_id: str, first: int, last: int) -> list[bytes]:
        """Verified bodies of entries from `first` on; [] if that one cannot be had."""
        bookie = self._bookies.get(bookie_id)
        if bookie is None:
            return []
        try:
            with trio.fail_after(self._timeout_s):
                bodies = await bookie.read_batch(
                    self._ledger_id, first, last - first + 1, BATCH_BYTES_MAX
                )
        except (BookieError, trio.TooSlowError):
            return []
        verified: list[bytes] = []
        for entry_id, body in enumerate(bodies[: last - first + 1], first):
            try:
                self._digest.verify(body, self._ledger_id, entry_id)
            except DigestMismatch:
                break
            verified.append(body)
        return verified


def _sample(fragment: Fragment, chance: random.Random) -> list[int]:
    """Entries of a settled fragment, descending, because a bookie reads ahead and does not ask its
    index for what it has read; the copy at a place has a part of them."""
    if fragment.last is None or fragment.last < fragment.first:
        return []
    entries = range(fragment.first, fragment.last + 1)
    return sorted(chance.sample(entries, min(INDEX_SAMPLE_MAX, len(entries))), reverse=True)


@final
class Copier:
    """Copies entries of one ledger from the bookies that have them to one that shall."""

    def __init__(
        self,
        bookies: Mapping[str, BookieApi],
        ledger_id: int,
        metadata: LedgerMetadata,
        timeout_s: float,
        batch_entries: int,
    ) -> None:
        """`batch_entries`: rereplicationEntryBatchSize."""
        self._bookies = bookies
        self._ledger_id = ledger_id
        self._reader = CopyReader(bookies, ledger_id, metadata, timeout_s)
        self._key = master_key(metadata.password)
        self._head_size = Digest(metadata.digest_type, metadata.password).head_size_bytes
        self._timeout_s = timeout_s
        self._batch_entries = batch_entries
        self.entries = 0
        self.bytes = 0
        self.entries_read = 0
        self.bytes_read = 0

    async def copy(self, fragment: Fragment, place: int, target: str) -> None:
        """Everything that the bookie at this place of a settled fragment should have.

        Raises: NoSource, NotStored.
        """
        walk = Walk(fragment, place, self._batch_entries)
        for first, last in walk:
            walk.done(await self._copy_run(fragment, place, first, last, target))

    async def fill(self, fragment: Fragment, place: int) -> None:
        """All entries again, to the bookie at this place of a settled fragment, which lacks some or
        has damaged them: from others where it has none itself. All of them, because a bookie reads
        neighbours in its entry log without asking its index where each is. An entry that no bookie
        has keeps none after it from being copied, but then nothing is written again: each try would
        take the space of the whole copy.

        Raises: NoSource: for some entries. NotStored.
        """
        await self._complete(fragment, place)
        target = fragment.ensemble[place]
        walk = Walk(fragment, place, self._batch_entries)
        for first, last in walk:
            intact = await self._reader.read_run(target, first, last)
            if intact:
                await self._add(target, first, intact)
                walk.done(len(intact))
            else:
                walk.done(await self._copy_run(fragment, place, first, last, target))

    async def _complete(self, fragment: Fragment, place: int) -> None:
        """Copy the entries that the bookie lacks or has damaged, with the rest of their batch.
        Raises: NoSource, NotStored."""
        target = fragment.ensemble[place]
        without_source: list[NoSource] = []
        walk = Walk(fragment, place, self._batch_entries)
        for first, last in walk:
            intact = await self._reader.read_run(target, first, last)
            if intact:
                walk.done(len(intact))
                continue
            try:
                walk.done(await self._copy_run(fragment, place, first, last, target))
            except NoSource as error:
                without_source.append(error)
                if len(without_source) == WITHOUT_SOURCE_MAX:
                    raise
                walk.done(1)
        if without_source:
            raise without_source[0]

    async def _copy_run(
        self, fragment: Fragment, place: int, first: int, last: int, target: str
    ) -> int:
        """Entries from `first` on; returns how many. Raises: NoSource, NotStored."""
        bodies = await self._bodies(fragment, place, first, last, target)
        self.entries_read += len(bodies)
        self.bytes_read += sum(map(len, bodies))
        await self._add(target, first, bodies)
        self.entries += len(bodies)
        self.bytes += sum(map(len, bodies))
        return len(bodies)

    async def _bodies(
        self, fragment: Fragment, place: int, first: int, last: int, target: str
    ) -> list[bytes]:
        """At least one body. Raises: NoSource."""
        problems: list[str] = []
        sources = [each for each in fragment.sources_of(first, place) if each != target]
        for source in sources:
            if last > first:
                bodies = await self._reader.read_run(source, first, last)
                if bodies:
                    return bodies
            body, state, detail = await self._reader.read(source, first)
            if state is CopyState.PRESENT:
                return [body]
            problems.append(f"{source}: {detail}")
        raise NoSource(
            f"entry {self._ledger_id}:{first} is on no bookie that answers"
            f" ({'; '.join(problems) or 'there was one copy only'})"
        )

    async def _add(self, target: str, first: int, bodies: list[bytes]) -> None:
        """Raises: NotStored."""
        bookie = self._bookies.get(target)
        if bookie is None:
            raise NotStored(target, "its address is not known")
        sink = _Replies(len(bodies))
        size = self._head_size
        for entry_id, body in enumerate(bodies, first):
            parts = (body[:size], body[size:])
            bookie.add_entry(self._ledger_id, entry_id, parts, self._key, FLAG_RECOVERY_ADD, sink)
        bookie.kick()
        with trio.move_on_after(self._timeout_s):
            await sink.all_here.wait()
        if sink.refusal is not None:
            raise NotStored(target, sink.refusal.name)
        if sink.missing:
            raise NotStored(target, f"no answer in {self._timeout_s:g} s")


@final
class _Replies:
    """The answers to one batch of adds (an AddSink)."""

    def __init__(self, count: int) -> None:
        self.missing = count
        self.refusal: Status | None = None
        self.all_here = trio.Event()

    def on_add_replies(self, status: int, ledger_id: int, first_entry_id: int, count: int) -> None:
        """See AddSink."""
        self.missing -= count
        if status != Status.OK:
            self.refusal = Status(status)

    def on_replies_end(self) -> None:
        """See AddSink."""
        if self.missing <= 0 or self.refusal is not None:
            self.all_here.set()
