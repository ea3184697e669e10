"""Copies of a ledger's entries on bookies: checks them, and replaces lost ones.

A bookie is lost when it is not registered. A registered bookie is asked for the first and the last
entry of each copy, and for a share of those in between. An entry counts as absent only if the
bookie itself says that it lacks it.

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

if TYPE_CHECKING:
    import random
    from collections.abc import Mapping
    from collections.abc import Set as AbstractSet

    from bookie.api import BookieApi
    from protocol.bookkeeper.ledger_metadata import LedgerMetadata

log = structlog.get_logger()

BATCH_BYTES_MAX: Final = 2 * 1024 * 1024
SAMPLE_MAX: Final = 100
"""Entries of one copy that are looked at besides its first and last."""
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
class CopyReader:
    """Looks at the copies of one ledger."""

    def __init__(
        self,
        bookies: Mapping[str, BookieApi],
        ledger_id: int,
        metadata: LedgerMetadata,
        timeout_s: float,
    ) -> None:
        self._bookies = bookies
        self._ledger_id = ledger_id
        self._metadata = metadata
        self._digest = Digest(metadata.digest_type, metadata.password)
        self._timeout_s = timeout_s

    async def states(
        self, registered: AbstractSet[str], percent: float, chance: random.Random
    ) -> Copies:
        """What became of every copy. `percent`: of the entries between the first and the last of a
        copy that are looked at, too (auditorLedgerVerificationPercentage)."""
        copies: Copies = {}
        for fragment in fragments_of(self._metadata):
            for place, bookie_id in enumerate(fragment.ensemble):
                key = fragment.first, place
                if bookie_id not in registered:
                    copies[key] = CopyState.LOST
                elif fragment.last is None:
                    copies[key] = CopyState.PRESENT  # its writer takes care
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
            _body, state, detail = await self.read(fragment.ensemble[place], entry_id)
            if state is not CopyState.PRESENT:
                log.info(
                    "copy not there",
                    ledger_id=self._ledger_id,
                    entry_id=entry_id,
                    bookie=fragment.ensemble[place],
                    detail=detail,
                )
                return state
        return CopyState.PRESENT

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
        for first, last in fragment.runs_at(place):
            entry_id = first
            while entry_id <= last:
                end = min(last, entry_id + self._batch_entries - 1)
                bodies = await self._bodies(fragment, place, entry_id, end, target)
                self.entries_read += len(bodies)
                self.bytes_read += sum(map(len, bodies))
                await self._add(target, entry_id, bodies)
                entry_id += len(bodies)
                self.entries += len(bodies)
                self.bytes += sum(map(len, bodies))

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
