"""Which bookies store a ledger. Pure: decisions over what was read before.

A bookie has a rack, a path such as `/region/rack`. The first part is its region. A write set, W
neighbours in the ring of the ensemble, should lie in several racks, so that the loss of one rack
does not lose an entry. If there is a choice with enough racks in every write set, it is found.
Otherwise any bookies are taken, unless the racks are enforced.

A bookie may belong to isolation groups. With such groups in the rules, only their members are used,
and those of the secondary groups where the others do not suffice. Bookies to avoid (they failed a
while ago) are used as a last resort.

Source: the rack-aware, region-aware and isolated placement policies of BookKeeper and Pulsar. The
rack map is Pulsar's JSON at `/bookies`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, final

from ledgers.errors import NotEnoughBookies

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from collections.abc import Set as AbstractSet

RACKS_PATH: Final = "/bookies"
DEFAULT_RACK: Final = "/default-region/default-rack"
GROUPS_KEY: Final = "EnsemblePlacementPolicyConfig"
"""The key in the custom metadata of ledgers: a later replacement of a bookie needs the groups,
too."""
_POLICY_CLASS: Final = (
    "org.apache.pulsar.bookie.rackawareness.IsolatedBookieEnsemblePlacementPolicy"
)
_PRIMARY: Final = "isolationBookieGroups"
_SECONDARY: Final = "secondaryIsolationBookieGroups"
_STEPS_MAX: Final = 5_000
"""The steps of the search for a choice with enough racks; reached only with absurd sizes."""


@final
@dataclass(frozen=True, slots=True)
class BookieGroups:
    """Names of isolation groups for ledgers that have their own."""

    primary: frozenset[str]
    secondary: frozenset[str] = frozenset()


def encode_groups(groups: BookieGroups) -> bytes:
    """The value of `GROUPS_KEY` in a ledger's custom metadata."""
    properties = {_PRIMARY: ",".join(sorted(groups.primary))}
    if groups.secondary:
        properties[_SECONDARY] = ",".join(sorted(groups.secondary))
    return json.dumps({"policyClass": _POLICY_CLASS, "properties": properties}).encode()


def groups_of(custom_metadata: Mapping[str, bytes]) -> BookieGroups | None:
    """The groups that a ledger was made for; None: it has none of its own."""
    data = custom_metadata.get(GROUPS_KEY)
    if data is None:
        return None
    try:
        properties: Any = json.loads(data)["properties"]
        return parse_groups(properties.get(_PRIMARY), properties.get(_SECONDARY))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None  # of another placement policy


def parse_groups(primary: object, secondary: object) -> BookieGroups | None:
    """From names with commas between them. Without a primary group there are none."""
    first, second = _names(primary), _names(secondary)
    return BookieGroups(first, second) if first else None


def _names(text: object) -> frozenset[str]:
    names = text.split(",") if isinstance(text, str) else []
    return frozenset(name.strip() for name in names if name.strip())


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementRules:
    """Keys of Pulsar's broker.conf in parentheses."""

    is_rack_aware: bool = True
    """(bookkeeperClientRackawarePolicyEnabled)"""
    is_region_aware: bool = False
    """(bookkeeperClientRegionawarePolicyEnabled)"""
    racks_min: int = 2
    """Racks of a write set (bookkeeperClientMinNumRacksPerWriteQuorum)."""
    are_racks_enforced: bool = False
    """(bookkeeperClientEnforceMinNumRacksPerWriteQuorum)"""
    is_opportunistic: bool = False
    """A new ledger may have fewer bookies than it asks for, down to the write quorum, if there are
    no more, or if the others are to be avoided (bookkeeper_opportunisticStriping)."""
    isolation_groups: frozenset[str] = frozenset()
    """(bookkeeperClientIsolationGroups); empty: all bookies."""
    secondary_isolation_groups: frozenset[str] = frozenset()
    """(bookkeeperClientSecondaryIsolationGroups)"""

    def within(self, groups: BookieGroups | None) -> PlacementRules:
        """The same rules for a ledger with groups of its own."""
        if groups is None:
            return self
        return replace(
            self, isolation_groups=groups.primary, secondary_isolation_groups=groups.secondary
        )


