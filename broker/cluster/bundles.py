"""Bundles: ranges of topic hashes, the unit in which brokers own topics. Pure.

A namespace is cut at its boundaries into bundles. A topic belongs to the bundle with the CRC-32 of
its full name (UTF-8). A bundle contains its lower boundary and not its upper one, except that the
last one contains 0xffffffff. Names, texts of refusals and the places of a split are those of Pulsar
4.0.8 (NamespaceBundles, NamespaceBundleSplitAlgorithm), observed by running it;
docs/formats/ownership.md.
"""

from __future__ import annotations

import re
from binascii import crc32
from bisect import bisect_right
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple, final

from broker.cluster.heartbeat import heartbeat_broker
from protocol.topic_name import is_entity_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from protocol.topic_name import TopicName

HASH_MAX: Final = 0xFFFF_FFFF
_BOUNDARY: Final = re.compile("0x[0-9a-fA-F]{8}")
_ASKED_FOR: Final = re.compile("(0x[0-9a-fA-F]{1,8})_(0x[0-9a-fA-F]{1,8})")
"""The range of a request."""


def topic_hash(topic: TopicName) -> int:
    """The place of a topic among the bundles of its namespace: 0 to HASH_MAX."""
    return _hash_of(topic.full)


def _hash_of(full: str) -> int:
    return crc32(full.encode())


class Bundle(NamedTuple):
    """One range of hashes of a namespace."""

    namespace_name: str
    """`tenant/namespace`; `pulsar/<cluster>/<broker>` of a heartbeat namespace of Pulsar 1."""
    lower: int
    upper: int

    @property
    def range_text(self) -> str:
        """`0x00000000_0x40000000`."""
        return f"0x{self.lower:08x}_0x{self.upper:08x}"

    @property
    def name(self) -> str:
        """`tenant/namespace/0x00000000_0x40000000`: its name in reports and in metadata paths."""
        return f"{self.namespace_name}/{self.range_text}"

    def contains(self, topic: TopicName) -> bool:
        """Whether the topic belongs to this range."""
        return topic.namespace_name == self.namespace_name and self.covers(topic_hash(topic))

    def covers(self, place: int) -> bool:
        """Whether topics of the namespace with this hash belong to this range."""
        return self.lower <= place < self.upper or place == self.upper == HASH_MAX

    def overlaps(self, other: Bundle) -> bool:
        """Whether some topic could belong to both."""
        return (
            self.namespace_name == other.namespace_name
            and self.lower < other.upper
            and other.lower < self.upper
        )


def names_within(bundle: Bundle, names: Iterable[str]) -> Iterator[str | None]:
    """The names that belong to the bundle, out of full names of topics of its namespace; None for
    each of the others."""
    return (full if bundle.covers(_hash_of(full)) else None for full in names)


def parse_bundle(name: str) -> Bundle | None:
    """The bundle of this name; None: it is no name of a bundle."""
    namespace_name, _, range_text = name.rpartition("/")
    bounds = parse_range(range_text)
    if bounds is None:
        return None
    names = namespace_name.split("/")
    if not (
        (len(names) == 2 and all(map(is_entity_name, names)))
        or (heartbeat_broker(namespace_name) and namespace_name.isprintable())
    ):
        return None
    return Bundle(namespace_name, *bounds)


def parse_range(text: str) -> tuple[int, int] | None:
    """The two boundaries of `0x00000000_0x40000000`; None: the text is no range."""
    first, _, second = text.partition("_")
    lower, upper = _parse_boundary(first), _parse_boundary(second)
    if lower is None or upper is None or lower >= upper:
        return None
    return lower, upper


def _parse_boundary(text: str) -> int | None:
    return int(text, 16) if _BOUNDARY.fullmatch(text) else None


@final
class BundlesOfBroker:
    """The bundles of one broker, to find those of very many topics.

    While a bundle is split its parts are there with it; any of them is found then.
    """

    __slots__ = ("_by_namespace",)

    def __init__(self, bundles: Iterable[Bundle]) -> None:
        self._by_namespace: dict[str, list[Bundle]] = {}
        """Sorted by their lower boundaries."""
        for bundle in sorted(bundles):
            self._by_namespace.setdefault(bundle.namespace_name, []).append(bundle)

    def of(self, topic: TopicName) -> Bundle | None:
        """The bundle of a topic; None: it is of none of these."""
        bundles = self._by_namespace.get(topic.namespace_name)
        if bundles is None:
            return None
        place = topic_hash(topic)
        index = bisect_right(bundles, place, key=_lower_of)
        while index:
            index -= 1
            if bundles[index].covers(place):
                return bundles[index]
        return None


