"""The records of one kind below a namespace, kept in memory: JSON nodes at
`<parent of a domain>/<encoded name>`.

All are read once, so that a query costs a dictionary look-up. A watch of the owner reports later
writes, here or by another broker, and those records are read again before the next answer. A
damaged record affects its own topic alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

from broker.tenancy.namespaces.json_nodes import damaged, read_json
from metadata.store import MetadataUnavailable
from protocol.errors import MetadataError
from protocol.topic_name import TopicName, decode_name, encode_name

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from metadata.store import MetadataStore

Json = dict[str, Any]


@final
class KeptRecords:
    """See the module docstring."""

    def __init__(
        self, store: MetadataStore, parents: Mapping[str, str], flaw_in: Callable[[Json], str]
    ) -> None:
        """`parents`: the parent path of the records of each domain. `flaw_in` returns why a record
        cannot be one; empty: it can."""
        self._store = store
        self._parents = parents
        self._flaw_in = flaw_in
        self.is_current = False
        """Whether all records have been read and none has changed since. For each look-up of a
        client, hence an attribute."""
        self._is_loaded = False
        self._loads_void = 0
        """How often all records may have changed: what was read before is void."""
        self._changed: set[tuple[str, str]] = set()
        """(domain, encoded name) of records to be read again."""
        self.found: dict[tuple[str, str], Json] = {}
        """By domain and local name. A writer puts here what it has stored. For a record that was
        damaged later, as it was before."""
        self.damage: dict[tuple[str, str], MetadataError] = {}
        """By domain and local name: the refusal of what needs this record."""

    def of(self, topic: TopicName) -> Json | None:
        """The record of this topic. Raises: MetadataError: it is damaged."""
        key = topic.domain, topic.local_name
        if self.damage and key in self.damage:
            raise self.damage[key]
        return self.found.get(key)

    def path(self, topic: TopicName) -> str:
        """The node of its record."""
        return f"{self._parents[topic.domain]}/{encode_name(topic.local_name)}"

    def changed(self, place: str) -> None:
        """The record at `<domain>/<encoded name>` has changed since it was read."""
        domain, _, element = place.partition("/")
        if element and domain in self._parents:
            self._changed.add((domain, element))
            self.is_current = False

    def all_changed(self) -> None:
        """Any record may have changed since it was read."""
        self._is_loaded = self.is_current = False
        self._loads_void += 1

    async def refresh(self) -> None:
        """Read all records once, and changed ones again. Only one caller at a time."""
        while not self._is_loaded:
            void = self._loads_void
            found, damage = await self._load()
            if void == self._loads_void:
                self.found, self.damage = found, damage
                self._is_loaded = True
        while self._changed:
            domain, element = key = self._changed.pop()
            try:
                await self._read(domain, element, self.found, self.damage)
            except BaseException:
                self._changed.add(key)
                raise
        self.is_current = self._is_loaded

    async def _load(
        self,
    ) -> tuple[dict[tuple[str, str], Json], dict[tuple[str, str], MetadataError]]:
        found: dict[tuple[str, str], Json] = {}
        damage: dict[tuple[str, str], MetadataError] = {}
        for domain, parent in self._parents.items():
            for element in await self._store.children(parent):
                await self._read(domain, element, found, damage)
        for key in damage.keys() & self.found.keys():
            found[key] = self.found[key]
        return found, damage

    async def _read(
        self,
        domain: str,
        element: str,
        found: dict[tuple[str, str], Json],
        damage: dict[tuple[str, str], MetadataError],
    ) -> None:
        """Bring one record up to date. Raises: MetadataUnavailable."""
        key = domain, decode_name(element)
        path = f"{self._parents[domain]}/{element}"
        try:
            record = await read_json(self._store, path)
            if record is not None and (flaw := self._flaw_in(record)):
                raise damaged(path, flaw)
        except MetadataUnavailable:
            raise
        except MetadataError as error:
            damage[key] = error
            return
        damage.pop(key, None)
        if record is None:
            found.pop(key, None)
        else:
            found[key] = record
