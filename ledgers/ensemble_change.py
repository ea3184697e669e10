"""The change of a ledger's ensemble while the ledger is written: other bookies for failed ones.

A bookie that fails loses its place in the ensemble to another one. The metadata gets a segment that
starts after the last confirmed entry, by compare-and-set. Then the new bookies take their places in
the writer, which sends them all unconfirmed entries. A bookie that lost its place gets none again
in this ledger.

If no other bookie can be had, or if the change is to be delayed, the failed place stays empty while
every write set still has A others. Otherwise the writer fails with NOT_ENOUGH_BOOKIES.

Invariant: while `is_running` the writer confirms nothing, because an entry confirmed then would be
looked for on the wrong bookies. After a change that failed it never does: the change may have had
effect.

Source: LedgerHandle and EnsembleUtils of BookKeeper.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, final

import structlog

from bookie.api import Status
from ledgers.errors import LedgerDamaged, LedgerFenced, LedgerNotFound, NotEnoughBookies
from ledgers.placement import groups_of
from metadata.store import MetadataUnavailable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ledgers.cluster import Cluster
    from ledgers.ensemble_acks import EnsembleAcks
    from ledgers.open_record import OpenRecord
    from protocol.bookkeeper.ledger_metadata import LedgerMetadata

_log = structlog.get_logger()


class EnsemblePlace(Protocol):
    """A bookie at its place in the ensemble."""

    index: int
    bookie_id: str
    failure: int | None
    """The status because of which it is not written to any more."""
    is_done_without: bool
    """The ledger goes on without it."""


class ChangingWriter(Protocol):
    """The writer, as the change of its ensemble sees it."""

    ledger_id: int
    metadata: LedgerMetadata
    last_add_confirmed: int

    @property
    def is_stopped(self) -> bool:
        """Nothing can be added any more."""

    @property
    def has_failed(self) -> bool:
        """It stops when it settles."""

    @property
    def places(self) -> Sequence[EnsemblePlace]:
        """The places of the ensemble, in order."""

    def install(self, replaced: frozenset[int], ensemble: tuple[str, ...]) -> None:
        """The new bookies take their places and get the unconfirmed entries."""

    def fail(self, status: int) -> None:
        """Nothing more can be confirmed. The next `settle` acts on it."""

    def settle(self) -> None:
        """Act on what has changed."""


@final
class EnsembleChange:
    """See the module docstring. One for a writer."""

    def __init__(
        self,
        writer: ChangingWriter,
        cluster: Cluster,
        record: OpenRecord,
        acks: EnsembleAcks,
        *,
        is_delaying: bool,
    ) -> None:
        """`is_delaying`: replace a bookie only when the ack quorum cannot be had without it."""
        self.is_running = False
        self._writer = writer
        self._cluster = cluster
        self._record = record
        self._acks = acks
        self._is_delaying = is_delaying
        self._groups = groups_of(writer.metadata.custom_metadata)
        self._left: set[str] = set()
        """Bookies that lost their place."""

    def begin(self) -> None:
        """A place has failed: replace its bookie, or do without it."""
        failed = self._failed_places()
        if self._is_delaying and self._acks.may_go_on(failed):
            self._do_without(failed, "the change of the ensemble is delayed")
            return
        try:
            self._replaced(failed)
        except NotEnoughBookies as error:
            self._without_replacement(failed, str(error))
            return
        self.is_running = True
        self._cluster.spawn(self._run)

    def can_replace(self, index: int) -> bool:
        """Whether the ledger could go on if this place failed now, too, and with another bookie."""
        try:
            self._replaced(self._failed_places() | {index})
        except NotEnoughBookies:
            return False
        return True

    def _failed_places(self) -> frozenset[int]:
        return frozenset(place.index for place in self._writer.places if place.failure is not None)

    def _replaced(self, failed: frozenset[int]) -> tuple[frozenset[int], tuple[str, ...]]:
        """(places that get another bookie, the new ensemble): all failed places, or one of them if
        that is enough to go on.

        Raises: NotEnoughBookies.
        """
        ensemble = [place.bookie_id for place in self._writer.places]
        quorum = self._writer.metadata.write_quorum_size
        replace, left, groups = self._cluster.replace, frozenset(self._left), self._groups
        try:
            return failed, replace(ensemble, failed, quorum, left, groups)
        except NotEnoughBookies:
            for index in failed:
                if len(failed) > 1 and self._acks.may_go_on(failed - {index}):
                    return frozenset({index}), replace(ensemble, {index}, quorum, left, groups)
            raise

    def _without_replacement(self, failed: frozenset[int], reason: str) -> None:
        if self._acks.may_go_on(failed):
            self._do_without(failed, reason)
        else:
            ledger_id = self._writer.ledger_id
            _log.warning("ledger_lacks_bookies", ledger_id=ledger_id, reason=reason)
            self._writer.fail(int(Status.NOT_ENOUGH_BOOKIES))

    def _do_without(self, failed: frozenset[int], reason: str) -> None:
        places = self._writer.places
        for index in failed:
            place = places[index]
            if not place.is_done_without:
                place.is_done_without = True
                _log.warning(
                    "ledger_goes_on_without_a_bookie",
                    ledger_id=self._writer.ledger_id,
                    bookie=place.bookie_id,
                    status=Status(place.failure or 0).name,
                    reason=reason,
                )

    async def _run(self) -> None:
        """The task of a change. Bookies that fail meanwhile are replaced as well."""
        writer = self._writer
        try:
            while not writer.is_stopped and not writer.has_failed:
                failed = self._failed_places()
                if all(writer.places[index].is_done_without for index in failed):
                    break
                try:
                    replaced, ensemble = self._replaced(failed)
                except NotEnoughBookies as error:
                    self._without_replacement(failed, str(error))
                    continue
                await self._record.store_ensemble(writer.last_add_confirmed + 1, ensemble)
                if not writer.is_stopped:
                    self._left |= {writer.places[index].bookie_id for index in replaced}
                    writer.install(replaced, ensemble)
        except LedgerFenced as error:
            if not writer.is_stopped:
                _log.error("ledger_lost", ledger_id=writer.ledger_id, reason=str(error))
            writer.fail(int(Status.FENCED))
        except LedgerNotFound:
            writer.fail(int(Status.NO_LEDGER))
        except (LedgerDamaged, MetadataUnavailable) as error:
            _log.error("ensemble_not_changed", ledger_id=writer.ledger_id, reason=str(error))
            writer.fail(int(Status.IO_ERROR))
        except Exception as error:
            _log.error("ensemble_not_changed", ledger_id=writer.ledger_id, exc_info=error)
            writer.fail(int(Status.IO_ERROR))
        finally:
            self.is_running = False
        writer.settle()
