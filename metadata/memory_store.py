"""The metadata store without files: for `--in-memory` brokers, unit tests and simulation.

Same behaviour as the RocksDB store (one conformance test suite runs on both), but its data ends
with the object. Every coroutine is a checkpoint, so tests with it see the interleavings that a real
store allows.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import TYPE_CHECKING, final

import trio

from metadata.node_keys import after_child_key, child_name, first_child_key, node_key
from metadata.store import (
    MUST_NOT_EXIST,
    MetadataUnavailable,
    NodeNotFound,
    SessionState,
    VersionConflict,
)
from metadata.watches import Watches

if TYPE_CHECKING:
    from collections.abc import Callable

    from metadata.store import OnChange, OnSession


@final
class _Tree:
    """The state shared by the sessions: nodes in a dictionary, their keys in a sorted list."""

    def __init__(self) -> None:
        self.nodes: dict[bytes, tuple[bytes, int]] = {}
        self.keys: list[bytes] = []
        self.sequences: dict[str, int] = {}
        self.ephemeral: dict[str, MemoryStore] = {}
        """Sessions by the paths of their ephemeral nodes."""
        self.watches = Watches()

    def put(self, path: str, key: bytes, value: bytes, version: int) -> None:
        if key not in self.nodes:
            insort(self.keys, key)
        self.nodes[key] = (value, version)
        self.watches.tell(path)

    def delete(self, path: str, key: bytes) -> None:
        self.ephemeral.pop(path, None)
        del self.nodes[key]
        del self.keys[bisect_left(self.keys, key)]
        self.watches.tell(path)


@final
class MemoryStore:
    """One session of a tree in memory."""

    def __init__(self) -> None:
        self._tree = _Tree()
        self._on_session: list[OnSession] = []
        self._sessions_lost = 0
        self.session_state = SessionState.LIVE
        """See MetadataStore."""
        self.damage = ""
        """Never any: there is nothing on disk."""

    def another_session(self) -> MemoryStore:
        """A session of the same tree, as another broker would have."""
        other = MemoryStore()
        other._tree = self._tree
        return other

    def watch(self, path: str, on_change: OnChange) -> Callable[[], None]:
        """See MetadataStore."""
        node_key(path)
        return self._tree.watches.add(path, on_change)

    def watch_session(self, on_change: OnSession) -> Callable[[], None]:
        """See MetadataStore."""
        self._on_session.append(on_change)
        return lambda: self._on_session.remove(on_change)

    def become(self, state: SessionState) -> None:
        """Change the state of the session, as a store on another machine might. A lost session
        takes its ephemeral nodes along."""
        if state is SessionState.LOST:
            self._sessions_lost += 1
            self._end_session()
        self.session_state = state
        for on_change in tuple(self._on_session):
            on_change(state)

    async def put_ephemeral(self, path: str, value: bytes) -> None:
        """Create a node that is deleted with this session."""
        key = node_key(path)
        await self._same_session()
        version = check_version(path, self._tree.nodes.get(key), MUST_NOT_EXIST)
        self._tree.ephemeral[path] = self
        self._tree.put(path, key, value, version)

    async def sync(self) -> None:
        """There is one copy only."""
        await trio.lowlevel.checkpoint()

    async def get(self, path: str) -> tuple[bytes, int] | None:
        """Value and version, or None."""
        key = node_key(path)
        await trio.lowlevel.checkpoint()
        return self._tree.nodes.get(key)

    async def put(self, path: str, value: bytes, expected_version: int | None) -> int:
        """Write with compare-and-set. Returns the new version."""
        key = node_key(path)
        await self._same_session()
        version = check_version(path, self._tree.nodes.get(key), expected_version)
        self._tree.put(path, key, value, version)
        return version

    async def delete(self, path: str, expected_version: int | None = None) -> None:
        """Remove one node. Nodes below it stay."""
        key = node_key(path)
        await self._same_session()
        check_deletable(path, self._tree.nodes.get(key), expected_version)
        self._tree.delete(path, key)

    async def _same_session(self) -> None:
        """A checkpoint. A write belongs to the session in which it was requested, and takes no
        effect in the next one.

        Raises: MetadataUnavailable.
        """
        lost, is_lost = self._sessions_lost, self.session_state is SessionState.LOST
        await trio.lowlevel.checkpoint()
        if is_lost or lost != self._sessions_lost:
            raise MetadataUnavailable("the session with the metadata store was lost")

    async def children(self, path: str) -> list[str]:
        """Names directly below, sorted."""
        parent = node_key(path)
        await trio.lowlevel.checkpoint()
        names: list[str] = []
        index = bisect_left(self._tree.keys, first_child_key(parent))
        while index < len(self._tree.keys):
            name = child_name(parent, self._tree.keys[index])
            if name is None:
                break
            names.append(name.decode())
            index = bisect_left(self._tree.keys, after_child_key(parent, name), index)
        return sorted(names)

    async def exists(self, path: str) -> bool:
        """Whether the node or anything below it exists."""
        key = node_key(path)
        await trio.lowlevel.checkpoint()
        if key in self._tree.nodes:
            return True
        index = bisect_left(self._tree.keys, first_child_key(key))
        return index < len(self._tree.keys) and child_name(key, self._tree.keys[index]) is not None

    async def next_sequence(self, path: str) -> int:
        """A number never given before for this path."""
        node_key(path)
        await trio.lowlevel.checkpoint()
        number = self._tree.sequences.get(path, 0)
        self._tree.sequences[path] = number + 1
        return number

    async def advance_sequence(self, path: str, number: int) -> None:
        """Give no number below `number` from now on."""
        node_key(path)
        await trio.lowlevel.checkpoint()
        self._tree.sequences[path] = max(self._tree.sequences.get(path, 0), number)

    async def peek_sequence(self, path: str) -> int:
        """The number that `next_sequence` would give."""
        node_key(path)
        await trio.lowlevel.checkpoint()
        return self._tree.sequences.get(path, 0)

    async def aclose(self) -> None:
        """Delete the nodes of the session."""
        await trio.lowlevel.checkpoint()
        self._end_session()

    def _end_session(self) -> None:
        own = [path for path, session in self._tree.ephemeral.items() if session is self]
        for path in own:
            self._tree.delete(path, node_key(path))


def check_version(
    path: str, current: tuple[bytes, int] | None, expected_version: int | None
) -> int:
    """The version a put would write, or VersionConflict: the rule both stores share."""
    if expected_version is not None:
        if current is None and expected_version != MUST_NOT_EXIST:
            raise VersionConflict(f"{path} does not exist, expected version {expected_version}")
        if current is not None and current[1] != expected_version:
            raise VersionConflict(
                f"{path} has version {current[1]}, expected "
                + ("no node" if expected_version == MUST_NOT_EXIST else str(expected_version))
            )
    return 0 if current is None else current[1] + 1


def check_deletable(
    path: str, current: tuple[bytes, int] | None, expected_version: int | None
) -> None:
    """NodeNotFound or VersionConflict unless the node may be deleted."""
    if current is None:
        raise NodeNotFound(f"{path} does not exist")
    if expected_version is not None and current[1] != expected_version:
        raise VersionConflict(f"{path} has version {current[1]}, expected {expected_version}")
