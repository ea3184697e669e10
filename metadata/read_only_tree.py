"""A tree of metadata that is only read: of a stopped standalone broker, or of a store that other
processes use. See `metadata.rocks_store` for the format of the former."""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final, Protocol, final

import trio

from metadata.node_keys import SEPARATOR, after_child_key, child_name, first_child_key, node_key
from metadata.store import MetadataUnavailable
from rocks.errors import DatabaseError
from rocks.read_only import ReadOnlyDatabase

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_NODE: Final = b"n"
_SEQUENCE: Final = b"s"
_VERSION: Final = Struct(">q")


class Tree(Protocol):
    """The part of MetadataStore that reads. Both calls may raise MetadataUnavailable."""

    async def get(self, path: str) -> tuple[bytes, int] | None:
        """See MetadataStore."""

    async def children(self, path: str) -> list[str]:
        """See MetadataStore."""

    async def aclose(self) -> None:
        """See MetadataStore."""


@final
class RocksTree:
    """The nodes of a RocksDB store, whose process is stopped."""

    def __init__(self, directory: Path, *, remedy: str = "") -> None:
        """`remedy`: see ReadOnlyDatabase. Raises: MetadataUnavailable."""
        try:
            self._database = ReadOnlyDatabase(directory, remedy=remedy)
        except DatabaseError as error:
            raise MetadataUnavailable(str(error)) from error

    async def get(self, path: str) -> tuple[bytes, int] | None:
        """See MetadataStore."""
        await trio.lowlevel.checkpoint()
        try:
            row = self._database.get(_NODE + node_key(path))
        except DatabaseError as error:
            raise MetadataUnavailable(str(error)) from error
        if row is None:
            return None
        return _value(path, row), _VERSION.unpack_from(row)[0]

    async def children(self, path: str) -> list[str]:
        """See MetadataStore."""
        await trio.lowlevel.checkpoint()
        parent = node_key(path)
        names: list[str] = []
        first = first_child_key(parent)
        try:
            while True:
                row = next(self._database.items(_NODE + first), None)
                key = b"" if row is None else row[0]
                name = child_name(parent, key[1:]) if key.startswith(_NODE) else None
                if name is None:
                    return sorted(names)
                names.append(name.decode(errors="replace"))
                first = after_child_key(parent, name)
        except DatabaseError as error:
            raise MetadataUnavailable(str(error)) from error

    def nodes(self) -> Iterator[tuple[str, bytes]]:
        """Path and value of every node, parents before what is below them, without keeping them.

        Raises: MetadataUnavailable.
        """
        for key, row in self._rows(_NODE):
            path = key.replace(SEPARATOR, b"/").decode(errors="replace") or "/"
            yield path, _value(path, row)

    def sequences(self) -> dict[str, int]:
        """Path -> the next number. Raises: MetadataUnavailable."""
        found: dict[str, int] = {}
        for key, row in self._rows(_SEQUENCE):
            path = key.decode(errors="replace")
            if len(row) != _VERSION.size:
                raise MetadataUnavailable(f"{path}: a row of {len(row)} bytes is no sequence")
            found[path] = _VERSION.unpack(row)[0]
        return found

    def _rows(self, kind: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Keys without their kind, and values. Raises: MetadataUnavailable."""
        try:
            for key, row in self._database.items(kind):
                if not key.startswith(kind):
                    return
                yield key[len(kind) :], row
        except DatabaseError as error:
            raise MetadataUnavailable(str(error)) from error

    async def aclose(self) -> None:
        """Release the directory."""
        await trio.lowlevel.checkpoint()
        self._database.close()


def _value(path: str, row: bytes) -> bytes:
    if len(row) < _VERSION.size:
        raise MetadataUnavailable(f"{path}: a row of {len(row)} bytes is no node")
    return row[_VERSION.size :]