@final
@dataclass(frozen=True, slots=True)
class RackMap:
    """Racks and groups by bookie id."""

    racks: Mapping[str, str] = field(default_factory=dict)
    groups: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Members by name of the group."""

    def rack_of(self, bookie_id: str) -> str:
        """Its whole path."""
        return self.racks.get(bookie_id, DEFAULT_RACK)

    def region_of(self, bookie_id: str) -> str:
        """The first part of the path."""
        return self.rack_of(bookie_id).split("/", 2)[1]

    def members(self, groups: AbstractSet[str]) -> frozenset[str]:
        """Bookies of any of these groups."""
        return frozenset().union(*(self.groups.get(name, frozenset()) for name in groups))


def parse_rack_map(data: bytes) -> RackMap:
    """The record at `/bookies`.

    Raises: ValueError: it is not one.
    """
    try:
        found: Any = json.loads(data)
        groups = {str(name): frozenset(map(str, members)) for name, members in found.items()}
        racks = {
            str(bookie_id): _normal(str(info["rack"]))
            for members in found.values()
            for bookie_id, info in members.items()
            if _has_rack(info)
        }
    except (ValueError, AttributeError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"{RACKS_PATH} is no rack map: {error}") from error
    return RackMap(racks, groups)


def _has_rack(info: Mapping[str, object]) -> bool:
    """A slash says as little as nothing: the bookie is in the default rack."""
    return bool(str(info.get("rack") or "").strip().strip("/"))


def _normal(rack: str) -> str:
    return "/" + rack.strip().strip("/")


def choose_ensemble(
    ensemble_size: int,
    write_quorum_size: int,
    available: Sequence[str],
    racks: RackMap,
    rules: PlacementRules,
    *,
    exclude: AbstractSet[str] = frozenset(),
    avoid: AbstractSet[str] = frozenset(),
) -> tuple[str, ...]:
    """Bookies for a new ledger. Of equal ones those earlier in `available` are taken.

    Raises: NotEnoughBookies.
    """
    smallest = write_quorum_size if rules.is_opportunistic else ensemble_size
    chosen: tuple[str, ...] = ()
    failure: NotEnoughBookies | None = None
    for size in range(ensemble_size, smallest - 1, -1):
        slots: list[str | None] = [None] * size
        choice = _Choice(slots, write_quorum_size, available, racks, rules, exclude, avoid)
        try:
            found = choice.run()
        except NotEnoughBookies as error:
            failure = failure or error
            continue
        if avoid.isdisjoint(found):
            return found
        chosen = chosen or found
    if not chosen:
        raise failure or NotEnoughBookies("no bookie is wanted")
    return chosen


def choose_replacements(
    ensemble: Sequence[str],
    failed: AbstractSet[int],
    write_quorum_size: int,
    available: Sequence[str],
    racks: RackMap,
    rules: PlacementRules,
    *,
    exclude: AbstractSet[str] = frozenset(),
    avoid: AbstractSet[str] = frozenset(),
) -> tuple[str, ...]:
    """The ensemble with other bookies at the failed places.

    Raises: NotEnoughBookies.
    """
    slots = [None if index in failed else each for index, each in enumerate(ensemble)]
    exclude = exclude | set(ensemble)
    return _Choice(slots, write_quorum_size, available, racks, rules, exclude, avoid).run()


@final
class _Choice:
    """Fills the empty places of a ring, from the first pool of candidates that is large enough:

        1. members of the primary groups, without bookies to avoid
        2. members of the primary groups
        3. members of the primary and the secondary groups, without bookies to avoid
        4. members of the primary and the secondary groups

    So isolation comes before health: a secondary group is for lack of members of the primary ones,
    and a bookie that failed a while ago is still a member (Pulsar's policy counts so). Without
    isolation groups every bookie counts as primary, and 3 and 4 add nothing.

    Racks come last. A pool without a choice that has enough racks gives bookies all the same, if
    racks are not enforced. Only if they are is the next pool looked at.

    Within a pool healthy bookies come before those to avoid, then primary before secondary, then as
    in `available`. So of those to avoid no more are taken than are needed, unless racks ask for it.
    """

    def __init__(
        self,
        slots: list[str | None],
        write_quorum_size: int,
        available: Sequence[str],
        racks: RackMap,
        rules: PlacementRules,
        exclude: AbstractSet[str],
        avoid: AbstractSet[str],
    ) -> None:
        self._slots = slots
        self._write_quorum_size = write_quorum_size
        self._racks = racks
        self._rules = rules
        self._open = [index for index, each in enumerate(slots) if each is None]
        usable = [each for each in dict.fromkeys(available) if each not in exclude]
        secondary: frozenset[str] = frozenset()
        if rules.isolation_groups:
            primary = racks.members(rules.isolation_groups)
            secondary = racks.members(rules.secondary_isolation_groups) - primary
            usable = [each for each in usable if each in primary or each in secondary]
        usable.sort(key=lambda each: (each in avoid, each in secondary))
        first = [each for each in usable if each not in secondary]
        self._pools = (
            [each for each in first if each not in avoid],
            first,
            [each for each in usable if each not in avoid],
            usable,
        )
        """See the docstring of the class."""
        self._candidates: Sequence[str] = usable
        self._steps = 0

    def run(self) -> tuple[str, ...]:
        needed = len(self._open)
        rules = self._rules
        are_enforced = rules.is_rack_aware and rules.are_racks_enforced
        for pool in self._pools:
            if len(pool) < needed:
                continue
            self._candidates = pool
            if self._fill_spread():
                return self._chosen()
            if not are_enforced:
                for index, bookie_id in zip(self._open, pool, strict=False):
                    self._slots[index] = bookie_id
                return self._chosen()
        usable = len(self._pools[-1])
        if usable < needed:
            raise NotEnoughBookies(f"{needed} bookies are needed, {usable} can be used")
        raise NotEnoughBookies(
            f"no {len(self._slots)} bookies have {rules.racks_min} racks in every write set"
        )

    def _chosen(self) -> tuple[str, ...]:
        return tuple(each for each in self._slots if each is not None)

    def _fill_spread(self) -> bool:
        """With enough racks and regions, or at least with enough racks."""
        labels: list[Callable[[str], str]] = []
        if self._rules.is_rack_aware:
            labels.append(self._racks.rack_of)
        if self._rules.is_region_aware:
            labels.append(self._racks.region_of)
        while labels:
            self._steps = 0
            if self._fill(0, labels):
                return True
            labels.pop()
        return False

    def _fill(self, number: int, labels: Sequence[Callable[[str], str]]) -> bool:
        """Depth first. Of the candidates with equal labels only the most preferred one is tried,
        because the others differ in nothing that is checked."""
        if number == len(self._open):
            return all(self._is_spread(first, labels) for first in range(len(self._slots)))
        index = self._open[number]
        tried: set[tuple[str, ...]] = set()
        used = set(self._slots)
        for bookie_id in self._candidates:
            kind = tuple(label(bookie_id) for label in labels)
            if bookie_id in used or kind in tried:
                continue
            self._steps += 1
            if self._steps > _STEPS_MAX:
                return False
            tried.add(kind)
            self._slots[index] = bookie_id
            if self._is_fine_at(index, labels) and self._fill(number + 1, labels):
                return True
            self._slots[index] = None
        return False

    def _is_fine_at(self, index: int, labels: Sequence[Callable[[str], str]]) -> bool:
        size = len(self._slots)
        return all(
            self._is_spread((index - back) % size, labels)
            for back in range(self._write_quorum_size)
        )

    def _is_spread(self, first: int, labels: Sequence[Callable[[str], str]]) -> bool:
        """Whether the write set from `first` on has, or may still get, enough racks."""
        size = len(self._slots)
        wanted = min(self._rules.racks_min, self._write_quorum_size)
        members = [self._slots[(first + step) % size] for step in range(self._write_quorum_size)]
        missing = members.count(None)
        return all(
            len({label(each) for each in members if each is not None}) + missing >= wanted
            for label in labels
        )
