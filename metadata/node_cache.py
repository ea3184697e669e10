"""NodeCache: nodes of a metadata store in memory, within a bound of bytes. Pure.

It answers from earlier reads and writes, and forgets nodes that may have changed. It is correct if
every write is announced before it begins (`begin_write`), and every change before anyone who waits
for it can read (`changed`). Values that are read while a change is under way are not kept.

A change of a node may change the children of all nodes above it, because parents come and go with
the nodes below them. It therefore makes the absence and the children of those nodes unknown, but
not their values. The children of the node itself do not change.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, Literal, final


class Unknown(Enum):
    """The type of UNKNOWN."""

    UNKNOWN = "unknown"


UNKNOWN: Final = Unknown.UNKNOWN
"""The store has to be asked."""
Value = tuple[bytes, int] | None | Literal[Unknown.UNKNOWN]
"""Value and version; None: there is no node."""

_NODE_BYTES: Final = 400
"""About the memory of a node besides the bytes of its path, value and names."""
NAMES_MAX: Final = 100
"""Longer lists of children are not kept: each new child would make one more."""
VALUE_BYTES_MAX: Final = 64 * 1024
"""Larger values are not kept."""


@final
class _Node:
    __slots__ = ("names", "size_bytes", "value")

    def __init__(self) -> None:
        self.value: Value = UNKNOWN
        self.names: tuple[str, ...] | None = None
        """None: unknown."""
        self.size_bytes = 0


@final
class Reading:
    """A read of the store that is under way."""

    __slots__ = ("is_void", "path")

    def __init__(self, path: str, is_void: bool) -> None:
        self.path = path
        self.is_void = is_void
        """Its result may be older than a change."""


@final
class Writing:
    """A write that is under way."""

    __slots__ = ("is_alone", "path", "upwards")

    def __init__(self, path: str) -> None:
        self.path = path
        self.upwards = _upwards(path)
        """It and all nodes above it."""
        self.is_alone = True
        """No other write of this node was under way at any time of this one."""


@final
class NodeCache:
    """See the module docstring. The nodes used least recently are forgotten first."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._nodes: dict[str, _Node] = {}
        """In the order of their last use."""
        self._readings: dict[str, list[Reading]] = {}
        self._writings: dict[str, list[Writing]] = {}
        self._busy: dict[str, int] = {}
        """Writes under way at a node or below it."""
        self.size_bytes = 0

    # --- what is known ------------------------------------------------------------------

    def value(self, path: str) -> Value:
        """As MetadataStore.get, or UNKNOWN."""
        node = self._used(path)
        return UNKNOWN if node is None else node.value

    def names(self, path: str) -> tuple[str, ...] | None:
        """As MetadataStore.children, or None: unknown."""
        node = self._used(path)
        return None if node is None else node.names

    def exists(self, path: str) -> bool | None:
        """As MetadataStore.exists, or None: unknown."""
        node = self._used(path)
        if node is None:
            return None
        if node.names or isinstance(node.value, tuple):
            return True
        return None if node.names is None or node.value is UNKNOWN else False

    def _used(self, path: str) -> _Node | None:
        node = self._nodes.pop(path, None)
        if node is not None:
            self._nodes[path] = node
        return node

    # --- reads ----------------------------------------------------------------------------

    def begin_read(self, path: str) -> Reading:
        """The store is asked for a node. `end_read` follows in any case."""
        reading = Reading(path, path in self._busy)
        self._readings.setdefault(path, []).append(reading)
        return reading

    def end_read(self, reading: Reading) -> None:
        """It was answered, or failed."""
        others = self._readings[reading.path]
        others.remove(reading)
        if not others:
            del self._readings[reading.path]

    def keep_value(self, reading: Reading, value: tuple[bytes, int] | None) -> None:
        """The result of a read, unless it may be old."""
        if not reading.is_void:
            self._keep_value(reading.path, value)

    def keep_names(self, reading: Reading, names: list[str]) -> None:
        """The same for children."""
        if not reading.is_void and len(names) <= NAMES_MAX:
            node = self._nodes.setdefault(reading.path, _Node())
            node.names = tuple(names)
            self._count(reading.path, node)

    def keep_absence(self, reading: Reading) -> None:
        """The same for a node that does not exist, and has none below it."""
        self.keep_value(reading, None)
        self.keep_names(reading, [])

    # --- writes ---------------------------------------------------------------------------

    def begin_write(self, path: str) -> Writing:
        """A node is about to be created, changed or deleted. `end_write` follows in any case."""
        writing = Writing(path)
        others = self._writings.setdefault(path, [])
        for each in others:
            each.is_alone = writing.is_alone = False
        others.append(writing)
        for above in writing.upwards:
            self._busy[above] = self._busy.get(above, 0) + 1
        self.changed(path)
        return writing

    def end_write(self, writing: Writing, written: tuple[bytes, int] | None = None) -> None:
        """`written`: the value and version that the node has now; None: not known."""
        path = writing.path
        others = self._writings[path]
        others.remove(writing)
        if not others:
            del self._writings[path]
        for above in writing.upwards:
            self._busy[above] -= 1
            if not self._busy[above]:
                del self._busy[above]
        if written is not None and writing.is_alone:
            self._keep_value(path, written)

    def changed(self, path: str) -> None:
        """The node was, or may have been, created, changed or deleted; `/`: any node."""
        if path == "/":
            self.clear()
            return
        for above in _upwards(path):
            for reading in self._readings.get(above, ()):
                reading.is_void = True
            node = self._nodes.get(above)
            if node is None:
                continue
            if above == path:
                node.value = UNKNOWN
            else:
                node.names = None
                if node.value is None:
                    node.value = UNKNOWN
            if node.value is UNKNOWN and node.names is None:
                self._forget(above)
            else:
                self._count(above, node)

    def clear(self) -> None:
        """Anything may have changed."""
        self._nodes.clear()
        self.size_bytes = 0
        for readings in self._readings.values():
            for reading in readings:
                reading.is_void = True

    # --- the bound ------------------------------------------------------------------------

    def _keep_value(self, path: str, value: tuple[bytes, int] | None) -> None:
        if value is not None and len(value[0]) > VALUE_BYTES_MAX:
            return
        node = self._nodes.setdefault(path, _Node())
        node.value = value
        self._count(path, node)

    def _count(self, path: str, node: _Node) -> None:
        size = _NODE_BYTES + len(path)
        if isinstance(node.value, tuple):
            size += len(node.value[0])
        if node.names:
            size += sum(map(len, node.names))
        self.size_bytes += size - node.size_bytes
        node.size_bytes = size
        while self.size_bytes > self._bytes_max:
            self._forget(next(iter(self._nodes)))

    def _forget(self, path: str) -> None:
        node = self._nodes.pop(path, None)
        if node is not None:
            self.size_bytes -= node.size_bytes


def _upwards(path: str) -> list[str]:
    """The path itself and those of all nodes above it."""
    paths = []
    while path != "/":
        paths.append(path)
        path = path.rpartition("/")[0] or "/"
    paths.append("/")
    return paths
