"""The names of the topics of a namespace, for clients that subscribe by pattern and the admin API.

A namespace may have 100,000 topics, and a client may ask for them hundreds of times at once. Lists
are therefore made in slices, and callers that wait together share one. A topic that is created or
deleted while a list is made may be in it or not.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, final

from broker.ground.slices import SharedReadings, portions, sorted_in_slices, taken_in_slices
from protocol.topic_name import NON_PERSISTENT, PERSISTENT, has_system_name, is_system_topic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from broker.tenancy.namespaces.namespaces import Namespaces
    from broker.topics.topic.topic import Topic

    Encode = Callable[[Iterable[str]], bytes]
    _Encoding = tuple[str, tuple[str, ...], Encode]


@final
class TopicLists:
    """The lists of one broker."""

    def __init__(self, namespaces: Namespaces, topics: Mapping[str, Topic]) -> None:
        """`topics`: the loaded ones by full name."""
        self._namespaces = namespaces
        self._topics = topics
        self._existing: SharedReadings[tuple[str, str, bool], Sequence[str]] = SharedReadings()
        self._encoded: SharedReadings[_Encoding, Sequence[bytes]] = SharedReadings()

    async def loaded(self, namespace_name: str, domain: str) -> list[str]:
        """Full names of the loaded topics of a namespace, in order."""
        return await sorted_in_slices(self._loaded(namespace_name, domain))

    async def existing(
        self, namespace_name: str, domain: str, *, with_system: bool = False
    ) -> Sequence[str]:
        """Full names of the topics that exist, in order; [] for an unknown namespace."""
        return await self._existing.get((namespace_name, domain, with_system), self._read_existing)

    async def encoded(
        self, namespace_name: str, domains: tuple[str, ...], encode: Encode
    ) -> Sequence[bytes]:
        """Full names in portions that `encode` has encoded: topics that are stored, then
        non-persistent ones that are loaded, if the domain is among `domains`. Without names that
        are reserved for brokers."""
        return await self._encoded.get((namespace_name, domains, encode), self._read_encoded)

    def _loaded(self, namespace_name: str, domain: str) -> Iterator[str | None]:
        for full, topic in list(self._topics.items()):
            name = topic.name
            ours = name.namespace_name == namespace_name and name.domain == domain
            yield full if ours and not topic.closing else None

    async def _read_existing(self, wanted: tuple[str, str, bool]) -> Sequence[str]:
        namespace_name, domain, with_system = wanted
        stored = await self._namespaces.topics(namespace_name, domain, with_system=with_system)
        loaded = self._loaded(namespace_name, domain)
        return await sorted_in_slices(
            chain(
                stored,
                (
                    None if each is None or (is_system_topic(each) and not with_system) else each
                    for each in loaded
                ),
            )
        )

    async def _read_encoded(self, wanted: _Encoding) -> Sequence[bytes]:
        namespace_name, domains, encode = wanted
        names: list[str] = []
        if PERSISTENT in domains:
            stored = await self._namespaces.topics(namespace_name, PERSISTENT)
            names += await sorted_in_slices(
                None if has_system_name(each) else each for each in stored
            )
        if NON_PERSISTENT in domains:
            names += await sorted_in_slices(
                None if each is None or has_system_name(each) else each
                for each in self._loaded(namespace_name, NON_PERSISTENT)
            )
        return await taken_in_slices(map(encode, portions(names)), steps=1)