def overlapping(bundles: Iterable[Bundle]) -> set[Bundle]:
    """The bundles that share hashes with another of them."""
    found: set[Bundle] = set()
    widest: Bundle | None = None
    for bundle in sorted(set(bundles)):
        if widest is not None and bundle.overlaps(widest):
            found.update((bundle, widest))
        if (
            widest is None
            or bundle.namespace_name != widest.namespace_name
            or bundle.upper > widest.upper
        ):
            widest = bundle
    return found


def _lower_of(bundle: Bundle) -> int:
    return bundle.lower


class NotABundle(Exception):
    """A range is not one of the namespace's bundles. The text is Pulsar's."""


@final
class Boundaries:
    """The bundles of one namespace. Immutable."""

    __slots__ = ("namespace_name", "points")

    def __init__(self, namespace_name: str, points: tuple[int, ...]) -> None:
        if (
            len(points) < 2
            or points[0] != 0
            or points[-1] != HASH_MAX
            or any(lower >= upper for lower, upper in pairwise(points))
        ):
            raise ValueError(f"{namespace_name}: boundaries should rise from 0 to 0xffffffff")
        self.namespace_name = namespace_name
        self.points = points

    @classmethod
    def whole(cls, namespace_name: str) -> Boundaries:
        """One bundle."""
        return cls(namespace_name, (0, HASH_MAX))

    @classmethod
    def parse(cls, namespace_name: str, texts: Iterable[object]) -> Boundaries:
        """Boundaries as `0x00000000` and so on. Raises: ValueError."""
        points = [_parse_boundary(text) if isinstance(text, str) else None for text in texts]
        if None in points:
            raise ValueError(f"{namespace_name}: a boundary should be like 0x40000000")
        return cls(namespace_name, tuple(point for point in points if point is not None))

    @property
    def texts(self) -> list[str]:
        """As stored."""
        return [f"0x{point:08x}" for point in self.points]

    @property
    def bundles(self) -> list[Bundle]:
        """All bundles, in order."""
        return [Bundle(self.namespace_name, *pair) for pair in pairwise(self.points)]

    def bundle_at(self, place: int) -> Bundle:
        """The bundle with this hash."""
        index = min(bisect_right(self.points, place), len(self.points) - 1)
        return Bundle(self.namespace_name, self.points[index - 1], self.points[index])

    def bundle_of(self, topic: TopicName) -> Bundle:
        """The bundle with this topic."""
        return self.bundle_at(topic_hash(topic))

    def bundle_of_name(self, full: str) -> Bundle:
        """The same for the full name of a topic of the namespace."""
        return self.bundle_at(_hash_of(full))

    def __contains__(self, bundle: Bundle) -> bool:
        return bundle.namespace_name == self.namespace_name and bundle == self.bundle_at(
            bundle.lower
        )

    def find(self, range_text: str) -> Bundle:
        """The bundle with this range. Leading zeros may be left out. Raises: NotABundle."""
        texts = _ASKED_FOR.fullmatch(range_text)
        if texts is None:
            raise NotABundle(f"Invalid bundle range: {range_text}")
        asked = Bundle(self.namespace_name, int(texts[1], 16), int(texts[2], 16))
        if asked.lower > asked.upper:
            raise NotABundle(f"Invalid range: [{asked.lower}..{asked.upper})")
        if asked.lower == asked.upper:
            raise NotABundle("Cannot create bundle object for an empty key range")
        there = self.bundle_at(asked.lower)
        if there.lower != asked.lower:
            raise NotABundle(f"Cannot find bundle {asked.name} in the bundles list")
        if there.upper != asked.upper:
            raise NotABundle(
                f"Invalid upper boundary for bundle {asked.name}. "
                f"Expected upper boundary of {there.name}"
            )
        return there

    def split(self, bundle: Bundle, places: Iterable[int]) -> Boundaries:
        """These boundaries with more of them inside a bundle.

        Raises: ValueError: a place is not inside the bundle, or there is none.
        """
        added = set(places)
        if not added or not all(bundle.lower < place < bundle.upper for place in added):
            raise ValueError(f"{bundle.name} cannot be split at {sorted(added)}")
        return Boundaries(self.namespace_name, tuple(sorted({*self.points, *added})))


def middle_of_range(bundle: Bundle) -> int | None:
    """Where `range_equally_divide` splits: the middle of the range. None: it is too small."""
    middle = bundle.lower + (bundle.upper - bundle.lower) // 2
    return middle if bundle.lower < middle < bundle.upper else None


def middle_of_topics(bundle: Bundle, hashes: Iterable[int]) -> int | None:
    """Where `topic_count_equally_divide` splits: half-way between the two topics in the middle.

    None: fewer than two topics, or their hashes leave no place between them.
    """
    ordered = sorted(hashes)
    if len(ordered) < 2:
        return None
    before, after = ordered[len(ordered) // 2 - 1], ordered[len(ordered) // 2]
    middle = before + (after - before) // 2
    return middle if bundle.lower < middle < bundle.upper else None
