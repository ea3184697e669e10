"""What a writer of several bookies needs of the cluster: bookies by id, and others for failed ones.

`BookiePool` is the cluster of a broker. `FixedCluster` is a set of bookies that never changes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, final

from ledgers.placement import PlacementRules, RackMap, choose_ensemble, choose_replacements

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from bookie.api import BookieApi
    from ledgers.placement import BookieGroups


class Cluster(Protocol):
    """See the module docstring."""

    @property
    def bookies(self) -> Mapping[str, BookieApi]:
        """All bookies that can be spoken to, also those that take no new entries."""

    @property
    def rules(self) -> PlacementRules:
        """How bookies are chosen."""

    def choose(
        self, ensemble_size: int, write_quorum_size: int, groups: BookieGroups | None = None
    ) -> tuple[str, ...]:
        """Bookies for a new ledger, of its groups if it has any: so many, or fewer if the rules
        allow that. Raises: NotEnoughBookies."""

    def replace(
        self,
        ensemble: Sequence[str],
        failed: AbstractSet[int],
        write_quorum_size: int,
        exclude: AbstractSet[str],
        groups: BookieGroups | None = None,
    ) -> tuple[str, ...]:
        """The ensemble with other bookies at the failed places, none of `exclude`.

        Raises: NotEnoughBookies.
        """

    def on_bookie_failed(self, bookie_id: str, reason: str) -> None:
        """The bookie did not do what was asked of it; it may be avoided for a time."""

    def spawn(self, work: Callable[..., Awaitable[object]], *arguments: object) -> None:
        """Run a task that ends with the cluster's owner."""


@final
class FixedCluster:
    """Bookies without a registration: tests, tools, and the broker's own."""

    def __init__(
        self,
        bookies: Mapping[str, BookieApi],
        spawn: Callable[..., object],
        rules: PlacementRules | None = None,
        racks: RackMap | None = None,
    ) -> None:
        self.bookies = bookies
        """See Cluster."""
        self._spawn = spawn
        self.rules = rules if rules is not None else PlacementRules()
        self._racks = racks if racks is not None else RackMap()
        self._turn = 0

    def choose(
        self, ensemble_size: int, write_quorum_size: int, groups: BookieGroups | None = None
    ) -> tuple[str, ...]:
        """See Cluster. Ledgers begin with different bookies."""
        ids = sorted(self.bookies)
        self._turn += 1
        start = self._turn % len(ids) if ids else 0
        ids = ids[start:] + ids[:start]
        rules = self.rules.within(groups)
        return choose_ensemble(ensemble_size, write_quorum_size, ids, self._racks, rules)

    def replace(
        self,
        ensemble: Sequence[str],
        failed: AbstractSet[int],
        write_quorum_size: int,
        exclude: AbstractSet[str],
        groups: BookieGroups | None = None,
    ) -> tuple[str, ...]:
        """See Cluster."""
        return choose_replacements(
            ensemble,
            failed,
            write_quorum_size,
            sorted(self.bookies),
            self._racks,
            self.rules.within(groups),
            exclude=exclude,
        )

    def on_bookie_failed(self, bookie_id: str, reason: str) -> None:
        """See Cluster. No one is avoided here."""

    def spawn(self, work: Callable[..., Awaitable[object]], *arguments: object) -> None:
        """See Cluster."""
        self._spawn(work, *arguments)
