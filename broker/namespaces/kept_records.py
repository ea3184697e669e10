"""The records of one kind below a namespace, kept in memory: JSON nodes at
`<parent of a domain>/<encoded name>`.

All are read once, so that a query costs a dictionary look-up. A watch of the owner reports later
writes, here or by another broker, and those records are read again before the next answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

from broker.namespaces.json_nodes import read_json
from protocol.topic_name import TopicName, decode_name, encode_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from metadata.store import MetadataStore

Json = dict[str, Any]


@final
class KeptRecords:
    """See the module docstring."""

    def __init__(self, store: MetadataStore, parents: Mapping[str, str]) -> None:
        """`parents`: the parent path of the records of each domain."""
        self._store = store
        self._parents = parents
        self._is_loaded = False
        self._loads_void = 0
        """How often all records may have changed: what was read before is void."""
        self._changed: set[tuple[str, str]] = set()
        """(domain, encoded name) of records to be read again."""
        self.found: dict[tuple[str, str], Json] = {}
        """By domain and local name. A writer puts here what it has stored."""

    @property
    def is_current(self) -> bool:
        """Whether all records have been read and none has changed since."""
        return self._is_loaded and not self._changed

    def of(self, topic: TopicName) -> Json | None:
        """The record of this topic."""
        return self.found.get((topic.domain, topic.local_name))

    def path(self, topic: TopicName) -> str:
        """The node of its record."""
        return f"{self._parents[topic.domain]}/{encode_name(topic.local_name)}"

    def changed(self, place: str) -> None:
        """The record at `<domain>/<encoded name>` has changed since it was read."""
        domain, _, element = place.partition("/")
        if element and domain in self._parents:
            self._changed.add((domain, element))

    def all_changed(self) -> None:
        """Any record may have changed since it was read."""
        self._is_loaded = False
        self._loads_void += 1

    async def refresh(self) -> None:
        """Read all records once, and changed ones again."""
        while not self._is_loaded:
            void = self._loads_void
            found = await self._load()
            if void == self._loads_void:
                self.found = found
                self._is_loaded = True
        while self._changed:
            domain, element = key = self._changed.pop()
            try:
                record = await read_json(self._store, f"{self._parents[domain]}/{element}")
            except BaseException:
                self._changed.add(key)
                raise
            if record is None:
                self.found.pop((domain, decode_name(element)), None)
            else:
                self.found[domain, decode_name(element)] = record

    async def _load(self) -> dict[tuple[str, str], Json]:
        found: dict[tuple[str, str], Json] = {}
        for domain, parent in self._parents.items():
            for element in await self._store.children(parent):
                record = await read_json(self._store, f"{parent}/{element}")
                if record is not None:
                    found[domain, decode_name(element)] = record
        return found
