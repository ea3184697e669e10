"""The metadata store without files: for `--in-memory` brokers, unit tests and simulation.

Same behaviour as the RocksDB store (one conformance test suite runs on both), but nothing survives
the object. Every coroutine is a checkpoint, so tests with it meet the interleavings that a real
store allows.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import final

import trio

from broker.metadata.node_keys import after_child_key, child_name, first_child_key, node_key
from broker.metadata.store import MUST_NOT_EXIST, NodeNotFound, VersionConflict


@final
class MemoryStore:
    """Nodes in a dictionary, their keys in a sorted list for listing children."""

    def __init__(self) -> None:
        self._nodes: dict[bytes, tuple[bytes, int]] = {}
        self._keys: list[bytes] = []
        self._sequences: dict[str, int] = {}
        self.damage = ""
        """Never any: there is nothing on disk."""

    async def get(self, path: str) -> tuple[bytes, int] | None:
        """Value and version, or None."""
        key = node_key(path)
        await trio.lowlevel.checkpoint()
        return self._nodes.get(key)

    async def put(self, path: str, value: bytes, expected_version: int | None) -> int:
        """Write with compare-and-set; returns the new version."""
        key = node_key(path)
        await trio.lowlevel.checkpoint()
        version = check_version(path, self._nodes.get(key), expected_version)
        if key not in self._nodes:
            insort(self._keys, key)
        self._nodes[key] = (value, version)
        return version

    async def delete(self, path: str, expected_version: int | None = None) -> None:
        """Remove one node; what is below it stays."""
        key = node_key(path)
        await trio.lowlevel.checkpoint()
        check_deletable(path, self._nodes.get(key), expected_version)
        del self._nodes[key]
        del self._keys[bisect_left(self._keys, key)]

    async def children(self, path: str) -> list[str]:
        """Names directly below, sorted."""
        parent = node_key(path)
        await trio.lowlevel.checkpoint()
        names: list[str] = []
        index = bisect_left(self._keys, first_child_key(parent))
        while index < len(self._keys):
            name = child_name(parent, self._keys[index])
            if name is None:
                break
            names.append(name.decode())
            index = bisect_left(self._keys, after_child_key(parent, name), index)
        return sorted(names)

    async def exists(self, path: str) -> bool:
        """Whether the node or anything below it exists."""
        key = node_key(path)
        await trio.lowlevel.checkpoint()
        if key in self._nodes:
            return True
        index = bisect_left(self._keys, first_child_key(key))
        return index < len(self._keys) and child_name(key, self._keys[index]) is not None

    async def next_sequence(self, path: str) -> int:
        """A number never given before for this path."""
        node_key(path)
        await trio.lowlevel.checkpoint()
        number = self._sequences.get(path, 0)
        self._sequences[path] = number + 1
        return number

    async def aclose(self) -> None:
        """Nothing to release."""
        await trio.lowlevel.checkpoint()


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
