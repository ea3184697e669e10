"""Election: at most one process is the auditor, as BookKeeper's and Pulsar's drivers decide it.

With BookKeeper's driver (`zk+hierarchical:`) each candidate has a vote, an ephemeral node with a
number, and the lowest number is the auditor. With Pulsar's (`metadata-store:`) the auditor is the
process that made the node LEADER_PATH. All processes of a cluster should have the same driver. Two
auditors at once do no harm: a ledger is marked twice.

The auditor ends when its node is gone or its session is in doubt.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol, final

import structlog
import trio

from autorecovery import records
from metadata.store import MetadataUnavailable, NodeNotFound, SessionState, VersionConflict

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from metadata.store import MetadataStore

log = structlog.get_logger()

RETRY_S: Final = 1.0
LOOK_AGAIN_S: Final = 30.0
"""Besides when something changes."""


class Ballot(Protocol):
    """One of the two ways to elect."""

    @property
    def watched(self) -> str:
        """A change there, or below, may change the auditor."""

    async def stand(self) -> bool:
        """Be a candidate, and say whether this process is the auditor now.

        Raises: MetadataUnavailable.
        """

    async def withdraw(self) -> None:
        """Be no candidate any more."""

    def on_session_lost(self) -> None:
        """A node of the former session may be seen for a while, and is not ours."""


@final
class Votes:
    """BookKeeper's way."""

    watched = records.VOTES_ROOT

    def __init__(self, store: MetadataStore, candidate: str) -> None:
        self._store = store
        self._content = records.encode_vote(candidate)
        self._vote = ""

    async def stand(self) -> bool:
        """See Ballot."""
        store = self._store
        if not await self._has_vote():
            numbers = records.vote_numbers(await store.children(records.VOTES_ROOT))
            self._vote = records.vote_path(records.next_vote_number(numbers))
            try:
                # If the answer is lost, the vote may be there all the same: it is looked for.
                await store.put_ephemeral(self._vote, self._content)
            except VersionConflict:
                self._vote = ""
        numbers = records.vote_numbers(await store.children(records.VOTES_ROOT))
        if not numbers or records.vote_path(numbers[0]) != self._vote:
            return False
        found = await store.get(records.VOTES_ROOT)
        if found is None or found[0] != self._content:
            # For people: `bookkeeper shell whoisauditor` reads the vote itself.
            await store.put(records.VOTES_ROOT, self._content, None)
        return True

    async def _has_vote(self) -> bool:
        found = await self._store.get(self._vote) if self._vote else None
        return found is not None and found[0] == self._content

    def on_session_lost(self) -> None:
        """See Ballot."""
        self._vote = ""

    async def withdraw(self) -> None:
        """See Ballot."""
        vote, self._vote = self._vote, ""
        await _deleted(self._store, vote)


@final
class LeaderNode:
    """Pulsar's way."""

    watched = records.LEADER_PATH

    def __init__(self, store: MetadataStore, candidate: str) -> None:
        self._store = store
        self._content = records.encode_leader(candidate)
        self._is_ours = False

    async def stand(self) -> bool:
        """See Ballot. A node with this candidate's name that is not of this session is waited for,
        as any other."""
        try:
            await self._store.put_ephemeral(records.LEADER_PATH, self._content)
        except VersionConflict:
            found = await self._store.get(records.LEADER_PATH)
            self._is_ours = self._is_ours and found is not None and found[0] == self._content
            return self._is_ours
        except MetadataUnavailable:
            # It may have had effect; if not, the node is another's.
            self._is_ours = True
            raise
        self._is_ours = True
        return True

    def on_session_lost(self) -> None:
        """See Ballot."""
        self._is_ours = False

    async def withdraw(self) -> None:
        """See Ballot."""
        is_ours, self._is_ours = self._is_ours, False
        if is_ours:
            found = await self._store.get(records.LEADER_PATH)
            if found is not None and found[0] == self._content:
                await _deleted(self._store, records.LEADER_PATH)


async def _deleted(store: MetadataStore, path: str) -> None:
    if path:
        try:
            await store.delete(path)
        except (NodeNotFound, VersionConflict):
            return


async def current_auditor(store: MetadataStore) -> str:
    """The auditor by either way; empty: there is none. Raises: MetadataUnavailable."""
    await store.sync()
    numbers = records.vote_numbers(await store.children(records.VOTES_ROOT))
    for path, parse in (
        *((records.vote_path(number), records.candidate_of_vote) for number in numbers[:1]),
        (records.LEADER_PATH, records.leader_of),
    ):
        found = await store.get(path)
        if found is not None:
            return parse(found[0])
    return ""


@final
class Election:
    """Runs the auditor while this process is elected."""

    def __init__(
        self, store: MetadataStore, ballot: Ballot, audit: Callable[[], Awaitable[None]]
    ) -> None:
        self._store = store
        self._ballot = ballot
        self._audit = audit
        self._changed = trio.Event()
        self._has_failed = False
        """The store did not answer when it was asked last."""
        self.is_auditor = False
        self.attempts = 0
        """How often this process asked to be the auditor."""

    async def run(self) -> None:
        """Until cancelled."""
        stop_node = self._store.watch(self._ballot.watched, self._on_change)
        stop_session = self._store.watch_session(self._on_session)
        try:
            while True:
                if await self._stand():
                    await self._be_auditor()
                elif self._has_failed:
                    await trio.sleep(RETRY_S)
                else:
                    await self._wait()
        finally:
            stop_node()
            stop_session()
            with trio.move_on_after(RETRY_S) as scope:
                scope.shield = True
                await self._withdraw()

    async def _be_auditor(self) -> None:
        log.info("auditor elected: this process")
        self.is_auditor = True
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._audit)
                while await self._stand():
                    await self._wait()
                nursery.cancel_scope.cancel()
        finally:
            self.is_auditor = False
        log.info("not the auditor any more")

    async def _stand(self) -> bool:
        self._has_failed = False
        if self._store.session_state is not SessionState.LIVE:
            return False
        self.attempts += 1
        try:
            return await self._ballot.stand()
        except MetadataUnavailable as error:  # an auditor ends at once, its session may be lost
            log.warning("auditor election not possible now", reason=str(error))
            self._has_failed = True
            return False

    async def _withdraw(self) -> None:
        try:
            await self._ballot.withdraw()
        except MetadataUnavailable:
            return  # the node goes with the session

    async def _wait(self) -> None:
        with trio.move_on_after(LOOK_AGAIN_S):
            await self._changed.wait()
        self._changed = trio.Event()

    def _on_change(self, path: str) -> None:
        del path
        self._changed.set()

    def _on_session(self, state: SessionState) -> None:
        if state is SessionState.LOST:
            self._ballot.on_session_lost()
        self._changed.set()
