"""Takes a ledger from its writer and decides how it ends.

1. Compare-and-set OPEN -> IN_RECOVERY. Several recoverers may run: compare-and-set decides.
2. A fencing read of the last entry goes to every bookie of the last segment, until no write set
   has an ack quorum of members that were not heard from. From then on no writer can get an entry
   acknowledged. The answers give a lower bound of the last add confirmed. An entry that states
   itself or a later one as confirmed gives none: BookKeeper's LedgerFragmentReplicator states in
   copies what was confirmed when it copied, and a lying bookie states what it likes.
3. Entries after it are read forward, with fencing reads (a bookie that was not heard in step 2 must
   not continue to accept entries). An entry is absent only after W - A + 1 proofs. If neither the
   entry nor the proofs can be obtained, recovery fails. It never guesses: an unknown answer, a
   damaged entry or a silent bookie is not a proof.
4. Each entry found is written again to its whole write set, so that it is as durable as an
   acknowledged one before any reader learns of it. A bookie that does not take it is replaced, in
   memory only: from this entry on there is a new segment. Reading goes on from the old ensemble. If
   no other bookie can be had, A copies are enough.
5. At the first absent entry: compare-and-set IN_RECOVERY -> CLOSED, with the new segments.

With one bookie, steps 3 and 4 work on runs of entries: that bookie has durably refused all other
writers in step 2, so a plain batch read proves the same as single fencing reads. With several,
a few entries are read at once, and only those before the first absent one count. Their bytes are
measured first (`read_window`), because they stay in memory until they are written again.

Source: BookKeeper's LedgerRecoveryOp and ReadLastConfirmedOp. Fencing of the recovery reads follows
from apache/bookkeeper#2616.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import structlog
import trio

from bookie.api import (
    FLAG_FENCING,
    FLAG_HIGH_PRIORITY,
    FLAG_RECOVERY_ADD,
    LAST_ENTRY,
    BookieError,
    Status,
)
from ledgers.errors import LedgerNotFound, NotEnoughBookies, RecoveryFailed
from ledgers.placement import groups_of
from ledgers.read_window import ReadRun, ReadWindow
from ledgers.replication import absent_after, is_covered
from ledgers.stored_metadata import stored_metadata
from metadata.store import VersionConflict
from protocol.bookkeeper.digests import Digest, DigestMismatch, entry_metadata, master_key
from protocol.bookkeeper.ledger_layout import write_set
from protocol.bookkeeper.ledger_metadata import (
    LedgerMetadata,
    LedgerState,
    encode_ledger_metadata,
)
from protocol.bookkeeper.paths import ledger_path

if TYPE_CHECKING:
    from bookie.api import BookieApi
    from ledgers.cluster import Cluster
    from metadata.store import MetadataStore

_log = structlog.get_logger()
_ABSENT = frozenset({Status.NO_ENTRY, Status.NO_LEDGER})
_READ_FLAGS: Final = FLAG_FENCING | FLAG_HIGH_PRIORITY
_ADD_FLAGS: Final = FLAG_RECOVERY_ADD | FLAG_HIGH_PRIORITY
_RUN_ENTRIES_MAX: Final = 1000
_RUN_BYTES_MAX: Final = 4 * 1024 * 1024
_READS_AT_ONCE_MAX: Final = 32


async def recover_ledger(
    store: MetadataStore, cluster: Cluster, ledger_id: int, request_timeout_s: float
) -> LedgerMetadata:
    """Fence the ledger, decide its end and return its closed metadata.

    Raises: LedgerNotFound, LedgerDamaged, RecoveryFailed.
    """
    path = ledger_path(ledger_id)
    while True:
        stored = await store.get(path)
        if stored is None:
            raise LedgerNotFound(f"ledger {ledger_id} does not exist")
        metadata, version = stored_metadata(ledger_id, stored[0]), stored[1]
        if metadata.is_closed:
            return metadata
        try:
            if metadata.state is LedgerState.OPEN:
                metadata = metadata.in_recovery()
                version = await store.put(path, encode_ledger_metadata(metadata), version)
            recovery = _Recovery(cluster, ledger_id, metadata, request_timeout_s)
            last_entry_id, length = await recovery.run()
            closed = recovery.metadata.closed(last_entry_id, length)
            await store.put(path, encode_ledger_metadata(closed), version)
        except VersionConflict:
            continue
        _log.info(
            "ledger_recovered", ledger_id=ledger_id, last_entry_id=last_entry_id, length=length
        )
        return closed


@final
class _Recovery:
    """One attempt at steps 2 to 4 for one version of the metadata."""

    def __init__(
        self,
        cluster: Cluster,
        ledger_id: int,
        metadata: LedgerMetadata,
        request_timeout_s: float,
    ) -> None:
        self.metadata = metadata
        """With the segments that this recovery added."""
        self._cluster = cluster
        self._bookies = cluster.bookies
        self._ledger_id = ledger_id
        self._metadata = metadata
        self._timeout_s = request_timeout_s
        self._digest = Digest(metadata.digest_type, metadata.password)
        self._master_key = master_key(metadata.password)
        self._first_of_segment, self._ensemble = metadata.last_ensemble
        self._length_at: tuple[int, int] = (-1, 0)
        self._writing = self._ensemble
        """The bookies that get the entries that are written again."""
        self._left: set[str] = set()
        """Bookies that lost their place."""
        self._without: set[int] = set()
        """Places in `_writing` for which no other bookie could be had."""
        self._reads_at_once = 1
        self._window = ReadWindow(0)

    async def run(self) -> tuple[int, int]:
        """(last entry id, payload bytes of the ledger)."""
        last_entry_id = await self._fence()
        single = self._bookies.get(self._ensemble[0]) if len(self._ensemble) == 1 else None
        while True:
            if single is not None:
                bodies = await self._read_run(single, last_entry_id + 1)
            else:
                bodies = await self._read_some(last_entry_id + 1)
            if not bodies:
                break
            await self._add_again(last_entry_id + 1, bodies)
            last_entry_id += len(bodies)
            self._length_at = (last_entry_id, entry_metadata(bodies[-1])[3])
        if last_entry_id < 0:
            return -1, 0
        if self._length_at[0] != last_entry_id:
            await self._learn_length(last_entry_id)
        return last_entry_id, self._length_at[1]

    async def _fence(self) -> int:
        """Step 2: returns the last entry known to be confirmed."""
        metadata = self._metadata
        heard: set[int] = set()
        last_confirmed = self._first_of_segment - 1
        problems: list[str] = []

        async def fence_one(index: int) -> None:
            nonlocal last_confirmed
            body = await self._fencing_read(self._ensemble[index], LAST_ENTRY, problems)
            if body is None:
                return
            heard.add(index)
            if body:
                _, entry_id, confirmed, length = entry_metadata(body)
                if confirmed < entry_id:
                    last_confirmed = max(last_confirmed, confirmed)
                if entry_id > self._length_at[0]:
                    self._length_at = (entry_id, length)

            if is_covered(heard, *sizes):
                nursery.cancel_scope.cancel()

        sizes = (metadata.ensemble_size, metadata.write_quorum_size, metadata.ack_quorum_size)
        async with trio.open_nursery() as nursery:
            for index in range(len(self._ensemble)):
                nursery.start_soon(fence_one, index)
        if not is_covered(heard, *sizes):
            raise RecoveryFailed(
                f"ledger {self._ledger_id}: only {len(heard)} of {sizes[0]} bookies could be fenced"
                f" ({'; '.join(problems)}); bring the missing ones back"
            )
        return last_confirmed

    async def _fencing_read(
        self, bookie_id: str, entry_id: int, problems: list[str]
    ) -> bytes | None:
        """The verified body; b"" = proved absent; None = unknown (the reason is noted)."""
        bookie = self._bookies.get(bookie_id)
        if bookie is None:
            problems.append(f"{bookie_id}: not available")
            return None
        try:
            with trio.fail_after(self._timeout_s):
                body = await bookie.read_entry(
                    self._ledger_id, entry_id, flags=_READ_FLAGS, master_key=self._master_key
                )
            found = entry_metadata(body)[1] if entry_id == LAST_ENTRY else entry_id
            self._digest.verify(body, self._ledger_id, found)
        except BookieError as error:
            if error.status in _ABSENT:
                return b""
            problems.append(f"{bookie_id}: {error}")
            return None
        except DigestMismatch as error:
            problems.append(f"{bookie_id}: {error}")
            return None
        except trio.TooSlowError:
            problems.append(f"{bookie_id}: no answer in {self._timeout_s} s")
            return None
        return body

    async def _read_run(self, bookie: BookieApi, first: int) -> list[bytes]:
        """A run of entries from the only, durably fenced bookie; [] = `first` is proved absent."""
        try:
            with trio.fail_after(self._timeout_s):
                bodies = await bookie.read_batch(
                    self._ledger_id, first, _RUN_ENTRIES_MAX, _RUN_BYTES_MAX
                )
            for entry_id, body in enumerate(bodies, first):
                self._digest.verify(body, self._ledger_id, entry_id)
        except BookieError as error:
            if error.status in _ABSENT:
                return []
            raise self._failed(first, str(error)) from error
        except DigestMismatch as error:
            raise self._failed(first, str(error)) from error
        except trio.TooSlowError as error:
            raise self._failed(first, f"no answer in {self._timeout_s} s") from error
        return bodies

    async def _read_some(self, first: int) -> list[bytes]:
        """The entries from `first` on before the next absent one, as far as their bytes are known
        to be few enough; [] = `first` is absent."""
        edges = self._window.edges(_RUN_BYTES_MAX, self._reads_at_once - 1)
        found = await self._read_each([first, *(first + each for each in edges)])
        begin = found[first]
        if isinstance(begin, RecoveryFailed):
            raise begin
        if not begin:
            return []
        runs = {
            entry_id: ReadRun(entry_id, 1, len(body), entry_metadata(body)[3])
            for entry_id, body in found.items()
            if isinstance(body, bytes) and body
        }
        end = self._window.end(runs.pop(first), runs.values(), _RUN_BYTES_MAX)
        missing = [each for each in range(first + 1, end) if each not in found]
        found |= await self._read_each(missing)
        bodies: list[bytes] = []
        for entry_id in range(first, end + 1):
            body = found[entry_id]
            if isinstance(body, RecoveryFailed) or not body:
                break  # asked again as the first one
            bodies.append(body)
        self._reads_at_once = min(_READS_AT_ONCE_MAX, 2 * len(bodies))
        return bodies

    async def _read_each(self, entry_ids: list[int]) -> dict[int, bytes | RecoveryFailed]:
        """`_read_one` for each, at the same time. The result is in the order of `entry_ids`."""
        found: dict[int, bytes | RecoveryFailed] = dict.fromkeys(entry_ids, b"")

        async def read(entry_id: int) -> None:
            found[entry_id] = await self._read_one(entry_id)

        async with trio.open_nursery() as nursery:
            for entry_id in entry_ids:
                nursery.start_soon(read, entry_id)
        return found

    async def _read_one(self, entry_id: int) -> bytes | RecoveryFailed:
        """One entry from its write set; b"" = absent by enough proofs; or why neither is known."""
        metadata = self._metadata
        problems: list[str] = []
        proofs = 0
        for index in write_set(entry_id, metadata.ensemble_size, metadata.write_quorum_size):
            body = await self._fencing_read(self._ensemble[index], entry_id, problems)
            if body:
                return body
            proofs += body is not None
            if proofs >= absent_after(metadata.write_quorum_size, metadata.ack_quorum_size):
                return b""
        return self._failed(entry_id, "; ".join(problems))

    async def _learn_length(self, entry_id: int) -> None:
        """The length is in the head of the last entry."""
        metadata = self._metadata
        ensemble = metadata.ensemble_of(entry_id)
        problems: list[str] = []
        for index in write_set(entry_id, len(ensemble), metadata.write_quorum_size):
            body = await self._fencing_read(ensemble[index], entry_id, problems)
            if body:
                self._length_at = (entry_id, entry_metadata(body)[3])
                return
        raise self._failed(entry_id, "; ".join(problems) or "the last confirmed entry is missing")

    async def _add_again(self, first: int, bodies: list[bytes]) -> None:
        """Step 4: every entry to its whole write set."""
        metadata = self._metadata
        sizes = (metadata.ensemble_size, metadata.write_quorum_size)
        copies = _Copies(first, [set(write_set(first + at, *sizes)) for at in range(len(bodies))])
        size = self._digest.head_size_bytes
        parts = [(body[:size], body[size:]) for body in bodies]
        while True:
            failed = await self._send_missing(copies, parts)
            failed -= self._without
            if not failed:
                break
            try:
                ensemble = self._cluster.replace(
                    self._writing,
                    failed | self._without,
                    metadata.write_quorum_size,
                    self._left | set(self._ensemble),
                    groups_of(metadata.custom_metadata),
                )
            except NotEnoughBookies:
                self._without |= failed
                break
            for index in failed | self._without:
                self._left.add(self._writing[index])
                copies.another_bookie(index, sizes)
            self._without = set()
            self._writing = ensemble
            self.metadata = self.metadata.with_ensemble(first, ensemble)
        for at, lacking in enumerate(copies.lacking):
            found = metadata.write_quorum_size - len(lacking)
            if found < metadata.ack_quorum_size:
                raise self._failed(first + at, f"it could be written again {found} times only")

    async def _send_missing(self, copies: _Copies, parts: list[tuple[bytes, bytes]]) -> set[int]:
        """Send every entry to the places that lack it. Returns those that did not take it all.
        `parts`: head and payload of each, shared by all bookies."""
        replies = _Replies(copies)
        failed: set[int] = set()
        used: list[BookieApi] = []
        for index, bookie_id in enumerate(self._writing):
            entries = [at for at, lacking in enumerate(copies.lacking) if index in lacking]
            bookie = self._bookies.get(bookie_id)
            if entries and index not in self._without:
                failed.add(index)
                if bookie is not None:
                    sink = replies.sink(index, len(entries))
                    for at in entries:
                        entry_id = copies.first + at
                        bookie.add_entry(
                            self._ledger_id,
                            entry_id,
                            parts[at],
                            self._master_key,
                            _ADD_FLAGS,
                            sink,
                        )
                    used.append(bookie)
        for bookie in used:
            bookie.kick()
        if used:
            with trio.move_on_after(self._timeout_s):
                await replies.all_here.wait()
        replies.is_over = True
        return {index for index in failed if any(index in each for each in copies.lacking)}

    def _failed(self, entry_id: int, detail: str) -> RecoveryFailed:
        return RecoveryFailed(
            f"ledger {self._ledger_id}: whether entry {entry_id} exists cannot be decided: {detail}"
        )


@final
class _Copies:
    """The places that lack entries of a run that is written again, and which entries they lack."""

    def __init__(self, first: int, lacking: list[set[int]]) -> None:
        self.first = first
        self.lacking = lacking

    def another_bookie(self, index: int, sizes: tuple[int, int]) -> None:
        """A bookie that has nothing took this place."""
        for at, lacking in enumerate(self.lacking):
            if index in write_set(self.first + at, *sizes):
                lacking.add(index)


@final
class _Replies:
    """Waits for the answers to one round of adds."""

    def __init__(self, copies: _Copies) -> None:
        self.copies = copies
        self.waiting = 0
        self.is_over = False
        """Later answers count for nothing."""
        self.all_here = trio.Event()

    def sink(self, index: int, count: int) -> _PlaceSink:
        """For `count` adds to the bookie at a place."""
        self.waiting += count
        return _PlaceSink(self, index)


@final
class _PlaceSink:
    """Counts copies at one place (AddSink)."""

    def __init__(self, replies: _Replies, index: int) -> None:
        self._replies = replies
        self._index = index

    def on_add_replies(self, status: int, ledger_id: int, first_entry_id: int, count: int) -> None:
        replies = self._replies
        replies.waiting -= count
        if status == Status.OK and not replies.is_over:
            start = first_entry_id - replies.copies.first
            for at in range(start, start + count):
                replies.copies.lacking[at].discard(self._index)

    def on_replies_end(self) -> None:
        if self._replies.waiting <= 0:
            self._replies.all_here.set()
