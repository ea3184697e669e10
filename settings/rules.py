"""Facts about the keys of one process: older names, risks, and what nearly is one of them. Pure.

The keys of real Pulsar and BookKeeper are listed in `upstream_keys.conf` with their values in stock
files of Pulsar 2.8 to 4.2. A process knows them all, and honours those of its configuration. Keys
on which security or durability depends are marked: a key that resembles one of them is taken for a
misspelling of it, and never ignored.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, Protocol, TypeVar, final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Set

RESEMBLANCE_MIN: Final = 0.8
"""Ratio of `difflib.SequenceMatcher`, case ignored, above which two names count as similar."""


class Keys(Protocol):
    """An instance of any dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Any]]


Config = TypeVar("Config", bound=Keys)


@final
@dataclass(frozen=True, slots=True)
class Alias:
    """An older name of a key."""

    key: str
    wins: bool
    """Whether the older name overrides the new one if both are given."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRules(Generic[Config]):
    """All about the keys of one configuration but their types, which its fields have."""

    config_type: type[Config]
    """A frozen dataclass with a default for every field. A ValueError of its constructor is an
    error of the user's."""
    aliases: Mapping[str, Alias]
    """An older name with a blank or a negative value counts as not given."""
    refused: Mapping[str, str]
    """Keys that protect data, with the reason: a value that cannot be honoured prevents the start.
    A field of that name keeps its default: it is for tests, or for parts that set it themselves."""
    excused: Mapping[str, Callable[[Config], str]] = field(default_factory=dict)
    """Some of these: what is said of the value where the other keys make it harmless, so that it is
    a notice; an empty text where they do not."""
    not_applicable: Mapping[str, str]
    """Keys without effect, with the reason."""
    protecting: Set[str]
    """Keys with an effect that decide about access to data, or whether and for how long data is
    kept."""
    check_together: Callable[[Config], str]
    """The sentence about a violated rule between keys, or an empty one."""

    def is_critical(self, key: str) -> bool:
        """Whether a misspelling of the key may expose or lose data.

        Only keys that are honoured or refused count: a misspelling of a key without effect changes
        nothing.
        """
        return key in self.protecting or key in self.refused


def nearest(key: str, names: Iterable[str]) -> str | None:
    """The name that a misspelt key most resembles, if any is similar enough."""
    by_folded = {name.lower(): name for name in names}
    close = difflib.get_close_matches(key.lower(), by_folded, n=1, cutoff=RESEMBLANCE_MIN)
    return by_folded[close[0]] if close else None


def parse_stock_values(text: str) -> dict[str, frozenset[str]]:
    """Upstream's keys and their stock values, from the text of `upstream_keys.conf`."""
    known: dict[str, frozenset[str]] = {}
    for line in text.splitlines():
        if line and not line.startswith("#"):
            key, _, stock = line.partition("=")
            known[key] = frozenset(stock.split("|"))
    return known
